"""Popped messages are settled by the fast path as by the processors.

The same requests are sent to two brokers, one with an admission table and one without; receipt
handles are those that the broker gave. Answers, the log's bytes, queues, offsets and what the
exporter tells of answers have to be equal; only store times may differ.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
import shutil
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from differential_accounts import ACCOUNTS, signed
from differential_frames import unsigned
from differential_pop import Flight, drawn_pop, plain_ack, settles
from differential_world import Quiet, advance, connect, free_ports, logged, seen, stand_still
from pop_harness import pop_command, popped
from roquet.acl.files import AclConfig
from roquet.broker.app import Broker, build
from roquet.broker.config import BrokerConfig, IdentityConfig, ListenConfig, settled
from roquet.broker.network.fast_fail import FastFailConfig
from roquet.broker.pop.buffer.rules import BufferConfig
from roquet.broker.pop.revive_rules import ReviveConfig
from roquet.broker.timers.rules import TimerConfig
from roquet.broker.transactions.verdict import TransactionConfig
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.pop.handle import real_topic
from roquet.remoting.codec import decode, encode
from roquet.store.results import Draft
from roquet.store.settings import StoreConfig
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from differential_frames import Sign

ROUNDS = 40
REVIVE_MS = 60_000
IO_THREADS = int(os.environ.get("ROQUET_DIFFERENTIAL_THREADS", "0"))
"""Threads of the core that serve the connections of the broker with a fast path."""
TOPICS = ("Plain", "Other", "%RETRY%cg_Plain", "%RETRY%cg+Plain")
GROUPS = ("cg", "cg_tags")
SETTINGS = (
    "enablePopBufferMerge=true",
    "enablePopMessageThreshold=true",
    "timerCongestNumEachSlot=1000000",
    "appendAckAsync=true",
)
"""Settings with which something else than the record of an acknowledgement may decide."""
RESTORED = (
    "enablePopMessageThreshold=false",
    "timerCongestNumEachSlot=2147483647",
    "appendAckAsync=false",
)


@dataclasses.dataclass
class Outcome:
    """All that two runs are compared by."""

    answers: list[object]
    log: list[tuple[object, ...]]
    queues: object
    offsets: object
    answered: list[str]
    counters: dict[str, int]


def config(
    folder: Path, port: int, flush: str, accounts: AclConfig, *, fast: bool, merges: bool = False
) -> BrokerConfig:
    return settled(
        BrokerConfig(
            identity=IdentityConfig(name="broker-a", ip1="127.0.0.1"),
            server=ListenConfig(
                port=port,
                fast_path=fast,
                bind_address="127.0.0.1",
                metrics="PROM",
                metrics_port=port + 7,
                io_threads=IO_THREADS if fast else 0,
            ),
            fast_fail=FastFailConfig(enabled=False),
            store=StoreConfig(
                root=str(folder),
                commit_log_file_bytes=1 << 20,
                queue_file_bytes=20_000,
                index=False,
                flush="SYNC_FLUSH" if flush == "sync" else "ASYNC_FLUSH",
                sync_flush_timeout_ms=120_000,
            ),
            transactions=TransactionConfig(interval_ms=10**9),
            # When the wheel fires depends on the machine's clock.
            timers=TimerConfig(stop_dequeue=True, log_file_bytes=1 << 16),
            # When something is redelivered depends on the wheel.
            revive=ReviveConfig(interval_ms=REVIVE_MS),
            pop_buffer=BufferConfig(enabled=merges, stay_ms=3_000),
            acl=accounts,
        ),
        from_file=False,
    )


def send_command(topic: str, queue_id: int, tag: str) -> Command:
    """Return a message that can be popped."""
    ext = {
        "a": "pg",
        "b": topic,
        "c": "nothing",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": f"UNIQ_KEY\x01U\x02{f'TAGS{chr(1)}{tag}{chr(2)}' if tag else ''}",
    }
    return Command(310, ext, b"body")


class World:
    """One broker that is told what the other one was told."""

    def __init__(self, broker: Broker, clock: FakeClock, seed: int, sign: Sign) -> None:
        self.broker = broker
        self.rng = random.Random(seed)
        self.clock = clock
        self.merges = False
        self.answers: list[object] = []
        self._sign = sign
        self._opaque = 0
        self._quiet = Quiet(broker)

    async def open(self, own_port: int) -> None:
        self._reader, self._writer = await connect(self.broker.listeners.port, own_port)

    async def close(self) -> None:
        self._writer.transport.abort()

    async def burst(
        self, commands: Sequence[Command], *, surely: bool = False, held: Sequence[int] = ()
    ) -> list[Command]:
        """Send requests in one go, cut anywhere; return the answers of those that get one.

        Those of requests that wait already, the numbers `held`, are awaited as well.
        """
        numbered: list[Command] = []
        for command in commands:
            self._opaque += 1
            numbered.append(dataclasses.replace(command, opaque=self._opaque))
        wanted = {each.opaque for each in numbered if not each.flag & 2} | set(held)
        data = b"".join(encode(self._sign(each, surely)) for each in numbered)
        at = 0
        while at < len(data):
            size = self.rng.choice((1, 300, 5_000, 60_000))
            self._writer.write(data[at : at + size])
            at += size
            await asyncio.sleep(0)
        found: dict[int, Command] = {}
        got = b""
        async with asyncio.timeout(60):
            while found.keys() != wanted:
                got += await self._reader.read(1 << 18)
                some, used = decode(got)
                got = got[used:]
                found |= {each.opaque: each for each in some}
        await self._quiet.reached()
        ordered = [found[opaque] for opaque in sorted(found)]
        self.answers += [(each.opaque, seen(each)) for each in ordered]
        return ordered

    async def furnish(self) -> None:
        """Make topics and groups of every kind."""
        topics = self.broker.metadata.topics
        for name in TOPICS:
            topics.put(TopicConfig(name=name, read_queues=4, write_queues=4))
        topics.put(TopicConfig(name="WriteOnly", read_queues=4, write_queues=4, perm=2))
        for group in GROUPS:
            self.broker.metadata.groups.put(SubscriptionGroupConfig(name=group))
        await topics.persist()

    async def fill(self, count: int) -> None:
        """Send messages that can be popped."""
        sends = [
            send_command(self.rng.choice(TOPICS[:2]), number % 4, self.rng.choice(("", "a", "b")))
            for number in range(count)
        ]
        await self.burst(sends, surely=True)

    async def pops(self, oddness: float) -> list[Flight]:
        """Pop with several groups; some pops are odd or badly signed. Return what is in flight."""
        flights: list[Flight] = []
        for _ in range(self.rng.randrange(1, 5)):
            topic, group = self.rng.choice(TOPICS[:2]), self.rng.choice(GROUPS)
            pop = drawn_pop(self.rng, topic, group, self.clock.now_ms(), oddness)
            (answer,) = await self.burst([pop], surely=self.rng.random() < 0.7)
            if answer.code == 0:
                flights += self._taken(topic, group, answer)
        return flights

    async def wait(self) -> list[Flight]:
        """Have a pop wait for a message, send some of which one is for it; return what it got."""
        topic, group = self.rng.choice(TOPICS[:2]), self.rng.choice(GROUPS)
        exp = self.rng.choice(("*", "", "a"))
        flights: list[Flight] = []
        while True:
            given = {"consumerGroup": group, "bornTime": str(self.clock.now_ms()), "exp": exp}
            (answer,) = await self.burst([pop_command(topic, **given)], surely=True)
            if answer.code != 0:
                break
            flights += self._taken(topic, group, answer)
        self._opaque += 1
        waits = pop_command(topic, pollTime="15000", **given)
        waits = dataclasses.replace(waits, opaque=self._opaque)
        self._writer.write(encode(self._sign(waits, True)))
        # Read with the sends it would wait, or find the first of them there: a try less.
        await self._quiet.held(1)
        sends = [send_command(topic, 1, tag) for tag in ("b", "a")]
        answers: list[Command] = []
        for send, tag in zip(sends, "ba", strict=True):
            is_for_it = tag == ("a" if exp == "a" else "b")
            held = [waits.opaque] if is_for_it else []
            answers += await self.burst([send], surely=True, held=held)
        for answer in (each for each in answers if each.opaque == waits.opaque):
            assert answer.code == 0
            flights += self._taken(topic, group, answer)
        return flights

    @staticmethod
    def _taken(topic: str, group: str, answer: Command) -> list[Flight]:
        handles = popped(answer).handles
        return [Flight(real_topic(topic, group, it.retry_flag), group, it) for it in handles]

    async def redeliver(self, count: int) -> None:
        """Store messages where they lie that a group did not acknowledge, some of another group."""
        host = self.broker.identity.store_host
        for number in range(count):
            draft = Draft(
                topic=self.rng.choice(TOPICS[2:]),
                queue_id=number % 4,
                body=b"again",
                properties={"TAGS": "a", props.ORIGIN_GROUP: self.rng.choice(("cg", "cg", "c"))},
                born_timestamp=self.clock.now_ms(),
                born_host=host,
                store_host=host,
            )
            await self.broker.store.put(draft)
        await self._quiet.reached()

    async def change(self) -> None:
        """Do something that an administrator does."""
        kind = self.rng.randrange(6)
        topics = self.broker.metadata.topics
        if kind == 0:
            topics.put(TopicConfig(name="Plain", read_queues=2, write_queues=2))
        elif kind == 1:
            topics.remove("Other")
        elif kind == 2:
            topics.put(TopicConfig(name="Plain", read_queues=4, write_queues=4, perm=2))
        elif kind == 3:
            setting = self.rng.choice(SETTINGS)
            await self._set(setting)
        elif kind == 4:
            self.broker.state.is_slave = True
        elif kind == 5:
            self.broker.state.lacks_slave = True
        await topics.persist()

    async def _set(self, *settings: str) -> None:
        body = "".join(f"{each}\n" for each in settings).encode()
        answers = await self.burst([Command(RequestCode.UPDATE_BROKER_CONFIG, {}, body)])
        assert [each.code for each in answers] == [0], answers

    async def restore(self) -> None:
        """Take back what was changed."""
        self.broker.state.is_slave = False
        self.broker.state.lacks_slave = False
        await self.furnish()
        merges = str(self.merges).lower()
        await self._set(f"enablePopBufferMerge={merges}", *RESTORED)
        # Checkpoints in memory are stored now, and what looks at the rules now and then has looked.
        await advance(self.broker, self.clock, 2)
        await self._quiet.reached()


async def tell(world: World, *, administered: bool) -> None:
    rng = world.rng
    await world.furnish()
    await world.fill(400)
    left: list[Flight] = []
    for number in range(ROUNDS):
        await advance(world.broker, world.clock, rng.choice((0, 0.001, 0.25)))
        await world.fill(rng.randrange(40))
        oddness = (0.0, 0.05, 0.3)[number % 3]
        left += await world.pops(oddness)
        if number % 8 == 3:
            left += await world.wait()
        if number % 8 == 7:
            await world.redeliver(rng.randrange(6))
        rng.shuffle(left)
        now, left = left[:80], left[80:][:200]
        requests = [each for flight in now for each in settles(rng, flight, oddness)]
        # What takes turns of the loop of its own is overtaken even among processors: alone, then.
        together = [each for each in requests if each.code == RequestCode.ACK_MESSAGE]
        alone = [[each] for each in requests if each.code != RequestCode.ACK_MESSAGE]
        for burst in (together, *alone):
            await world.burst(burst)
        if administered and number % 5 == 4:
            await world.change()
            await world.burst([plain_ack(flight) for flight in left[:20]])
            await world.restore()
    # What is due goes to the revive topic itself; no time passes any more.
    old = [flight.handle._replace(pop_time_ms=1_600_000_000_000) for flight in left[:20]]
    await world.burst([plain_ack(it, extraInfo=one.encode()) for it, one in zip(left, old)])  # noqa: B905


async def play(settings: BrokerConfig, seed: int, sign: Sign, *, administered: bool) -> Outcome:
    port, folder = settings.server.port, Path(settings.store.root)
    clock = FakeClock()
    broker = build(settings, clock, random.Random(7))
    async with broker.app:
        stand_still(broker, clock)
        world = World(broker, clock, seed, sign)
        world.merges = settings.pop_buffer.enabled
        await world.open(port + 3)
        await tell(world, administered=administered)
        await world.close()
        counters = broker.path.native.counters()
        queues = [
            (*where, broker.store.units(*where[:3], where[3] - where[2]))
            for where in sorted(broker.store.native.queues())
        ]
        await advance(broker, clock, 1)
        offsets = broker.metadata.offsets.export()
        text = await asyncio.to_thread(_scraped, settings.server.metrics_port)
    counted = "rocketmq_rpc_latency_milliseconds_count"
    answered = sorted(line for line in text.splitlines() if line.startswith(counted))
    assert answered, "the exporter tells of answers"
    offset_rows = offsets.offsets, offsets.pull_offsets
    return Outcome(world.answers, logged(folder), queues, offset_rows, answered, counters)


def _scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def compared(
    folder: Path,
    seed: int,
    flush: str,
    *,
    accounts: AclConfig | None = None,
    sign: Sign = unsigned,
    administered: bool = True,
    merges: bool = False,
) -> Outcome:
    """Tell both brokers the same: all has to be equal. Return what came of the fast one."""
    port = free_ports()
    outcomes: list[Outcome] = []
    for fast in (False, True):
        store = folder / str(fast)
        rules = accounts or AclConfig()
        settings = config(store, port, flush, rules, fast=fast, merges=merges)
        outcomes.append(asyncio.run(play(settings, seed, sign, administered=administered)))
        shutil.rmtree(store)
    slow, quick = outcomes
    for one, other in zip(slow.answers, quick.answers, strict=True):
        assert one == other, f"{one}\n{other}"
    for one, other in zip(slow.log, quick.log, strict=False):
        assert _timeless(one) == _timeless(other)
    assert len(slow.log) == len(quick.log)
    assert slow.queues == quick.queues
    assert slow.offsets == quick.offsets
    assert slow.answered == quick.answered
    # With an empty table nothing of the fast path runs.
    assert not any(count for name, count in slow.counters.items() if name != "passed")
    return quick


def _timeless(record: tuple[object, ...]) -> tuple[object, ...]:
    """Return a record without its born time where threads go by the machine's clock."""
    return record[:8] + record[9:] if IO_THREADS else record


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "flush"), [(1, "async"), (2, "async"), (3, "sync")])
def test_acks_are_answered_and_stored_as_by_the_processors(
    tmp_path: Path, seed: int, flush: str
) -> None:
    quick = compared(tmp_path, seed, flush)
    assert quick.counters["acks"] > 250
    # Those whose flush has to be waited for wait in the core.
    assert (quick.counters["parked"] > 100) == (flush == "sync")
    # Checkpoints whose flush has to be waited for are for the processors.
    assert (quick.counters["pops"] > 20) == (flush == "async")


@pytest.mark.timeout(600)
def test_signed_acks_are_answered_as_the_guard_says(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    rules = AclConfig(enabled=True, file=str(file))
    quick = compared(tmp_path, 4, "async", accounts=rules, sign=signed, administered=False)
    assert quick.counters["acks"] > 200
    assert quick.counters["pops"] > 20


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [5, 6])
def test_acks_meet_their_checkpoints_in_memory_as_by_the_processors(
    tmp_path: Path, seed: int
) -> None:
    quick = compared(tmp_path, seed, "async", merges=True)
    assert quick.counters["acks"] > 250
    assert quick.counters["pops"] > 20
