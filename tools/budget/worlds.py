"""The servers that `tools.budget` measures, with tables as large as clients can make them."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.model.data_version import DataVersion
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.groups import GroupTableBody
from roquet.protocol.bodies.offsets import ConsumerOffsetBody
from roquet.protocol.bodies.topics import TopicTableBody
from roquet.remoting.client import Client
from roquet.testing.java import free_port
from roquet.testing.process import BOOTED, START_S, BrokerProcess, Caller, ProcessError
from tools.budget.loop_turns import FILE, Turns

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

WIDE_QUEUES = 65_535
TOPICS = 40_000
GROUPS = 20_000
QUEUES_OF_A_PAIR = 1_000

ACCESS_KEY, SECRET_KEY = "most-topics", "secret-of-most-topics"
ADMIN_KEY, ADMIN_SECRET = "everything", "secret-of-everything"
ACCOUNTS = f"""\
accounts:
- {{accessKey: {ADMIN_KEY}, secretKey: {ADMIN_SECRET}, admin: true}}
- accessKey: {ACCESS_KEY}
  secretKey: {SECRET_KEY}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
  topicPerms: [Other=SUB]
"""


def fill_tables(store: Path, offsets: int) -> None:
    """Write tables of so many offsets, a wide topic, and many topics and groups."""
    version = DataVersion(timestamp=1)
    names = ["wide", *(f"topic-{number}" for number in range(TOPICS))]
    topics = {name: TopicConfig(name=name) for name in names}
    topics["wide"] = TopicConfig(name="wide", read_queues=WIDE_QUEUES, write_queues=WIDE_QUEUES)
    groups = {
        name: SubscriptionGroupConfig(name=name)
        for name in ["g", *(f"known-group-{number}" for number in range(GROUPS))]
    }
    table: dict[str, dict[int, int]] = {"wide@g": {0: 1}}
    for number in range(offsets // QUEUES_OF_A_PAIR):
        queues = dict.fromkeys(range(QUEUES_OF_A_PAIR), 10**12)
        table[f"topic-{number}@known-group-{number}"] = queues
    config = store / "config"
    config.mkdir(parents=True)
    files = {
        "topics.json": TopicTableBody(topics=topics, version=version).encode_file(),
        "subscriptionGroup.json": GroupTableBody(groups=groups, version=version).encode_file(),
        "consumerOffset.json": ConsumerOffsetBody(offsets=table, version=version).encode_file(),
    }
    for name, data in files.items():
        (config / name).write_bytes(data)


@contextlib.asynccontextmanager
async def full_broker(folder: Path, offsets: int) -> AsyncGenerator[tuple[Caller, Turns]]:
    """Run a broker with full tables."""
    turns = Turns(folder / "turns")
    broker = BrokerProcess(
        folder,
        env=_env(folder),
        module="tools.budget.loop_turns",
        autoCreateTopicMax="60000",
        mappedFileSizeCommitLog=str(32 << 20),
    )
    fill_tables(broker.store, offsets)
    with contextlib.closing(_Ending(broker)):
        async with broker.client() as it:
            yield it, turns


@contextlib.asynccontextmanager
async def processors_only(folder: Path) -> AsyncGenerator[tuple[Caller, Turns]]:
    """Run a broker without its fast path: as every topic is served that the core leaves alone."""
    turns = Turns(folder / "turns")
    broker = BrokerProcess(
        folder,
        env=_env(folder),
        module="tools.budget.loop_turns",
        fastPathEnable="false",
        mappedFileSizeCommitLog=str(32 << 20),
    )
    with contextlib.closing(_Ending(broker)):
        async with broker.client() as it:
            yield it, turns


@contextlib.asynccontextmanager
async def broker_with_accounts(folder: Path) -> AsyncGenerator[tuple[Caller, Turns]]:
    """Run a broker that checks the signature and the rights of every request."""
    turns = Turns(folder / "turns")
    accounts = folder / "accounts.yml"
    accounts.write_text(ACCOUNTS)
    broker = BrokerProcess(
        folder,
        env=_env(folder),
        module="tools.budget.loop_turns",
        aclEnable="true",
        **{"rocketmq.acl.plain.file": str(accounts)},
    )
    with contextlib.closing(_Ending(broker)):
        async with broker.client() as it:
            yield it, turns


@contextlib.asynccontextmanager
async def name_server(folder: Path) -> AsyncGenerator[tuple[Caller, Turns]]:
    """Run a name server."""
    turns = Turns(folder / "turns")
    port = free_port(random.Random())
    settings = {
        "listenPort": port,
        "bindAddress": "127.0.0.1",
        "kvConfigPath": folder / "kv.json",
        "configStorePath": folder / "namesrv.properties",
    }
    config = folder / "namesrv.conf"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    output = folder / "namesrv.out"
    process = _started(folder, ["namesrv", "-c", str(config)], output)
    try:
        clock = SystemClock()
        end = time.monotonic() + START_S
        while BOOTED not in output.read_bytes():
            if process.poll() is not None or time.monotonic() > end:
                raise ProcessError(f"the name server did not start:\n{output.read_text()[-2000:]}")
            await clock.sleep(0.02)
        client = Client(clock=clock)
        await client.start()
        try:
            yield Caller(client, f"127.0.0.1:{port}"), turns
        finally:
            await client.stop()
    finally:
        process.kill()
        process.wait(START_S)


def _started(folder: Path, arguments: list[str], output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "tools.budget.loop_turns", *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=_env(folder),
        )


def _env(folder: Path) -> dict[str, str]:
    return {**os.environ, FILE: str(folder / "turns")}


class _Ending:
    """Ends a broker's process."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def close(self) -> None:
        self._broker.kill()
