"""Mailboxes and the main process: bounded, counted, each service owned once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relay_harness import ECHO, fleet, looped, until
from roquet.base.errors import Refused, UsageError
from roquet.protocol.codes import ResponseCode
from roquet.relay.process import Mailbox, MainProcess

if TYPE_CHECKING:
    from pathlib import Path


class Recorder:
    """A service that keeps its messages, and fails when it is told to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.got: list[Any] = []

    def handle(self, messages: list[Any]) -> None:
        self.got += messages
        if "fail" in messages:
            raise ValueError("told to")


def test_a_full_mailbox_refuses_and_counts() -> None:
    woken: list[int] = []
    mailbox = Mailbox(2, lambda: woken.append(1))
    assert [mailbox.post(number) for number in range(4)] == [True, True, False, False]
    assert (len(mailbox), mailbox.refused, len(woken)) == (2, 2, 2)
    assert mailbox.take(1) == [0]
    assert mailbox.post(9)
    assert mailbox.take(10) == [1, 9]


@looped
async def test_a_service_is_owned_once_and_survives_its_own_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    process = MainProcess(5_000)
    service = Recorder("one")
    mailbox = process.add(service)
    with pytest.raises(UsageError, match="service one belongs to two processes"):
        process.add(Recorder("one"))
    mailbox.post("too early")
    await process.start()
    mailbox.post("fail")
    await until(lambda: service.got == ["too early", "fail"])
    assert "service one failed" in caplog.text
    for number in range(3_000):
        assert mailbox.post(number)
    await until(lambda: service.got[2:] == list(range(3_000)))
    await process.stop()
    mailbox.post("too late")
    await asyncio.sleep(0)
    assert len(service.got) == 3_002


@looped
async def test_notices_that_find_a_mailbox_full_come_later_and_in_order(tmp_path: Path) -> None:
    nodes = dict.fromkeys(range(1, 41), 3)
    async with fleet(tmp_path, nodes, mailbox_max=2, workers=2) as (made, relay):
        assert sum(row.mailbox_refused for row in relay.view.workers()) > 0
        assert [row.mailbox for row in relay.view.workers()] == [0, 0]
        for number in (7, 8, 9, 10):
            await made.nodes[number].__aexit__()
        await until(lambda: relay.view.health().registered == 36)
        for number in (7, 8, 9, 10):
            await made.nodes[number].__aenter__()
        await made.whole()
        assert await made.nodes[1].request(10, ECHO, b"x") == b"10:x"


@looped
async def test_an_operator_is_refused_when_too_much_waits(tmp_path: Path) -> None:
    async with fleet(tmp_path, {1: 3}, mailbox_max=2, tick_ms=300) as (_, relay):
        asked = [asyncio.ensure_future(relay.master.ask("drain", 1)) for _ in range(3)]
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert results[:2] == [True, True]
        assert isinstance(results[2], Refused)
        assert results[2].code == ResponseCode.SYSTEM_BUSY
