"""Bad frames, ids, secrets and certificates: the rude one is closed, nobody else notices."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import struct
from typing import TYPE_CHECKING

import pytest

from relay_harness import (
    COUNT,
    ECHO,
    OPTIONS,
    Node,
    Pki,
    RawLink,
    RawServer,
    fleet,
    looped,
    until,
    world,
)
from roquet.base.errors import Unreachable
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import Command
from roquet.relay.codes import FORWARDS, RelayAnswer, RelayCode
from roquet.relay.peers import packets
from roquet.relay.peers.links import tls_to_servers
from roquet.remoting.codec import encode

if TYPE_CHECKING:
    from pathlib import Path

SEED = int(os.environ.get("ROQUET_FUZZ_SEED", "20240817"))
FLEET = {1: 3, 2: 3, 3: 5}
SECRET = "a secret of the fleet"


def mutated(rng: random.Random) -> bytes:
    """Return something that is nearly a frame, or is one that makes no sense."""
    ext = {
        name: rng.choice(["1", "2", "9", "0", "-1", "2147483648", "x", "", "9" * 400])
        for name in rng.sample(["id", "type", "to", "from", "key", "packet", "timeoutMs"], 5)
    }
    frame = bytearray(
        encode(
            Command(
                rng.choice([*RelayCode, 0, 10, 34, 32_000]),
                ext,
                rng.randbytes(rng.randrange(64)),
                flag=rng.randrange(4),
                opaque=rng.randrange(-1, 50),
                encoding=rng.randrange(2),
            )
        )
    )
    kind = rng.randrange(5)
    if kind == 0:
        for _ in range(rng.randrange(1, 8)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
    elif kind == 1:
        del frame[rng.randrange(len(frame)) :]
    elif kind == 2:
        frame[:4] = struct.pack(">i", rng.choice([0, -1, 3, 2**31 - 1, len(frame)]))
    elif kind == 3:
        frame = bytearray(rng.randbytes(rng.randrange(1, 300)))
    return bytes(frame)


@looped
async def test_nothing_that_comes_in_hurts_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    rng = random.Random(SEED)
    async with fleet(tmp_path, FLEET, inbound=True, reconnect_ms=5) as (made, relay):
        assert relay.listener is not None
        raw = await made.stack.enter_async_context(RawServer(9, 3))
        made.publish(raw.entry)
        await made.whole(9)
        for round_number in range(150):
            link = await RawLink.to(relay.listener.port)
            if rng.random() < 0.5:
                link.write(encode(packets.hello(rng.choice([1, 9, 77]))))
            client = await RawLink.to(made.nodes[2].port)
            for _ in range(rng.randrange(1, 6)):
                link.write(mutated(rng))
                client.write(mutated(rng))
                if raw.writer is not None:
                    raw.send(mutated(rng))
            for one in (link, client):
                await one.close()
            if round_number % 15 == 0:
                await until(lambda: made.nodes[1].is_ready and made.nodes[3].is_ready)
                assert await made.nodes[1].request(3, ECHO, b"x", timeout_s=30) == b"3:x"
        await made.whole(9)
        assert await made.nodes[2].request(1, ECHO, b"x") == b"1:x"


@looped
async def test_ids_and_types_out_of_range_are_refused(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET, inbound=True) as (made, relay):
        assert relay.listener is not None
        for text in ("0", "-1", "2147483648", "1.0", "", "٣"):
            link = await RawLink.to(relay.listener.port)
            link.write(encode(packets.command(RelayCode.HELLO, {"id": text})))
            answer = await link.read()
            assert answer.code == ResponseCode.INVALID_PARAMETER
            assert answer.remark is not None
            assert "should be an integer within 1..2147483647" in answer.remark
            await link.close()
        link = await RawLink.to(relay.listener.port)
        link.write(encode(packets.hello(4711)))
        assert (await link.read()).code == ResponseCode.SUCCESS
        assert await link.is_closed()  # not configured
        await link.close()
        assert relay.view.server(4711) is None
        assert made.nodes[1].others.keys() == {2, 3}


@looped
async def test_an_inbound_link_says_who_it_is_or_is_closed(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET, inbound=True, register_timeout_ms=50) as (_, relay):
        assert relay.listener is not None
        silent = await RawLink.to(relay.listener.port)
        assert await silent.is_closed()
        await silent.close()
        slow = await RawLink.to(relay.listener.port)
        trickle = asyncio.ensure_future(slow.trickle())
        assert await slow.is_closed()
        trickle.cancel()
        await slow.close()
        early = await RawLink.to(relay.listener.port)
        for code in sorted(FORWARDS):
            early.write(encode(packets.command(code, {"from": "1", "to": "2"})))
            assert (await early.read()).code == RelayAnswer.NOT_REGISTERED
        early.write(encode(Command(10)))
        assert (await early.read()).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        early.write(encode(packets.hello(1)))
        assert (await early.read()).code == ResponseCode.SUCCESS
        early.write(encode(packets.hello(2)))
        while (answer := await early.read()).code == RelayCode.REGISTER:
            pass
        assert answer.code == ResponseCode.INVALID_PARAMETER
        await early.close()


@looped
async def test_the_shared_secret_is_proved_by_both_sides(tmp_path: Path) -> None:
    async with fleet(tmp_path, FLEET, secret=SECRET) as (made, relay):
        assert await made.nodes[1].request(3, ECHO, b"x") == b"3:x"
        wrong = Node(8, 3, secret="another secret", options=OPTIONS)
        none = Node(7, 3, options=OPTIONS)
        for node in (wrong, none):
            await made.stack.enter_async_context(node)
        made.publish(made.entry(wrong), made.entry(none))
        for number in (7, 8):
            await until(
                lambda n=number: (  # type: ignore[misc]
                    (row := relay.view.server(n)) is not None
                    and row.failure == "it does not know the shared secret"
                )
            )
        assert not wrong.is_ready
        await made.whole()


@looped
async def test_a_relay_without_the_secret_gets_no_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path) as made:
        node = await made.node(1, 3, secret=SECRET)
        made.publish()
        await made.relay()
        await until(lambda: "does not know the shared secret" in caplog.text)
        assert not node.is_ready
        # Nor does one that only repeats what it hears.
        link = await RawLink.to(node.port)
        said = packets.Register(relay="r", instance="i", server_id=1, server_type=3, nonce="n")
        link.write(encode(packets.register(said)))
        answer = packets.read_registered(await link.read())
        link.write(encode(packets.server_map({}, answer.proof)))
        assert await link.is_closed()
        await link.close()
        with pytest.raises(Unreachable):
            await node.send(1, COUNT)


@looped
async def test_links_over_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki")
    async with world(tmp_path) as made:
        await made.node(1, 3, tls=pki.server())
        await made.node(2, 3, tls=pki.server())
        made.publish()
        relay = await made.relay(inbound=True, **pki.settings)
        assert relay.listener is not None
        await made.node(
            3,
            5,
            relay=f"127.0.0.1:{relay.listener.port}",
            tls=tls_to_servers(pki.ca, pki.cert, pki.key),
        )
        made.publish()
        await made.whole()
        big = random.Random(1).randbytes(900_000)
        assert await made.nodes[1].request(3, ECHO, big, timeout_s=30) == b"3:" + big
        assert await made.nodes[3].request(2, ECHO, b"x") == b"2:x"


@looped
async def test_a_certificate_of_another_authority_and_a_plain_server_are_refused(
    tmp_path: Path,
) -> None:
    pki, other = Pki(tmp_path / "pki"), Pki(tmp_path / "other")
    async with world(tmp_path) as made:
        await made.node(1, 3, tls=other.server())
        await made.node(2, 3)
        good = await made.node(3, 3, tls=pki.server())
        made.publish()
        relay = await made.relay(**pki.settings)
        await good.ready()
        for number in (1, 2):
            await until(
                lambda n=number: (  # type: ignore[misc]
                    (row := relay.view.server(n)) is not None and bool(row.failure)
                )
            )
            assert not made.nodes[number].is_ready
        row = relay.view.server(1)
        assert row is not None
        assert "certificate verify failed" in row.failure
