"""Files of the timers and of ordered pops, damaged while timers wait and pops are in flight."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, records
from pop_harness import TOPIC, ack_command, now_ms, pop
from roquet.protocol.bodies.timers import TimerMetricsBody
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from roquet.testing.cluster import Cluster

    Damage = Callable[[Path], None]

SETTINGS = {
    "timerPrecisionMs": "100",
    "timerFlushIntervalMs": "100",
    # 77 units a file.
    "mappedFileSizeTimerLog": "4096",
    "reviveInterval": "200",
}
WAIT_MS = 12_000
LATE_MS = 30_000
LATER = "later"
IN_ORDER = "in_order"
ORDERED = {"order": "true", "queueId": "0"}
UNIT = 52
TIMERS = [b"timer%d" % number for number in range(90)]
"""More than a file of the log has units."""
POPPED = [b"popped%d" % number for number in range(6)]
SEQUENCE = [b"a", b"b", b"c"]
CHECKPOINT = "config/timercheck"
LONG = 1 << 43
"""Bytes, more than any memory: nothing reads such a file whole."""
FIRST, SECOND = (f"timerlog/{base:020d}" for base in (0, 4096))


async def in_flight(it: Cluster) -> int:
    """Have timers waiting, and pops that nobody has settled; return when all of it is due."""
    for topic in (LATER, TOPIC, IN_ORDER):
        assert (await it.send(topic, b"first")).code == 0
    await dispatched(it)
    (handle,) = (await pop(it)).handles
    assert (await it.call(ack_command(handle))).code == 0
    (handle,) = (await pop(it, IN_ORDER, **ORDERED)).handles
    assert (await it.call(ack_command(handle, IN_ORDER))).code == 0
    for topic, bodies in ((TOPIC, POPPED), (IN_ORDER, SEQUENCE)):
        for body in bodies:
            await it.send(topic, body)
    await dispatched(it)
    due_ms = now_ms() + WAIT_MS
    for number, body in enumerate(TIMERS):
        text = f"TIMER_DELIVER_MS\x01{due_ms + number}\x02UNIQ_KEY\x01{number}\x02"
        assert (await it.send(LATER, body, properties=text)).code == 0
    taken = await pop(it, invisibleTime=str(WAIT_MS))
    assert taken.bodies == POPPED
    assert (await pop(it, IN_ORDER, **ORDERED, invisibleTime=str(WAIT_MS))).bodies == SEQUENCE
    for handle in taken.handles[:2]:
        assert (await it.call(ack_command(handle))).code == 0
    async with asyncio.timeout(30):
        while await waiting(it) < len(TIMERS):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    # The files have it all: the log is flushed ten times a second.
    await asyncio.sleep(0.3)
    assert now_ms() < due_ms
    return due_ms


async def waiting(it: Cluster) -> int:
    """Return how many timers the wheel has."""
    answer = await it.call(Command(RequestCode.GET_TIMER_METRICS, ext={}))
    rows = TimerMetricsBody.decode(answer.body).topics
    return sum(row.waiting for row in rows if row.topic == LATER)


def copy(source: Path, target: Path) -> None:
    """Copy a store: of a broker that runs, it is what kill -9 leaves."""
    target.mkdir(parents=True)
    # The wheel is a file of 38 MB, nearly all of it holes.
    subprocess.run(["cp", "-a", "--sparse=always", f"{source}/.", target], check=True)


def cut(name: str, size: int) -> Damage:
    """Return what leaves a file so many bytes, with zeros where it had fewer."""

    def hurt(store: Path) -> None:
        with (store / name).open("r+b") as file:
            file.truncate(size)

    return hurt


def flip(name: str, at: int) -> Damage:
    """Return what changes a bit."""

    def hurt(store: Path) -> None:
        with (store / name).open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 4]))

    return hurt


def slot(store: Path) -> None:
    """Change where the first slot in use leads."""
    path = store / "timerwheel"
    data = path.read_bytes()
    at = next(at for at, byte in enumerate(data) if byte)
    flip("timerwheel", at // 32 * 32 + 15)(store)


def zero(name: str, at: int, size: int) -> Damage:
    """Return what writes zeros over a part of a file."""

    def hurt(store: Path) -> None:
        with (store / name).open("r+b") as file:
            file.seek(at)
            file.write(bytes(size))

    return hurt


def lose(*names: str) -> Damage:
    """Return what removes files."""

    def hurt(store: Path) -> None:
        for name in names:
            (store / name).unlink()

    return hurt


def both(*damages: Damage) -> Damage:
    """Return what does one damage after the other."""

    def hurt(store: Path) -> None:
        for damage in damages:
            damage(store)

    return hurt


def tear_orders(store: Path) -> None:
    """Leave the beginning of a file of batches."""
    (store / "config/consumerOrderInfo.json").write_bytes(b'{"table":{"in_order@poppers":{"0":{"o"')


DAMAGES: dict[str, Damage] = {
    "wheel: slot": slot,
    "wheel: cut": cut("timerwheel", 1_000_000),
    "wheel: gone": lose("timerwheel"),
    "wheel: long": cut("timerwheel", LONG),
    "log: previous unit": flip(FIRST, 20 * UNIT + 11),
    "log: time": flip(FIRST, 21 * UNIT + 23),
    "log: place of the message": flip(FIRST, 22 * UNIT + 34),
    "log: size of the message": flip(SECOND, 3 * UNIT + 39),
    "log: zeros": zero(FIRST, 30 * UNIT, 5 * UNIT),
    "log: cut": cut(SECOND, 5 * UNIT + 17),
    "log: long": cut(SECOND, LONG),
    "log: first file gone": lose(FIRST),
    "log: last file gone": lose(SECOND),
    "checkpoint: torn": both(zero(CHECKPOINT, 20, 36), zero(CHECKPOINT, 2048, 2048)),
    "checkpoint: cut": cut(CHECKPOINT, 30),
    "checkpoint: gone": lose(CHECKPOINT),
    "checkpoint: long": cut(CHECKPOINT, LONG),
    "checkpoint of the store: long": cut("checkpoint", LONG),
    "all gone": lose("timerwheel", FIRST, SECOND, CHECKPOINT),
    "orders: torn": tear_orders,
}


async def judge(it: Cluster, due_ms: int) -> str:
    """Return what is wrong: each timer and each unacknowledged message comes once, none early."""
    ordered = (await pop(it, IN_ORDER, **ORDERED)).bodies
    again: list[bytes] = []
    timers: list[bytes] = []
    wrong = "" if ordered in ([], SEQUENCE) else f" in order: {ordered}"
    end_ms = max(now_ms(), due_ms) + LATE_MS
    quiet = 0
    while quiet < 5 and now_ms() < end_ms:
        got = await pop(it)
        if got.bodies and now_ms() < due_ms:
            wrong += f" came early: {got.bodies}"
        again += got.bodies
        for handle, record in zip(got.handles, got.records, strict=True):
            assert (await it.call(ack_command(handle, record.topic))).code == 0
        found = records(await it.pull(LATER, 1 + len(timers)))
        for record in found:
            if record.store_timestamp < due_ms + int(record.body.removeprefix(b"timer")):
                wrong += f" fired early: {record.body!r}"
        timers += [record.body for record in found]
        is_whole = len(again) >= len(POPPED) - 2 and len(timers) >= len(TIMERS)
        quiet = 0 if got.bodies or found or not is_whole else quiet + 1
        await asyncio.sleep(0.1)
    if sorted(again) != POPPED[2:]:
        wrong += f" came again: {again}"
    if sorted(timers) != sorted(TIMERS):
        missing = sorted(set(TIMERS) - set(timers))
        wrong += f" {len(timers)} timers fired, not {missing}"
    return wrong


@pytest.mark.parametrize("is_killed", [True, False])
def test_damage_to_files_of_timers_costs_no_timer_and_no_popped_message(
    tmp_path: Path, is_killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    starting = asyncio.Semaphore(1)

    async def told(name: str, due_ms: int) -> tuple[str, str]:
        folder = tmp_path / name
        copy(tmp_path / "base", folder / "broker-a")
        DAMAGES[name](folder / "broker-a")
        async with contextlib.AsyncExitStack() as stack:
            async with starting:
                before = len(caplog.messages)
                it = await stack.enter_async_context(cluster(folder, **SETTINGS))
                said = " ".join(caplog.messages[before:])
            return said, await judge(it, due_ms)

    async def run() -> None:
        async with cluster(tmp_path, **SETTINGS) as it:
            due_ms = await in_flight(it)
            if is_killed:
                await it.broker.metadata.offsets.persist()
                copy(tmp_path / "broker-a", tmp_path / "base")
        if not is_killed:
            copy(tmp_path / "broker-a", tmp_path / "base")
        told_of = await asyncio.gather(*(told(name, due_ms) for name in DAMAGES))
        found = dict(zip(DAMAGES, told_of, strict=True))
        assert {name: wrong for name, (_, wrong) in found.items() if wrong} == {}
        for name, (said, _) in found.items():
            is_torn = name == "orders: torn"
            assert ("without the batches in flight" in said) == is_torn, f"{name}: {said}"

    asyncio.run(run())
