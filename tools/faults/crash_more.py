"""What the kill -9 program does beside plain messages: delays, transactions, deleted topics.

Each of them writes what it saw into the history of the run; `roquet.testing.history_rules` judges.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from typing import TYPE_CHECKING, Protocol

from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.store.records import Record, read_records
from roquet.testing.cluster import pull_command, send_command
from roquet.testing.history import Found, Sent
from roquet.testing.history_rules import Delayed, Delivered, Ended, Event, Prepared

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

LATER = "CrashLater"
HALVES = "CrashHalves"
LEVEL, DELAY_MS = 1, 1000
DOOMED_KEPT = 20
LATE_S = 30.0
COMMIT, ROLLBACK = 8, 12
HALF_FLAG = "4"

_NONE = {
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.PULL_OFFSET_MOVED,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
}


class Caller(Protocol):
    """Asks the broker."""

    async def __call__(self, command: Command) -> Command:
        """Return the answer. Raises Unreachable and OutcomeUnknown."""
        ...


class More:
    """Messages for later, transactions and doomed topics of one run."""

    def __init__(self, history: list[Event], problems: list[str], rng: random.Random) -> None:
        """Begin without any."""
        self._history = history
        self._problems = problems
        self._rng = rng
        self._number = 0
        self._gone: list[str] = []
        self._offsets: dict[tuple[str, int], int] = {}
        self._due: set[str] = set()

    # --- working -----------------------------------------------------------------------------

    async def delay(self, call: Caller) -> None:
        """Send messages for later, one after another, until cancelled."""
        while True:
            name, body = self._next("d")
            due_ms = now_ms() + DELAY_MS
            self._history += [Sent(name, LATER, zlib.crc32(body)), Delayed(name, due_ms)]
            properties = f"UNIQ_KEY\x01{name}\x02DELAY\x01{LEVEL}\x02"
            answer = await call(send_command(LATER, body, 0, properties))
            if answer.code == ResponseCode.SUCCESS:
                self._history.append(Delayed(name, due_ms, sure=True))
                self._due.add(name)
            await asyncio.sleep(self._rng.uniform(0.0, 0.05))

    async def transact(self, call: Caller) -> None:
        """Prepare messages and commit, roll back or leave them, until cancelled."""
        while True:
            name, body = self._next("t")
            self._history.append(Prepared(name, HALVES, zlib.crc32(body)))
            properties = f"UNIQ_KEY\x01{name}\x02TRAN_MSG\x01true\x02PGROUP\x01testers\x02"
            answer = await call(send_command(HALVES, body, 0, properties, f=HALF_FLAG))
            decision = self._rng.choice((COMMIT, COMMIT, ROLLBACK, None))
            if answer.code == ResponseCode.SUCCESS and decision is not None:
                await self._end(call, name, answer, decision)
            await asyncio.sleep(self._rng.uniform(0.0, 0.05))

    async def _end(self, call: Caller, name: str, answer: Command, decision: int) -> None:
        ext = answer.ext or {}
        commit = decision == COMMIT
        self._history.append(Ended(name, commit))
        command = Command(
            RequestCode.END_TRANSACTION,
            ext={
                "topic": HALVES,
                "producerGroup": "testers",
                "tranStateTableOffset": ext["queueOffset"],
                "commitLogOffset": str(int(ext["msgId"][-16:], 16)),
                "commitOrRollback": str(decision),
                "fromTransactionCheck": "false",
                "msgId": name,
                "transactionId": name,
            },
        )
        done = await call(command)
        if done.code == ResponseCode.SUCCESS:
            # Only the first event counts an attempt of a commit.
            self._history.append(Ended(name, commit, sure=True))
        else:
            self._problems.append(f"{name} was not ended: {done.code} {done.remark}")

    async def doom(self, call: Caller) -> None:
        """Make topics with messages and delete them, until cancelled."""
        while True:
            self._number += 1
            topic = f"Doomed{self._number}"
            for _ in range(self._rng.randrange(1, 6)):
                await call(send_command(topic, b"doomed", self._rng.randrange(4)))
            ext = {"topic": topic}
            answer = await call(Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext=ext))
            if answer.code == ResponseCode.SUCCESS:
                self._gone = [*self._gone, topic][-DOOMED_KEPT:]
            await asyncio.sleep(self._rng.uniform(0.0, 0.1))

    def _next(self, kind: str) -> tuple[str, bytes]:
        self._number += 1
        name = f"{kind}{self._number}"
        return name, name.encode() * self._rng.randrange(1, 50)

    # --- reading -----------------------------------------------------------------------------

    async def read(self, call: Caller, *, whole: bool) -> None:
        """Read what came of it; a `ReadBack` event has been written."""
        for topic in self._gone:
            for queue in range(4):
                found = await self._pull(call, topic, queue, 0)
                if found:
                    text = f"{topic} was deleted and has {len(found)} messages in queue {queue}"
                    self._problems.append(text)
        if whole:
            self._offsets.clear()
        for topic in (LATER, HALVES):
            for queue in range(4):
                await self._read_queue(call, topic, queue)

    async def settle(self, call: Caller) -> None:
        """Wait until every acknowledged message for later has come, for half a minute at most."""
        end = time.monotonic() + LATE_S
        while self._due and time.monotonic() < end:
            await asyncio.sleep(0.2)
            for queue in range(4):
                await self._read_queue(call, LATER, queue)
        # Those that have not come are lost: there is no use in waiting for them once more.
        self._due.clear()

    async def _read_queue(self, call: Caller, topic: str, queue: int) -> None:
        offset = self._offsets.get((topic, queue), 0)
        while found := await self._pull(call, topic, queue, offset):
            self._history += self._events(topic, queue, found)
            offset = found[-1].queue_offset + 1
        self._offsets[topic, queue] = offset

    def _events(self, topic: str, queue: int, found: list[Record]) -> Iterator[Event]:
        for record in found:
            name = props.read(record.properties).get("UNIQ_KEY", "a message without a name")
            yield Found(topic, queue, record.queue_offset, name, zlib.crc32(record.body))
            if topic == LATER:
                self._due.discard(name)
                yield Delivered(name, record.store_timestamp)

    async def _pull(self, call: Caller, topic: str, queue: int, offset: int) -> list[Record]:
        answer = await call(pull_command(topic, offset, queueId=str(queue)))
        if answer.code == ResponseCode.SUCCESS:
            return read_records(answer.body)
        if answer.code not in _NONE:
            self._problems.append(f"{topic} {queue} {offset}: {answer.code} {answer.remark}")
        return []


def now_ms() -> int:
    """Return Unix milliseconds, as the broker on this machine has them."""
    return time.time_ns() // 1_000_000
