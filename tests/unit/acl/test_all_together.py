"""TLS and accounts at once: every caller of ours gets through with what its environment says."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest
import trustme
from pyspark.sql.types import StringType, StructField, StructType

import roquet
from admin_of import admin_of
from remoting_harness import on_loop, until
from roquet.base import log as logs
from roquet.base.clock import SystemClock
from roquet.base.errors import Refused, RoquetError, Unreachable
from roquet.broker import app as broker_app
from roquet.broker.config import load_config
from roquet.model.topic import TopicConfig
from roquet.namesrv import app as namesrv_app
from roquet.namesrv.config import Settings
from roquet.namesrv.config import load_config as load_namesrv
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.spark.cluster.metadata import Metadata
from roquet.spark.options import SinkOptions, SourceOptions, Wire
from roquet.spark.reading.batch import BatchReader
from roquet.spark.sink.write import BatchWriter
from roquet.testing.cluster import TINY, cluster, pull_command, send_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

KEYS = {"ROQUET_ACCESS_KEY": "operator", "ROQUET_SECRET_KEY": "canary-of-operator"}


class Shut(NamedTuple):
    """Servers that take nothing but TLS and signatures, and the environment that opens them."""

    name_server: str
    broker: str
    env: dict[str, str]
    counters: Callable[[], dict[str, int]]
    """What the broker's fast path did."""


@contextlib.asynccontextmanager
async def shut(folder: Path) -> AsyncGenerator[Shut]:
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    leaf.private_key_and_cert_chain_pem.write_to_path(str(folder / "pair.pem"))
    (folder / "plain_acl.yml").write_text(
        "accounts:\n- {accessKey: operator, secretKey: canary-of-operator, admin: true}\n"
    )
    (folder / "tls.properties").write_text(
        "tls.server.mode=enforcing\n"
        f"tls.server.certPath={folder / 'pair.pem'}\n"
        f"tls.client.trustCertPath={folder / 'ca.pem'}\n"
    )
    both = {
        "tls.config.file": str(folder / "tls.properties"),
        "aclEnable": "true",
        "rocketmq.acl.plain.file": str(folder / "plain_acl.yml"),
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
    }
    store = {"storePathRootDir": str(folder / "s"), "storePathCommitLog": str(folder / "s/log")}
    kept = {"kvConfigPath": str(folder / "kv"), "configStorePath": str(folder / "ns")}
    config, _ = load_namesrv(None, {}, {**both, **kept})
    name_server = namesrv_app.build(Settings(config), SystemClock())
    async with name_server.app:
        address = f"127.0.0.1:{name_server.server.port}"
        flags = {**TINY, **both, **store, "namesrvAddr": address, "brokerName": "shut"}
        broker = broker_app.build(load_config(None, KEYS, dict(flags))[0])
        async with broker.app:
            await until(lambda: bool(name_server.table.live), 20)
            env = {
                **KEYS,
                "ROQUET_TLS_ENABLE": "true",
                "ROQUET_TLS_CLIENT_TRUST_CERT_PATH": str(folder / "ca.pem"),
            }
            yield Shut(address, broker.identity.address, env, broker.path.native.counters)


@on_loop
async def test_spark_s_tasks_write_and_read_by_their_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [f"body {number}" for number in range(300)]

    def write(it: Shut) -> None:
        schema = StructType([StructField("body", StringType())])
        # There is no Spark task, whose number keys of a plan are made of.
        options = {"nameServers": it.name_server, "topic": "orders", "uniqueKeys": "random"}
        given = SinkOptions.parse(options)
        rows = iter([pa.RecordBatch.from_pydict({"body": bodies})])
        BatchWriter(given, schema, overwrite=False).write(rows)

    def read(it: Shut) -> list[bytes]:
        given = {"nameServers": it.name_server, "subscribe": "orders", "columns": "body"}
        reader = BatchReader(SourceOptions.parse(given, streaming=False))
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return [body for batch in batches for body in batch.column("body").to_pylist()]

    async with shut(tmp_path) as it:
        for name, value in it.env.items():
            monkeypatch.setenv(name, value)
        async with roquet.connect(it.name_server) as mq:
            await mq.admin().topics.create("orders", queues=2)
        await asyncio.to_thread(write, it)
        assert sorted(await asyncio.to_thread(read, it)) == sorted(map(str.encode, bodies))
        # In plain nobody gets as far as a plan.
        monkeypatch.delenv("ROQUET_TLS_ENABLE")
        plain = Metadata(Wire(name_servers=(it.name_server,), retries=0))
        with pytest.raises(Unreachable):
            await asyncio.to_thread(plain.runtime, it.broker)


