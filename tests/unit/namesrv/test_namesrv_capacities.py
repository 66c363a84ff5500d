"""How many requests a name server runs and keeps waiting, as its settings say."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from namesrv_harness import looped, serving
from roquet.base.clock import SystemClock
from roquet.base.config import load
from roquet.namesrv.app import build
from roquet.namesrv.config import NamesrvConfig, Settings
from roquet.protocol.command import Command
from roquet.remoting.codec import encode
from roquet.service.lanes import Lanes

if TYPE_CHECKING:
    from pathlib import Path


class Work:
    """A request that does not end before it may."""

    received_ms = 0

    def __init__(self, gate: asyncio.Event) -> None:
        self.gate = gate
        self.has_begun = False
        self.is_refused = False

    async def run(self) -> None:
        self.has_begun = True
        await self.gate.wait()

    def refuse(self, _: str) -> None:
        self.is_refused = True


@pytest.mark.parametrize(
    ("threads", "capacity", "lane"),
    [
        ("clientRequestThreadPoolNums", "clientRequestThreadPoolQueueCapacity", "client"),
        ("defaultThreadPoolNums", "defaultThreadPoolQueueCapacity", "default"),
    ],
)
def test_lane_of_a_name_server_runs_and_keeps_what_its_settings_allow(
    tmp_path: Path, threads: str, capacity: str, lane: str
) -> None:
    given = {threads: "3", capacity: "4", "kvConfigPath": str(tmp_path / "kv.json")}
    config, _ = load(NamesrvConfig, given, {}, {})

    async def tell() -> None:
        app = build(Settings(config), SystemClock()).app
        (lanes,) = (part.service for part in app._parts if isinstance(part.service, Lanes))
        gate = asyncio.Event()
        jobs = [Work(gate) for _ in range(9)]
        for job in jobs:
            lanes[lane].submit(job)
        for _ in range(20):
            await asyncio.sleep(0)
        assert [job.has_begun for job in jobs].count(True) == 3
        assert [job.is_refused for job in jobs].count(True) == 2
        gate.set()
        await lanes.stop()

    asyncio.run(tell())


LEAVING = {
    "brokerName": "broker-a",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "c1",
    "brokerId": "0",
}


@looped
async def test_no_more_brokers_wait_to_be_forgotten_than_the_setting_allows(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, unregister_queue_max=1) as served:
        asker = await served.connect()
        frames = [encode(Command(104, ext=LEAVING), opaque=n, flag=0) for n in range(10)]
        asker.writer.write(b"".join(frames))
        codes = [(await asker.answer()).code for _ in frames]
        assert codes[0] == 0
        assert 1 in codes
        # Those that waited are gone by now.
        assert (await asker.ask(104, LEAVING)).code == 0
