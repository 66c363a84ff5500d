"""Packets between inner servers through a real relay, on real sockets."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from relay_harness import COUNT, ECHO, SLOW, Node, fleet, looped, until
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.protocol.codes import ResponseCode
from roquet.relay.codes import RelayAnswer

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.relay.client import Packet

FLEET = {1001: 3, 1002: 3, 2001: 5, 2002: 5}


@looped
async def test_requests_and_packets_reach_the_right_server(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET) as (world, relay):
        one = world.nodes[1001]
        for to in (1002, 2001, 2002, 1001):
            assert await one.request(to, ECHO, b"hello") == b"%d:hello" % to
        await one.send(2002, COUNT, b"x")
        await until(lambda: len(world.nodes[2002].got) == 1)
        got = world.nodes[2002].got[0]
        assert (got.sender, got.kind, got.body, got.wants_answer) == (1001, COUNT, b"x", False)
        row = relay.view.server(1001)
        assert row is not None
        assert (row.state, row.worker, row.in_packets) == ("registered", 1, 6)
        assert relay.view.counters()["forwarded"] == 9
        assert relay.view.counters()["answers"] == 4


@looped
async def test_10_000_packets_in_flight_arrive_in_order(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET) as (world, relay):
        one, two = world.nodes[1001], world.nodes[2002]
        body = bytes(256)
        answers = [
            asyncio.ensure_future(one.request(2001, ECHO, body, timeout_s=60))
            for _ in range(10_000)
        ]
        for number in range(10_000):
            await one.send(2002, COUNT, b"%d" % number)
        assert all(len(answer) == 261 for answer in await asyncio.gather(*answers))
        await until(lambda: len(two.got) == 10_000)
        assert [int(packet.body) for packet in two.got] == list(range(10_000))
        assert relay.view.counters()["refused_busy"] == 0


@looped
async def test_a_routing_key_keeps_its_server_and_keys_are_shared(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET | {2003: 5}) as (world, relay):
        one = world.nodes[1001]
        keys = [f"player-{number}" for number in range(60)]

        async def owners() -> dict[str, bytes]:
            found = await asyncio.gather(*(one.request_by_type(5, key, ECHO) for key in keys))
            return dict(zip(keys, found, strict=True))

        before = await owners()
        assert await owners() == before
        assert set(before.values()) == {b"2001:", b"2002:", b"2003:"}
        assert await relay.master.ask("drain", 2002)
        while_draining = await owners()
        assert b"2002:" not in while_draining.values()
        assert all(
            owner == while_draining[key] for key, owner in before.items() if owner != b"2002:"
        )
        assert await relay.master.ask("undrain", 2002)
        assert await owners() == before
        for key in keys:
            await one.send_by_type(5, key, COUNT, key.encode())
        nodes = [world.nodes[number] for number in (2001, 2002, 2003)]
        await until(lambda: sum(len(node.got) for node in nodes) == 60)
        assert {
            packet.body.decode(): b"%d:" % node.server_id for node in nodes for packet in node.got
        } == before


@looped
async def test_to_all_of_a_type_but_the_sender(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET | {1003: 3}) as (world, relay):
        one = world.nodes[1001]
        assert await one.send_to_all(3, COUNT, b"hi") == (2, 0)
        assert await one.send_to_all(5, COUNT, b"hi") == (2, 0)
        others = [node for number, node in world.nodes.items() if number != 1001]
        await until(lambda: all(len(node.got) == 1 for node in others))
        assert not one.got
        assert await relay.master.ask("drain", 2001)
        assert await one.send_to_all(5, COUNT) == (1, 1)
        with pytest.raises(Refused) as error:
            await one.send_to_all(77, COUNT)
        assert error.value.code == RelayAnswer.NO_SERVER_OF_TYPE


@looped
async def test_refusals_say_why(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET) as (world, relay):
        one, two = world.nodes[1001], world.nodes[2001]
        assert await relay.master.ask("drain", 2002)
        await two.__aexit__()
        await until(lambda: 2001 not in one.others)

        async def code(to: int) -> int:
            with pytest.raises(Refused) as error:
                await one.request(to, ECHO)
            return error.value.code

        assert await code(999) == RelayAnswer.TARGET_UNKNOWN
        assert await code(2001) == RelayAnswer.TARGET_GONE
        assert await code(2002) == RelayAnswer.TARGET_DRAINING
        for to in (0, -5, 2**31):
            assert await code(to) == ResponseCode.INVALID_PARAMETER
        with pytest.raises(Refused) as error:
            await one.request_by_type(99, "key", ECHO)
        assert error.value.code == RelayAnswer.NO_SERVER_OF_TYPE
        for key in ("", "k" * 1025):
            with pytest.raises(Refused) as error:
                await one.request_by_type(3, key, ECHO)
            assert error.value.code == ResponseCode.INVALID_PARAMETER
        with pytest.raises(Refused) as error:
            await one.request(1002, 77)
        assert error.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        await one.send(999, COUNT)
        await until(lambda: relay.view.counters()["unanswered"] == 1)
        counters = relay.view.counters()
        assert (counters["refused_unknown"], counters["refused_gone"]) == (3, 1)
        assert (counters["refused_draining"], counters["refused_invalid"]) == (1, 5)


@looped
async def test_a_draining_server_still_gets_answers_and_finishes_its_work(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET) as (world, relay):
        one, two = world.nodes[1001], world.nodes[2001]
        begun = asyncio.ensure_future(one.request(2001, SLOW, b"late"))
        await until(lambda: relay.view.server(2001).pending == 1)  # type: ignore[union-attr]
        assert await relay.master.ask("drain", 2001)
        two.release.set()
        assert await begun == b"late"
        assert await two.request(1001, ECHO, b"x") == b"1001:x"
        assert relay.view.server(2001).state == "draining"  # type: ignore[union-attr]


@looped
async def test_a_request_that_is_not_answered_ends(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET) as (world, relay):
        one, two = world.nodes[1001], world.nodes[2001]
        with pytest.raises(OutcomeUnknown, match="did not answer in time"):
            await one.request(2001, SLOW, timeout_s=0.05)
        assert relay.view.counters()["timed_out"] == 1
        two.release.set()
        await until(lambda: relay.view.counters()["stray_answers"] == 1)
        two.release.clear()
        waiting = asyncio.ensure_future(one.request(2001, SLOW, timeout_s=60))
        await until(lambda: relay.view.server(2001).pending == 1)  # type: ignore[union-attr]
        await two.__aexit__()
        with pytest.raises(OutcomeUnknown, match="left before it answered"):
            await waiting
        assert relay.view.counters()["abandoned"] == 1


@looped
async def test_a_handler_that_fails_answers_and_one_that_refuses_says_why(tmp_path: Path) -> None:
    async def fails(packet: Packet) -> bytes:
        raise ValueError(packet.body.decode())

    async def refuses(packet: Packet) -> bytes:
        raise Refused(4711, packet.body.decode())

    async with fleet(tmp_path, FLEET) as (world, _):
        one, two = world.nodes[1001], world.nodes[2001]
        two.handle(8, fails)
        two.handle(9, refuses)
        with pytest.raises(Refused, match="ValueError: a"):
            await one.request(2001, 8, b"a")
        with pytest.raises(Refused, match="code 4711: b"):
            await one.request(2001, 9, b"b")
        await one.send(2001, 9)
        await until(lambda: two.refused_one_way == 1)


@looped
async def test_a_server_without_relay_cannot_send() -> None:
    async with Node(1, 1) as alone:
        with pytest.raises(Unreachable):
            await alone.send(2, COUNT)
        with pytest.raises(Unreachable):
            await alone.request(2, COUNT)
        with pytest.raises(Unreachable):
            await alone.ready(0.01)


@looped
async def test_workers_share_the_servers_by_id(tmp_path: Path) -> None:
    async with fleet(tmp_path, dict.fromkeys(range(1, 8), 1), workers=3) as (world, relay):
        assert Counter(row.worker for row in relay.view.servers()) == {0: 2, 1: 3, 2: 2}
        assert [row.servers for row in relay.view.workers()] == [2, 3, 2]
        for to in world.nodes:
            assert await world.nodes[1].request(to, ECHO) == b"%d:" % to
