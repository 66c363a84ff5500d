"""Admin requests with drawn arguments at our broker and Java's, both with their defaults."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from admin_differences import ACCEPTED, reason_of
from admin_differential import FIELDS, Asked, furniture, requests, shape
from interop_world import our_broker, our_name_server
from roquet.base.clock import SystemClock
from roquet.remoting.client import Client
from roquet.testing.java import BrokerPlan, free_port, java_broker

if TYPE_CHECKING:
    from pathlib import Path

DRAWS = 4


async def compared(addresses: list[str], seed: int) -> list[str]:
    """Ask both brokers the same; return the differences that no reason explains."""
    client = Client(clock=SystemClock())
    await client.start()
    found: list[str] = []
    used: set[str] = set()

    async def ask(asked: Asked) -> list[tuple[object, ...]]:
        answers = [await client.call(it, asked.command(), 30.0) for it in addresses]
        return [shape(answer) for answer in answers]

    try:
        for code in FIELDS:
            for asked in furniture(code):
                ours, java = await ask(asked)
                assert ours[0] == java[0] == 0, (code, asked.code, ours, java)
        await asyncio.sleep(1.0)
        for asked in requests(random.Random(seed), DRAWS):
            ours, java = await ask(asked)
            if ours == java:
                continue
            reason = reason_of(asked, ours, java)
            if reason is None:
                found.append(f"{int(asked.code)} {asked.case}: ours {ours}, Java {java}")
            else:
                used.add(reason)
    finally:
        await client.stop()
    assert used <= set(ACCEPTED)
    return found


@pytest.mark.timeout(240)
def test_admin_requests_answers_have_javas_shape_or_a_reason(jars: Path, tmp_path: Path) -> None:
    chance = random.Random()
    ports = [free_port(chance) for _ in range(3)]
    namesrv = f"127.0.0.1:{ports[0]}"
    plans = [
        BrokerPlan(name, port, namesrv, tmp_path / name / "store", {"timerWheelEnable": "true"})
        for name, port in (("twin-ours", ports[1]), ("twin-java", ports[2]))
    ]
    processes = [
        our_name_server(tmp_path / "namesrv", ports[0]),
        our_broker(tmp_path / "ours", plans[0]),
        java_broker(jars, tmp_path / "java", plans[1]),
    ]
    try:
        for process in processes:
            process.start()
        differences = asyncio.run(compared([plan.address for plan in plans], 16))
    finally:
        for process in reversed(processes):
            process.kill()
    assert not differences, "\n".join(differences)
