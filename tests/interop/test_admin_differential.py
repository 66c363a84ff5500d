"""Requests with drawn arguments at our servers and at Java's, both with their defaults."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
from tools.pages.java_settings import declared, fate

import admin_differential
import namesrv_differential
from admin_differences import BROKER, NAME_SERVER, reason_of, rows_of
from interop_world import our_broker, our_name_server
from roquet.base.clock import SystemClock
from roquet.base.errors import OutcomeUnknown
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.testing.java import BrokerPlan, free_port, java_broker, java_name_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from pathlib import Path

    from admin_differences import Difference
    from admin_differential import Asked
    from roquet.testing.java import Process

DRAWS = 4
SEED = 16
ANSWER_S = 3.0
"""How long a request may take that perhaps nobody answers."""
PATIENCE_S = 30.0
"""How long one may take that the other server has answered."""
LEFT_OUT = {"bindAddress", "inSyncReplicas", "configBlackList"}
"""Settings that ours show only once they are set; the last is one of the name server alone."""


class Twins:
    """One server of ours and one of Java's, asked the same."""

    def __init__(self, client: Client, addresses: Sequence[str]) -> None:
        self._client = client
        self._addresses = addresses

    async def ask(self, command: Command) -> list[Command | None]:
        """Return both answers, ours first; None for one that did not come."""
        found: list[Command | None] = []
        for address in self._addresses:
            within = PATIENCE_S if any(found) else ANSWER_S
            try:
                found.append(await self._client.call(address, command, within))
            except OutcomeUnknown:
                found.append(None)
        return found

    async def furnish(self, asked: Iterable[Asked]) -> None:
        """Make what the requests are about."""
        for one in asked:
            answers = await self.ask(one.command())
            assert all(it is not None and it.code == 0 for it in answers), (one, answers)

    async def differences(
        self,
        asked: Iterable[Asked],
        shape: Callable[[Command], tuple[object, ...]],
        accepted: Sequence[Difference],
    ) -> list[str]:
        """Return the differences that no reason explains, and the reasons without a difference."""
        found: list[str] = []
        unused = rows_of(accepted)
        for one in asked:
            ours, java = (
                ("no answer",) if it is None else shape(it) for it in await self.ask(one.command())
            )
            if ours == java:
                continue
            reason = reason_of(one, ours, java, accepted)
            if reason is None:
                found.append(f"{int(one.code)} {one.case}: ours {ours}, Java {java}")
            else:
                unused.discard(reason)
        return found + [f"no longer different: {code} {part}" for _, code, part in sorted(unused)]


async def _answers_of_brokers(twins: Twins) -> list[str]:
    for code in admin_differential.FIELDS:
        await twins.furnish(admin_differential.furniture(code))
    await asyncio.sleep(1.0)
    asked = admin_differential.requests(random.Random(SEED), DRAWS)
    found = await twins.differences(asked, admin_differential.shape, BROKER)
    return found + await _settings_left_out(twins, RequestCode.GET_BROKER_CONFIG)


async def _answers_of_name_servers(twins: Twins) -> list[str]:
    for code in namesrv_differential.FIELDS:
        await twins.furnish(namesrv_differential.furniture(code))
    asked = namesrv_differential.requests(random.Random(SEED), DRAWS)
    found = await twins.differences(asked, namesrv_differential.shape, NAME_SERVER)
    return found + await _settings_left_out(twins, RequestCode.GET_NAMESRV_CONFIG)


async def _settings_left_out(twins: Twins, code: RequestCode) -> list[str]:
    """Return the settings that Java's answer has, ours has not and the page does not decline."""
    ours, java = (
        {line.partition("=")[0] for line in (it.body if it else b"").decode().splitlines()}
        for it in await twins.ask(Command(code))
    )
    assert len(java) > 20
    return [f"not in the answer to {code}: {key}" for key in sorted(java - ours) if not _said(key)]


def _said(key: str) -> bool:
    return key in LEFT_OUT or (key not in declared() and fate(key) is not None)


def _compare(
    processes: Sequence[Process],
    addresses: Sequence[str],
    compared: Callable[[Twins], Awaitable[list[str]]],
) -> list[str]:
    async def run() -> list[str]:
        client = Client(clock=SystemClock())
        await client.start()
        try:
            return await compared(Twins(client, addresses))
        finally:
            await client.stop()

    try:
        for process in processes:
            process.start()
        return asyncio.run(run())
    finally:
        for process in reversed(processes):
            process.kill()


@pytest.mark.timeout(240)
def test_admin_requests_answers_have_javas_shape_or_a_reason(jars: Path, tmp_path: Path) -> None:
    chance = random.Random()
    ports = [free_port(chance) for _ in range(3)]
    namesrv = f"127.0.0.1:{ports[0]}"
    extra = {"timerWheelEnable": "true", "recallMessageEnable": "true"}
    plans = [
        BrokerPlan(name, port, namesrv, tmp_path / name / "store", extra)
        for name, port in (("twin-ours", ports[1]), ("twin-java", ports[2]))
    ]
    processes = [
        our_name_server(tmp_path / "namesrv", ports[0]),
        our_broker(tmp_path / "ours", plans[0]),
        java_broker(jars, tmp_path / "java", plans[1]),
    ]
    differences = _compare(processes, [plan.address for plan in plans], _answers_of_brokers)
    assert not differences, "\n".join(differences)


@pytest.mark.timeout(240)
def test_name_server_requests_answers_are_javas_or_have_a_reason(
    jars: Path, tmp_path: Path
) -> None:
    chance = random.Random()
    ports = [free_port(chance) for _ in range(2)]
    processes = [
        our_name_server(tmp_path / "ours", ports[0]),
        java_name_server(jars, tmp_path / "java", ports[1]),
    ]
    addresses = [f"127.0.0.1:{port}" for port in ports]
    differences = _compare(processes, addresses, _answers_of_name_servers)
    assert not differences, "\n".join(differences)
