"""What goes wrong around a relay must stay where it went wrong."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING

import pytest

from relay_harness import (
    COUNT,
    ECHO,
    OPTIONS,
    SLOW,
    Node,
    RawLink,
    RawServer,
    Wire,
    fleet,
    looped,
    until,
    world,
)
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import reply_to
from roquet.relay.codes import RelayAnswer, RelayCode
from roquet.relay.peers import packets
from roquet.remoting.codec import encode

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.relay.app import Relay

FLEET = {1: 3, 2: 3, 3: 5}


def failure(relay: Relay, server_id: int) -> str:
    row = relay.view.server(server_id)
    return "" if row is None else row.failure


# --- the configuration server ---------------------------------------------------------------------


@looped
async def test_without_configuration_the_relay_waits_and_is_not_ready(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        await made.node(1, 3)
        await made.node(2, 3)
        made.publish()
        await made.config_server.stop()
        relay = await made.relay()
        await until(lambda: bool(relay.view.health().config_failure))
        assert not relay.view.health().ready
        assert relay.view.servers() == []
        await made.config_server.start()
        await made.whole()
        health = relay.view.health()
        assert (health.ready, health.config_source, health.config_failure) == (True, "server", "")


@looped
async def test_the_last_good_copy_starts_the_fleet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with fleet(tmp_path, FLEET) as (made, first):
        await until((tmp_path / "copy.json").exists)
        await first.app.__aexit__()
        await made.config_server.stop()
        with caplog.at_level(logging.WARNING):
            second = await made.relay()
            await made.whole()
        health = second.view.health()
        assert (health.ready, health.config_source) == (True, "copy")
        assert "Connection refused" in health.config_failure
        assert "starting with the last good configuration" in caplog.text
        assert await made.nodes[1].request(3, ECHO, b"x") == b"3:x"
        await made.config_server.start()
        await until(lambda: second.view.health().config_source == "server")


@looped
async def test_a_broken_copy_is_told_and_the_relay_waits_for_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "copy.json").write_text('{"version": 1, "servers": [{"id": 0}]}')
    async with world(tmp_path) as made:
        await made.node(1, 3)
        await made.config_server.stop()
        relay = await made.relay()
        await until(lambda: bool(relay.view.health().config_failure))
        assert not relay.view.health().ready
        assert "the last good configuration cannot be read" in caplog.text
        assert "id must be an integer within" in caplog.text


@looped
async def test_a_configuration_server_that_goes_or_talks_nonsense_changes_nothing(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path, FLEET) as (made, relay):
        for text, why in (
            ("{", "500"),
            ('{"version": 9, "servers": [{"id": 2147483648, "type": 1}]}', "500"),
            ('{"version": 9, "servers": [{"id": 1, "type": 0}]}', "500"),
        ):
            made.file.write_text(text)
            await until(lambda w=why: w in relay.view.health().config_failure)  # type: ignore[misc]
            assert await made.nodes[1].request(3, ECHO, b"x") == b"3:x"
        await made.config_server.stop()
        await until(lambda: "500" not in relay.view.health().config_failure)
        assert relay.view.health().ready
        assert await made.nodes[1].request(3, ECHO, b"x") == b"3:x"
        made.publish()
        await made.config_server.start()
        await until(lambda: relay.view.health().config_failure == "")
        assert [row.state for row in relay.view.servers()] == ["registered"] * 3


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"nonsense\r\n\r\n", "the answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "in the middle of its answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}", "the limit is"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "in chunks"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "404 Not Found"),
        (b"x" * 100_000, "no HTTP head"),
        (b"", "in the middle of its answer"),
        (
            b'HTTP/1.0 200 OK\r\n\r\n{"version": 1, "servers": [{"id": -4, "type": 1}]}',
            'servers[0] {"id":-4,"type":1}: id must be an integer within 1..2147483647',
        ),
        (b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 50_000, "no JSON"),
    ],
)
def test_any_answer_of_a_configuration_server_is_survived(
    tmp_path: Path, answer: bytes, why: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        writer.close()

    async def main() -> None:
        async with world(tmp_path) as made:
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            relay = await made.relay(config_url=f"http://127.0.0.1:{port}/servers")
            await until(lambda: why in relay.view.health().config_failure)
            server.close()

    asyncio.run(main())


@looped
async def test_a_silent_configuration_server_stops_no_tick(tmp_path: Path) -> None:
    held: list[asyncio.StreamWriter] = []

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    async with fleet(tmp_path, FLEET) as (made, relay):
        port = made.config_server.port
        await made.config_server.stop()
        server = await asyncio.start_server(hold, "127.0.0.1", port)
        await until(lambda: bool(held))
        await made.nodes[2].__aexit__()
        await until(lambda: relay.view.server(2).state == "waiting")  # type: ignore[union-attr]
        await made.nodes[2].__aenter__()
        await made.whole()
        server.close()
        for writer in held:
            writer.close()


# --- servers come and go --------------------------------------------------------------------------


@looped
async def test_a_changed_configuration_moves_adds_and_removes_servers(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET) as (made, relay):
        moved = Node(2, 7, options=OPTIONS)
        await made.stack.enter_async_context(moved)
        old, made.nodes[2] = made.nodes[2], moved
        await made.node(4, 5)
        gone = made.nodes.pop(3)
        made.publish()
        await made.whole()
        assert made.nodes[1].others[2].server_type == 7
        await until(lambda: not old.is_ready and not gone.is_ready)
        assert [row.id for row in relay.view.servers()] == [1, 2, 4]
        with pytest.raises(Refused) as error:
            await made.nodes[1].request(3, ECHO)
        assert error.value.code == RelayAnswer.TARGET_UNKNOWN


@looped
async def test_servers_killed_and_restarted_100_times_leave_the_table_right(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path, FLEET | {4: 5}, tick_ms=2, reconnect_ms=5) as (made, relay):
        for round_number in range(100):
            victim = 1 + round_number % 4
            node = made.nodes[victim]
            others = [other for number, other in made.nodes.items() if number != victim]
            if round_number % 2:
                for link in node._links.all():
                    link.abort()
            await node.__aexit__()
            await until(lambda v=victim, o=others: all(v not in one.others for one in o))  # type: ignore[misc]
            assert relay.view.server(victim).state != "registered"  # type: ignore[union-attr]
            await node.__aenter__()
            await made.whole()
            states = [row.state for row in relay.view.servers()]
            assert states == ["registered"] * 4, round_number
            sender = others[0]
            assert await sender.request(victim, ECHO) == b"%d:" % victim
        assert len(relay.master.links) == 4
        assert relay.view.waiting() == dict.fromkeys(relay.view.waiting(), 0)


@looped
async def test_a_half_open_link_is_given_up_by_the_relay(tmp_path: Path) -> None:
    async with (
        fleet(tmp_path, FLEET, heartbeat_timeout_ms=1_000) as (made, relay),
        RawServer(9, 3) as raw,
    ):
        made.publish(raw.entry)
        await made.whole(9)
        await until(lambda: relay.view.server(9).online == 7)  # type: ignore[union-attr]
        raw.beats = False
        await until(lambda: 9 not in made.nodes[1].others)
        await until(lambda: len(raw.registers) > 1)
        raw.beats = True
        await made.whole(9)


@looped
async def test_a_partition_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    options = dataclasses.replace(OPTIONS, heartbeat_s=0.1, heartbeat_timeout_s=1.0)
    async with fleet(tmp_path, FLEET, heartbeat_timeout_ms=1_000) as (made, relay):
        node = await made.node(8, 3, options=options)
        async with Wire(node.port) as wire:
            entry = {"id": 8, "type": 3, "host": "127.0.0.1", "port": wire.port}
            del made.nodes[8]
            made.publish(entry)
            await made.whole(8)
            wire.whole.clear()
            asked = asyncio.ensure_future(made.nodes[1].request(8, ECHO))
            await until(lambda: not node.is_ready and 8 not in made.nodes[1].others)
            with pytest.raises((OutcomeUnknown, Refused)):
                await asked
            with pytest.raises(Refused) as error:
                await made.nodes[1].request(8, ECHO)
            assert error.value.code == RelayAnswer.TARGET_GONE
            assert await made.nodes[1].request(2, ECHO) == b"2:"
            assert relay.view.health().registered == 3
            wire.whole.set()
            await made.whole(8)
            await until(lambda: node.others.keys() == {1, 2, 3})
            assert await made.nodes[1].request(8, ECHO) == b"8:"


@looped
async def test_a_relay_that_slept_judges_nobody_by_it(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET) as (made, relay):
        made.clock.shift_ms += 3_600_000
        for _ in range(3):
            workers = relay.view._workers
            for worker in workers:
                await worker.watch()
            await until(
                lambda: (
                    not any(
                        relay.view._exchange.silent(index, made.clock.steady_ms() - 1_000)
                        for index in range(2)
                    )
                )
            )
        assert [node.registrations for node in made.nodes.values()] == [1, 1, 1]
        assert relay.view.health().registered == 3


@looped
async def test_a_half_open_link_is_given_up_by_the_server(tmp_path: Path) -> None:
    options = dataclasses.replace(OPTIONS, heartbeat_s=0.05, heartbeat_timeout_s=0.5)
    async with fleet(tmp_path, FLEET, heartbeat_ms=60_000, heartbeat_timeout_ms=120_000) as (
        made,
        _,
    ):
        lonely = await made.node(8, 3, options=options)
        made.publish()
        await until(lambda: lonely.registrations >= 2)


@looped
async def test_a_peer_that_registers_no_server_is_closed_by_it() -> None:
    options = dataclasses.replace(OPTIONS, heartbeat_s=0.02, heartbeat_timeout_s=0.1)
    async with Node(1, 3, options=options) as node:
        link = await RawLink.to(node.port)
        assert await link.is_closed()
        await link.close()


@looped
async def test_a_long_map_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roquet.relay.worker.MAP_MAX", 2)
    async with fleet(tmp_path, dict.fromkeys(range(1, 8), 3)) as (made, _):
        late = await made.node(8, 4)
        made.publish()
        await made.whole()
        assert late.others.keys() == set(range(1, 8))


@looped
async def test_a_register_answer_that_is_wrong_or_missing_is_a_failure_of_one_server(
    tmp_path: Path,
) -> None:
    async with (
        fleet(tmp_path, FLEET, register_timeout_ms=300) as (made, relay),
        RawServer(9, 3) as raw,
    ):
        answers = {
            "it says that it is server 8": lambda c: encode(
                reply_to(c, ext={"id": "8", "maxOnline": "1"})
            ),
            "maxOnline is": lambda c: encode(reply_to(c, ext={"id": "9"})),
            "it refused with code 29: no": lambda c: encode(reply_to(c, 29, remark="no")),
            "broken frame": lambda _: b"GET / HTTP/1.1\r\n\r\n",
            "no answer within 300 ms": lambda _: b"",
        }
        raw.answer = lambda _: b""
        made.publish(raw.entry)
        for why, answer in answers.items():
            raw.answer = answer
            await until(lambda w=why: w in failure(relay, 9))  # type: ignore[misc]
            assert await made.nodes[1].request(2, ECHO) == b"2:"
        raw.answer = raw.registered
        await made.whole(9)


@looped
async def test_two_links_of_one_id_the_newer_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with fleet(tmp_path, FLEET, inbound=True) as (made, relay):
        assert relay.listener is not None
        waiting = asyncio.ensure_future(made.nodes[1].request(2, SLOW))
        await until(lambda: relay.view.server(2).pending == 1)  # type: ignore[union-attr]
        twin = Node(2, 3, relay=f"127.0.0.1:{relay.listener.port}", options=OPTIONS)
        async with twin:
            await twin.ready()
            with pytest.raises(OutcomeUnknown, match="left before it answered"):
                await waiting
            await until(lambda: not made.nodes[2].is_ready)
            assert "server 2 is registered on two links: the newer stays" in caplog.text
            await made.nodes[1].send(2, COUNT, b"to the newer")
            await until(lambda: len(twin.got) == 1)
            assert twin.others.keys() == {1, 3}
        await until(lambda: made.nodes[2].is_ready)  # dialled again when the newer has gone
        await made.whole()


@looped
async def test_a_server_that_cannot_be_dialled_dials(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET, inbound=True) as (made, relay):
        assert relay.listener is not None
        inside = await made.node(7, 9, relay=f"127.0.0.1:{relay.listener.port}", max_online=50)
        assert not inside.is_ready
        made.publish()
        await made.whole()
        assert made.nodes[1].others[7].max_online == 50
        assert await made.nodes[1].request(7, ECHO, b"x") == b"7:x"
        await relay.master.ask("reconnect", 7)
        await until(lambda: inside.registrations == 2)
        await made.whole()


# --- relays ---------------------------------------------------------------------------------------


@looped
async def test_a_second_relay_by_mistake_disturbs_nobody_and_takes_over_later(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path, FLEET) as (made, first):
        second = await made.relay()
        await until(lambda: all("is alive" in row.failure for row in second.view.servers()))
        await until(lambda: len(second.view.servers()) == 3)
        assert [row.state for row in first.view.servers()] == ["registered"] * 3
        assert [node.registrations for node in made.nodes.values()] == [1, 1, 1]
        assert await made.nodes[1].request(3, ECHO, b"x") == b"3:x"
        await first.app.__aexit__()
        await until(lambda: second.view.health().registered == 3)
        await made.whole()
        assert await made.nodes[1].request(3, ECHO, b"x") == b"3:x"


@looped
async def test_a_relay_that_hangs_is_told_from_one_that_lives(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        node = await made.node(1, 3)
        made.publish()
        # A relay by hand that registers the server and then says nothing more.
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        said = packets.Register(relay="dead", instance="0", server_id=1, server_type=3, nonce="n")
        writer.write(encode(packets.register(said)))
        assert await reader.read(1)
        writer.write(encode(packets.server_map({})))
        await until(lambda: node.is_ready)
        await made.relay()
        await until(lambda: node.registrations == 2)
        writer.close()


# --- receivers ------------------------------------------------------------------------------------


@looped
async def test_a_slow_receiver_costs_its_senders_a_busy_and_nobody_else_anything(
    tmp_path: Path,
) -> None:
    limits = {"queue_bytes": 200_000, "frame_bytes": 100_000}
    async with fleet(tmp_path, FLEET, **limits) as (made, relay), RawServer(9, 3) as raw:
        made.publish(raw.entry)
        await made.whole(9)
        raw.reads.clear()
        one, body = made.nodes[1], bytes(50_000)
        refusal: Refused | None = None
        sent = 0
        while refusal is None:
            asked = asyncio.ensure_future(one.request(9, ECHO, body, timeout_s=300))
            sent += 1
            await asyncio.sleep(0)
            done, _ = await asyncio.wait({asked}, timeout=0.01)
            if done and isinstance(asked.exception(), Refused):
                refusal = asked.exception()  # type: ignore[assignment]
            assert sent < 2_000
        assert refusal.code == ResponseCode.SYSTEM_BUSY
        assert "the queue of server 9 is full" in refusal.remark
        row = relay.view.server(9)
        assert row is not None
        assert 0 < row.queue_bytes <= 200_000
        for _ in range(100):
            assert await one.request(2, ECHO, body[:1000]) == b"2:" + body[:1000]
            assert await made.nodes[3].request(1, ECHO, b"x") == b"1:x"
        await one.send(9, COUNT, body)
        await until(lambda: relay.view.counters()["unanswered"] >= 1)
        raw.reads.set()
        accepted = row.out_packets
        await until(lambda: sum(c.code == RelayCode.FORWARD for c in raw.got) == accepted)
        assert relay.view.server(9).queue_bytes == 0  # type: ignore[union-attr]


@looped
async def test_a_receiver_that_takes_not_even_notices_is_closed(tmp_path: Path) -> None:
    limits = {"queue_bytes": 100_000, "frame_bytes": 50_000, "notice_bytes": 1_024}
    periods = {"tick_ms": 2, "reconnect_ms": 5}
    async with fleet(tmp_path, FLEET, **limits, **periods) as (made, relay), RawServer(9, 3) as raw:
        made.publish(raw.entry)
        await made.whole(9)
        raw.reads.clear()
        for size, filled in ((20_000, 75_000), (500, 99_000)):
            while relay.view.server(9).queue_bytes < filled:  # type: ignore[union-attr]
                await made.nodes[1].send(9, COUNT, bytes(size))
                await asyncio.sleep(0)
        before = len(raw.registers)
        flapping = made.nodes[3]
        while relay.view.server(9).state == "registered":  # type: ignore[union-attr]
            await flapping.__aexit__()
            await until(lambda: not flapping.is_ready and 3 not in made.nodes[1].others)
            await flapping.__aenter__()
            await until(lambda: flapping.is_ready)
        raw.reads.set()
        await until(lambda: len(raw.registers) > before)
        await made.whole(9)


@looped
async def test_packets_before_registration_are_refused(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET) as (made, _), RawServer(9, 3) as raw:
        forward = packets.command(RelayCode.FORWARD, {"from": "9", "to": "1", "packet": "1"})
        raw.answer = lambda c: encode(forward, opaque=77) + raw.registered(c)
        made.publish(raw.entry)
        await made.whole(9)
        await until(lambda: any(c.is_response for c in raw.got))
        answer = next(c for c in raw.got if c.is_response)
        assert (answer.code, answer.opaque) == (RelayAnswer.NOT_REGISTERED, 77)


@looped
async def test_a_server_cannot_speak_for_another(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET) as (made, relay), RawServer(9, 3) as raw:
        made.publish(raw.entry)
        await made.whole(9)
        lie = packets.command(RelayCode.FORWARD, {"from": "2", "to": "1", "packet": str(COUNT)})
        raw.send(encode(lie, opaque=5))
        await until(lambda: any(c.is_response for c in raw.got))
        answer = next(c for c in raw.got if c.is_response)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert answer.remark == "from is 2, the sender is server 9"
        # An answer to what nobody asked it, and one in another's name.
        lie = reply_to(lie, ext={"from": "9", "to": "1"})
        raw.send(encode(lie))
        await until(lambda: relay.view.counters()["stray_answers"] == 1)
        asked = asyncio.ensure_future(made.nodes[1].request(9, ECHO))
        await until(lambda: any(c.code == RelayCode.FORWARD for c in raw.got))
        request = next(c for c in raw.got if c.code == RelayCode.FORWARD)
        raw.send(encode(reply_to(request, ext={"from": "2", "to": "1"})))
        with pytest.raises(Refused, match="server 9 answered badly"):
            await asked
        assert made.nodes[1].got == []


@looped
async def test_a_relay_that_stops_lets_the_servers_go(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET) as (made, relay):
        await relay.app.__aexit__()
        await until(lambda: not any(node.is_ready for node in made.nodes.values()))
        assert all(node.others == {} for node in made.nodes.values())
        with pytest.raises(Unreachable):
            await made.nodes[1].request(2, ECHO)