@on_loop
async def test_every_caller_gets_through_by_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_command_line(it: Shut) -> list[str]:
        with admin_of(it.name_server) as admin:
            config = TopicConfig(name="orders", read_queues=1, write_queues=1)
            admin.topics.put(config)
            return list(admin.brokers.cluster().brokers)

    def by_spark(it: Shut) -> str:
        metadata = Metadata(Wire(name_servers=(it.name_server,)))
        try:
            return metadata.runtime(it.broker)["brokerActive"]
        finally:
            metadata.close()

    async with shut(tmp_path) as it:
        with pytest.raises(RoquetError):
            await asyncio.to_thread(by_command_line, it)
        for name, value in it.env.items():
            monkeypatch.setenv(name, value)
        assert await asyncio.to_thread(by_command_line, it) == ["shut"]
        assert await asyncio.to_thread(by_spark, it) == "true"
        async with roquet.connect(f"rmq://{it.name_server}") as mq, mq.producer("p") as producer:
            assert (await producer.send("orders", b"x")).queue.broker_name == "shut"
        # Below TLS the fast path answers as it does without.
        assert it.counters()["sends"] == 1
        monkeypatch.setenv("ROQUET_SECRET_KEY", "not-the-secret")
        async with roquet.connect(f"rmq://{it.name_server}") as mq:
            with pytest.raises(Refused, match="Check signature failed"):
                await mq.admin().brokers.cluster()
        monkeypatch.delenv("ROQUET_TLS_ENABLE")
        async with roquet.connect(f"rmq://{it.name_server}") as mq:
            with pytest.raises(Unreachable):
                await mq.admin().brokers.cluster()


ODD = "a\r\nb\x1b[31m%n{}\u2028\x00c"


@on_loop
async def test_b20_what_peers_say_cannot_begin_a_line_of_the_log(tmp_path: Path) -> None:
    written = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        logs.configure("DEBUG", "text", written)
        async with cluster(tmp_path) as it:
            client = Client(clock=SystemClock())
            await client.start()
            asked = [
                send_command(ODD, b"x"),
                pull_command(ODD),
                pull_command("t", subscription=ODD),
            ]
            asked += [Command(code, {"topic": ODD, "group": ODD}) for code in RequestCode]
            asked += [Command(code, {"consumerGroup": ODD, "topic": ODD}) for code in RequestCode]
            beat = f'{{"clientID":"{ODD!r}","consumerDataSet":[]}}'.replace("'", "").encode()
            asked += [Command(34, {}, beat), Command(34, {}, ODD.encode())]
            asked += [Command(12345, {ODD: ODD}, remark=ODD)]
            for address in (it.address, it.name_servers):
                for command in asked:
                    await client.call(address, command, 20.0)
            await client.stop()
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    text = written.getvalue()
    assert len(text.splitlines()) > 20
    in_trace = False
    for line in text.split("\n")[:-1]:
        assert "\x1b" not in line
        assert "\r" not in line
        assert "\u2028" not in line
        in_trace = line.startswith("Traceback") or (in_trace and not line[:2].isdigit())
        assert in_trace or line[:4].isdigit(), line


@on_loop
async def test_a_url_has_the_credentials_and_asks_for_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shut(tmp_path) as it:
        where = f"operator:canary-of-operator@{it.name_server}"
        # Whom to trust is the machine's business; that TLS is wanted says the URL.
        name = "ROQUET_TLS_CLIENT_TRUST_CERT_PATH"
        monkeypatch.setenv(name, it.env[name])
        async with roquet.connect(f"rmqs://{where}") as mq:
            await mq.admin().topics.create("by-url", queues=1)
            async with mq.producer("p") as producer:
                assert (await producer.send("by-url", b"x")).is_durable
        async with roquet.connect(f"rmq://{where}") as mq, mq.producer("p") as producer:
            with pytest.raises(Unreachable, match="TLS"):
                await producer.send("by-url", b"x", timeout_s=0.5)
