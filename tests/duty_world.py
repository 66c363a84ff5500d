"""A pair that changes its roles again and again under load, and what must hold then.

Both brokers are in the test's own process, so that nothing they leave behind can hide. Producers
send plain, delayed and timer messages to whoever leads; what was acknowledged is written down with
its place. In the end both logs are equal, every acknowledged message is at its place, every delayed
one was delivered, and threads, descriptors and memory are what they were after a few changes.
"""

from __future__ import annotations

import array
import asyncio
import dataclasses
import gc
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from descriptors import opened
from pair_harness import PairWorld, caught_up, until
from roquet.base.errors import RoquetError
from roquet.broker.replication.duties import Role
from roquet.protocol.codes import ResponseCode
from roquet.store.records import read_records
from roquet.testing.cluster import send_command

if TYPE_CHECKING:
    from roquet.broker.app import Broker

LEADS, FOLLOWS = Role("ASYNC_MASTER", 0), Role("SLAVE", 1)
TOPIC, LATER = "Duties", "DutiesLater"
SETTINGS = {"messageDelayLevel": "1s 2s", "timerPrecisionMs": "100"}
POOLED = 8
"""Threads that pools may have made meanwhile, for both brokers."""
SPARE = 1.05
"""How much more memory may be in use after 1,000 changes under load."""


@dataclasses.dataclass(frozen=True, slots=True)
class Left:
    """What a process has at a moment."""

    threads: int
    native_threads: int
    descriptors: int
    """Sockets, event descriptors, pipes; how many files a store has open depends on its content."""
    tasks: int
    anonymous_kib: int


def left() -> Left:
    """Count what this process has now, with the garbage gone."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    rows = dict(line.split(":", 1) for line in status.splitlines())
    return Left(
        threading.active_count(),
        int(rows["Threads"]),
        sum(opened().values()),
        len(asyncio.all_tasks()),
        int(rows["RssAnon"].split()[0]),
    )


@dataclasses.dataclass
class Load:
    """Sends to whoever leads, and keeps what was acknowledged."""

    world: PairWorld
    leader: Broker
    rng: random.Random
    pause_s: float = 0.004
    acked: tuple[array.array[int], array.array[int]] = dataclasses.field(
        default_factory=lambda: (array.array("q"), array.array("q"))
    )
    """Of each queue the numbers of the messages by offset, 0 for none: memory is measured here."""
    later: array.array[int] = dataclasses.field(default_factory=lambda: array.array("q"))
    sent: int = 0
    refused: int = 0
    unknown: int = 0
    stopping: bool = False

    @property
    def count(self) -> int:
        """How many plain messages were acknowledged."""
        return sum(sum(map(bool, numbers)) for numbers in self.acked)

    async def run(self) -> None:
        """Send until told to stop."""
        while not self.stopping:
            self.sent += 1
            kind = self.rng.randrange(10)
            if kind == 0:
                await self._send_later(self.sent, "DELAY\x011\x02")
            elif kind == 1:
                await self._send_later(self.sent, "TIMER_DELAY_MS\x01300\x02")
            else:
                await self._send(self.sent, self.rng.randrange(2))
            await asyncio.sleep(self.pause_s)

    async def _send(self, number: int, queue_id: int) -> None:
        ext = await self._answer(send_command(TOPIC, b"%d:" % number, queue_id))
        if ext is not None:
            numbers, offset = self.acked[int(ext["queueId"])], int(ext["queueOffset"])
            numbers.extend([0] * (offset + 1 - len(numbers)))
            assert not numbers[offset], f"{ext} was given to two messages"
            numbers[offset] = number

    async def _send_later(self, number: int, properties: str) -> None:
        if await self._answer(send_command(LATER, b"%d:" % number, 0, properties)) is not None:
            self.later.append(number)

    async def _answer(self, command: object) -> dict[str, str] | None:
        try:
            call = self.world.client.call(self.leader.identity.address, command, 10.0)  # type: ignore[arg-type]
            answer = await call
        except RoquetError:
            self.unknown += 1
            return None
        if answer.code == ResponseCode.SUCCESS:
            return answer.ext
        self.refused += 1
        return None


async def change_places(leader: Broker, follower: Broker) -> list[str]:
    """Let the two change roles; return what was not as it should be."""
    down = await leader.duties.become(FOLLOWS)
    up = await follower.duties.become(LEADS)
    return [*down.notes, *up.notes]


async def follows(leader: Broker, follower: Broker) -> None:
    """Wait until the follower copies."""
    await until(
        lambda: leader.pair.master.slaves and follower.state.has_master, "the slave follows"
    )


async def change_often(world: PairWorld, changes: int, seed: int, *, warm: int) -> Load:
    """Change roles so often under load; all that has to hold is asserted.

    What the process has is compared with what it had after `warm` changes.
    """
    quick = {**SETTINGS, "mappedFileSizeCommitLog": str(1 << 20)}
    async with world.master(**quick) as one, world.slave(None, "slave", **quick) as two:
        await follows(one, two)
        load = Load(world, one, random.Random(seed))
        running = [asyncio.create_task(load.run()) for _ in range(3)]
        pair, before = [one, two], None
        for change in range(0, changes, 2):
            if change == warm:
                before = left()
            notes = await change_places(*pair)
            assert not notes, notes
            pair.reverse()
            load.leader = pair[0]
            await asyncio.sleep(0.02)
            await follows(*pair)
        after = left()
        load.stopping = True
        await asyncio.gather(*running)
        await _delivered(load)
        await caught_up(*pair)
        await check_messages(load, pair)
        assert one.duties.changes == two.duties.changes == changes // 2
        if before is not None:
            check_left(before, after)
    return load


def check_left(before: Left, after: Left) -> None:
    """Compare what the process had early and late. Threads of pools come and go by themselves."""
    print(before, after)  # noqa: T201  (shown with -s, and when it fails)
    assert after.native_threads <= before.native_threads + POOLED
    # Connections that a change has just closed or made.
    assert abs(after.descriptors - before.descriptors) <= 2
    assert abs(after.tasks - before.tasks) <= 2
    assert after.anonymous_kib <= before.anonymous_kib * SPARE


async def _delivered(load: Load) -> None:
    known: set[int] = set()
    for _ in range(600):
        known = {_number(body) for body in await _bodies(load.leader, LATER, 0)}
        if known.issuperset(load.later):
            return
        await asyncio.sleep(0.05)
    missing = sorted(set(load.later) - known)
    raise AssertionError(f"{len(missing)} of {len(load.later)} not delivered: {missing[:9]}")


async def check_messages(load: Load, pair: list[Broker]) -> None:
    """Every acknowledged message is where its answer said, on both sides."""
    for broker in pair:
        for queue_id in (0, 1):
            found = await _bodies(broker, TOPIC, queue_id)
            for offset, number in enumerate(load.acked[queue_id]):
                assert not number or _number(found[offset]) == number, (queue_id, offset)
    ends = [broker.store.end_offset() for broker in pair]
    assert ends[0] == ends[1]


def _number(body: bytes) -> int:
    return int(body.partition(b":")[0])


async def _bodies(broker: Broker, topic: str, queue_id: int) -> list[bytes]:
    """Read a queue from its store: a slave serves no pulls."""
    found: list[bytes] = []
    end = broker.store.max_offset(topic, queue_id)
    while len(found) < end:
        units = broker.store.units(topic, queue_id, len(found), 256)
        for physical, size, _ in units:
            data = broker.store.read(physical, size)
            assert data is not None
            found.append(read_records(data)[0].body)
        await asyncio.sleep(0)
    return found
