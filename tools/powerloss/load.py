"""The work before a power cut, and the judgement of what came back after it."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import time
import zlib
from collections import defaultdict
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import OutcomeUnknown, RoquetError, Unreachable
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.messages import message_id
from roquet.remoting.client import Client
from roquet.store.records import read_records
from roquet.testing import history
from roquet.testing.cluster import pull_command, running_broker, send_command
from roquet.testing.history import Acked, Failed, Found, ReadBack, Sent, Unknown

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from roquet.store.records import Record
    from roquet.testing.history_rules import Event
    from roquet.testing.process import BrokerProcess, Caller

QUEUES = 4
PRODUCERS = 4
TOPIC = "Cut"
GROUP = "readers"
ENOUGH = 20
WAIT_S = 60.0
CALL_S = 20.0
SETTINGS = {
    # So often that cuts fall into the writing of a table.
    "flushConsumerOffsetInterval": "50",
    "flushDelayOffsetInterval": "100",
}
Queue = tuple[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Acknowledged:
    """One SEND_OK: where the message lies, and how long before the cut it was heard."""

    message: str
    topic: str
    queue: int
    offset: int
    physical: int
    age_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Ledger:
    """What the clients knew at the cut."""

    history: tuple[Event, ...]
    acknowledged: tuple[Acknowledged, ...]


@dataclasses.dataclass(slots=True)
class Judgement:
    """What is wrong with a state, and what an asynchronous flush had leave to lose."""

    problems: list[str] = dataclasses.field(default_factory=list[str])
    lost: int = 0
    oldest_lost_s: float = 0.0


class Load:
    """Four producers, some with topics that are new, and a group that commits."""

    def __init__(self, caller: Caller, rng: random.Random) -> None:
        """Begin with an empty history."""
        self._caller = caller
        self._rng = rng
        self._history: list[Event] = []
        self._acknowledged: list[tuple[Acknowledged, float]] = []
        self._tasks: list[asyncio.Future[None]] = []
        self._names = 0
        self._stopped_at = 0.0

    def start(self) -> None:
        """Begin to work."""
        work = [self._produce() for _ in range(PRODUCERS)] + [self._commit()]
        self._tasks = [asyncio.ensure_future(one) for one in work]

    async def some_acknowledged(self) -> None:
        """Wait until the work has begun. Raises RoquetError when it does not."""
        end = time.monotonic() + WAIT_S
        while len(self._acknowledged) < ENOUGH:
            for task in self._tasks:
                if task.done():
                    task.result()
            if time.monotonic() > end:
                raise RoquetError(f"only {len(self._acknowledged)} messages in {WAIT_S:.0f} s")
            await asyncio.sleep(0.005)

    async def cancel(self) -> None:
        """End the work; what has no answer by now is unknown."""
        self._stopped_at = time.monotonic()
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    def ledger(self) -> Ledger:
        """Return what is known."""
        known = tuple(
            dataclasses.replace(ack, age_s=self._stopped_at - at) for ack, at in self._acknowledged
        )
        return Ledger(tuple(self._history), known)

    async def after_the_cut(self, process: BrokerProcess) -> str:
        """Let the process go on without its disk; return how that ended.

        Raises RoquetError when it still acknowledges what it cannot keep.
        """
        assert process.process is not None
        process.process.send_signal(signal.SIGCONT)
        codes: set[int] = set()
        for number in range(20):
            try:
                answer = await self._caller.send(TOPIC, b"after the cut", number % QUEUES)
            except (Unreachable, OutcomeUnknown):
                code = await asyncio.to_thread(process.process.wait, WAIT_S)
                if code == 0:
                    raise RoquetError("the broker ended with 0 on a dead disk") from None
                return f"ended with {code}"
            codes.add(answer.code)
        if ResponseCode.SUCCESS in codes:
            raise RoquetError(f"SEND_OK on a dead disk: {sorted(codes)}")
        return f"refused with {sorted(codes)}"

    async def _produce(self) -> None:
        while True:
            self._names += 1
            name = f"m{self._names}"
            topic = f"New{self._names % 50}" if self._rng.random() < 0.02 else TOPIC
            queue = self._rng.randrange(QUEUES)
            body = self._rng.randbytes(int(100 * 2 ** self._rng.triangular(0, 7, 0)))
            self._history.append(Sent(name, topic, zlib.crc32(body)))
            try:
                answer = await self._caller.send(topic, body, queue, f"UNIQ_KEY\x01{name}\x02")
            except (Unreachable, OutcomeUnknown, asyncio.CancelledError):
                self._history.append(Unknown(name))
                raise
            ext = answer.ext or {}
            if answer.code != ResponseCode.SUCCESS:
                indefinite = answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
                self._history.append(Unknown(name) if indefinite else Failed(name))
                continue
            _, physical = message_id.parse_offset_id(ext["msgId"])
            offset = int(ext["queueOffset"])
            self._history.append(Acked(name, topic, queue, offset))
            ack = Acknowledged(name, topic, queue, offset, physical, 0.0)
            self._acknowledged.append((ack, time.monotonic()))

    async def _commit(self) -> None:
        """Keep the table of offsets moving: it is replaced as a whole, again and again."""
        number = 0
        while True:
            number += 1
            ext = {
                "consumerGroup": GROUP,
                "topic": TOPIC,
                "queueId": str(number % QUEUES),
                "commitOffset": "0",
            }
            await self._caller.call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext))
            await asyncio.sleep(0.02)


async def judge(folder: Path, ledger: Ledger, *, sync: bool, window_s: float) -> Judgement:
    """Start the broker on a folder, read everything, write one message, and judge."""
    judgement = Judgement()
    queues = {(ack.topic, ack.queue) for ack in ledger.acknowledged}
    client = Client(clock=SystemClock())
    await client.start()
    try:
        async with running_broker(folder, changes=SETTINGS) as broker:
            at = broker.identity.address
            found = {queue: await _read(client, at, *queue) for queue in sorted(queues)}
            answer = await client.call(at, send_command(TOPIC, b"and on"), CALL_S)
            ended = max((it.queue_offset + 1 for it in found.get((TOPIC, 0), [])), default=0)
            next_offset = (answer.ext or {}).get("queueOffset")
            if answer.code != ResponseCode.SUCCESS or next_offset != str(ended):
                text = f"{answer.code} {answer.remark} at {next_offset}, expected {ended}"
                judgement.problems.append(f"the first message afterwards: {text}")
    except (RoquetError, OSError) as error:
        judgement.problems.append(f"the broker did not start: {error!r}")
        return judgement
    finally:
        await client.stop()
    lost = set() if sync else _lost_suffix(ledger, found, window_s, judgement)
    events = [
        Unknown(event.message) if isinstance(event, Acked) and event.message in lost else event
        for event in ledger.history
    ]
    events.append(ReadBack(complete=True))
    events += [_found(topic, queue, it) for (topic, queue), all_ in found.items() for it in all_]
    verdict = history.check(events)
    judgement.problems += [f"{it.rule}: {it.text}" for it in verdict.violations[:5]]
    return judgement


def _lost_suffix(
    ledger: Ledger, found: dict[Queue, list[Record]], window_s: float, judgement: Judgement
) -> set[str]:
    """Return the acknowledged messages that are gone, if they are the end of the log and young."""
    there: defaultdict[Queue, set[int]] = defaultdict(set)
    end = -1
    for queue, records in found.items():
        there[queue] = {record.queue_offset for record in records}
        end = max([end, *(record.physical_offset for record in records)])
    lost = [it for it in ledger.acknowledged if it.offset not in there[it.topic, it.queue]]
    judgement.lost = len(lost)
    judgement.oldest_lost_s = max((it.age_s for it in lost), default=0.0)
    judgement.problems += [
        f"{it.message} at {it.physical} is lost, and the log goes on to {end}"
        for it in lost
        if it.physical < end
    ][:3]
    if judgement.oldest_lost_s > window_s:
        text = f"lost what was acknowledged {judgement.oldest_lost_s:.2f} s before the cut"
        judgement.problems.append(text)
    return {it.message for it in lost}


def _found(topic: str, queue: int, record: Record) -> Found:
    name = props.read(record.properties).get("UNIQ_KEY", "a message without a name")
    return Found(topic, queue, record.queue_offset, name, zlib.crc32(record.body))


async def _read(client: Client, address: str, topic: str, queue: int) -> list[Record]:
    """Read one queue to its end."""
    records: list[Record] = []
    offset = 0
    while True:
        command = pull_command(topic, offset, queueId=str(queue))
        answer = await client.call(address, command, CALL_S)
        if answer.code == ResponseCode.PULL_OFFSET_MOVED and not records:
            offset = int((answer.ext or {})["nextBeginOffset"])
            if offset == 0:
                return records
        elif answer.code != ResponseCode.SUCCESS:
            return records
        else:
            records += read_records(answer.body)
            offset = records[-1].queue_offset + 1
