"""The blocking client and administration are the asyncio ones, written by programs."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING

import pytest
from tools import sync_admin, sync_client

from roquet import admin, sync
from roquet.base.errors import Refused
from roquet.client import _sync_admin
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


@pytest.mark.parametrize("program", [sync_admin, sync_client], ids=["admin", "client"])
def test_blocking_modules_are_what_the_program_writes(program: ModuleType) -> None:
    written = {name: sync_admin.formatted(text) for name, text in program.written().items()}
    there = {it.name: it.read_text(encoding="utf-8") for it in program.TARGET.glob("*.py")}
    assert there == written


def test_every_public_function_is_there() -> None:
    count = 0
    for family in ("Topics", "Groups", "Messages", "Brokers", "NameServers", "Accounts"):
        for name, _ in inspect.getmembers(getattr(admin, family)):
            if not name.startswith("_"):
                assert hasattr(getattr(_sync_admin, family), name), (family, name)
                count += 1
    assert count > 40


def test_it_does_the_same_blocking(tmp_path: Path) -> None:
    def work(address: str) -> None:
        with sync.connect(f"rmq://{address}") as mq:
            talk(mq, address)

    async def serve() -> None:
        async with asyncio.timeout(50), cluster(tmp_path) as it:
            await asyncio.to_thread(work, it.name_servers)

    def talk(mq: sync.MQ, address: str) -> None:
        blocking = mq.admin()
        blocking.topics.create("t", 2)
        with mq.producer("p") as producer:
            for number in range(5):
                producer.send("t", f"{number}")
        while sum(it.max_offset for it in blocking.topics.offsets("t").values()) < 5:
            time.sleep(0.05)
        found = blocking.messages.between("t", 0, 2**62)
        assert next(found).body in (b"0", b"1")
        found.close()
        assert len(list(blocking.messages.between("t", 0, 2**62))) == 5
        assert blocking.name_servers.addresses == (address,)
        with pytest.raises(Refused):
            blocking.topics.create("t", 2)

    asyncio.run(serve())
