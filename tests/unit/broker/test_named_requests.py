"""Requests that did harm to brokers before, by the number of the report."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play, records
from roquet.protocol.bodies.clients import HeartbeatData
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.messages.batch import encode as encode_batch
from roquet.remoting.codec import encode
from roquet.testing.cluster import pull_command, send_command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

MUTATED = int(os.environ.get("MUTATED", "2000"))
"""Frames of one run; the fuzzers look at millions."""
SEED = int(os.environ.get("MUTATED_SEED", "22"))


def valid_frames() -> list[bytes]:
    """Return frames of every shape that a client sends, none of which takes anything away."""
    plain = "UNIQ_KEY\x01u\x02TAGS\x01a\x02"
    batch = encode_batch([(0, b"one", b"k\x01v\x02"), (1, b"two", b"")])
    beat = HeartbeatData(client_id="c@1", producers=("pg",)).encode()
    where = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}
    commands = [
        send_command("orders", b"body", 0, plain),
        Command(RequestCode.SEND_BATCH_MESSAGE, send_command("orders", b"", 0, plain).ext, batch),
        pull_command("orders"),
        pull_command("orders", sysFlag="2", suspendTimeoutMillis="50"),
        Command(RequestCode.HEART_BEAT, {}, beat),
        Command(RequestCode.QUERY_CONSUMER_OFFSET, where),
        Command(RequestCode.GET_MAX_OFFSET, where),
        Command(RequestCode.QUERY_MESSAGE, {"topic": "orders", "key": "u", "maxNum": "3"}),
        Command(RequestCode.GET_BROKER_RUNTIME_INFO),
    ]
    return [
        encode(dataclasses.replace(command, encoding=kind))
        for command in commands
        for kind in (0, 1)
    ]


def mutated(frame: bytes, rng: random.Random) -> bytes:
    """Change, cut or double a few bytes."""
    data = bytearray(frame)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del data[at : at + rng.randrange(1, 9)]
        else:
            data[at:at] = data[at : at + rng.randrange(1, 9)]
        if not data:
            break
    return bytes(data)


async def thrown(port: int, frames: list[bytes]) -> None:
    """Write frames to one connection until it is closed or all are written."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(OSError):
        for frame in frames:
            writer.write(frame)
            await writer.drain()
        writer.write_eof()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(5):
            while await reader.read(1 << 16):
                pass
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@pytest.mark.timeout(max(240, MUTATED // 100))
def test_b22_a_broker_serves_on_under_broken_frames(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    shapes = valid_frames()

    async def tell(it: Cluster) -> None:
        assert (await it.send("canary", b"before", properties="UNIQ_KEY\x01c1\x02")).code == 0
        port = it.broker.listeners.port
        for number in range(MUTATED // 20):
            frames = [mutated(rng.choice(shapes), rng) for _ in range(19)]
            await thrown(port, [*frames[:10], rng.choice(shapes), *frames[10:]])
            if number % 500 == 0:
                assert (await it.send("other_canary", b"during")).code == 0
        assert (await it.send("canary", b"after", properties="UNIQ_KEY\x01c2\x02")).code == 0
        await dispatched(it)
        came = records(await it.pull("canary"))
        assert [record.body for record in came] == [b"before", b"after"]
        # Whatever was stored meanwhile reads back whole.
        assert not it.broker.store.dispatch_behind()

    play(tmp_path, tell)


def test_1825_an_offset_beyond_the_end_or_below_zero_does_not_begin_a_queue_anew(
    tmp_path: Path,
) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(5):
            assert (await it.send("orders", b"m%d" % number)).code == 0
        await dispatched(it)
        for asked, then in ((6, "5"), (2**62, "5")):
            answer = await it.pull("orders", asked)
            # Told where to go on, and given nothing that was read before.
            assert (answer.code, (answer.ext or {})["nextBeginOffset"]) == (21, then), asked
            assert answer.body == b""
        where = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}
        commit = Command(RequestCode.UPDATE_CONSUMER_OFFSET, {**where, "commitOffset": "3"})
        assert (await it.call(commit)).code == 0
        await it.pull("orders", -1, sysFlag="5", commitOffset="-1")
        kept = await it.call(Command(RequestCode.QUERY_CONSUMER_OFFSET, where))
        assert (kept.ext or {})["offset"] == "3"

    play(tmp_path, tell)
