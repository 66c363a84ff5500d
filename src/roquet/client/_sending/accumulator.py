"""Messages of `submit`, gathered into batches a queue without waiting for more than there is.

What is submitted in one turn of the loop, or while a batch of its queue is in flight, goes out as
one request. Invariants: of a chosen queue at most one request is in flight, so that its messages
are stored in the order of their submission whatever is tried again; each message's future is
settled exactly once, with its own receipt or error; nothing waits longer than its own time-out.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable
from roquet.client._sending.encode import BATCH_MAX, batch_of
from roquet.protocol.codes import ResponseCode
from roquet.service.background import Tasks, give_way

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roquet.client._options import ProducerOptions
    from roquet.client._sending.choosing import Chooser
    from roquet.client._sending.delivery import Delivery
    from roquet.client._sending.encode import Encoded
    from roquet.client._sending.receipt import SendReceipt
    from roquet.model.queue import MessageQueue

    Promise = asyncio.Future[SendReceipt] | concurrent.futures.Future[SendReceipt]

_JUDGE_ONE = frozenset({ResponseCode.MESSAGE_ILLEGAL, ResponseCode.REQUEST_CODE_NOT_SUPPORTED})
"""Refusals of a batch that need not hold for each message of it: a broker stores all or none."""

_QUICKER = contextlib.suppress(concurrent.futures.InvalidStateError)
"""The owner of a promise, on another thread, may give it up while it is settled."""


class Submission:
    """One message and the promise of its receipt."""

    __slots__ = (
        "chooser",
        "encoded",
        "ends_s",
        "may_share",
        "promise",
        "round",
        "settled",
        "size",
        "waits",
    )

    def __init__(  # noqa: PLR0917  (made for each message)
        self,
        encoded: Encoded,
        chooser: Chooser | None,
        promise: Promise,
        settled: Callable[[RoquetError | None], None],
        may_share: bool,
        waits: bool,
    ) -> None:
        """`may_share` a batch or not; `waits` for the store: a batch's messages all do, or none.

        `settled` is called once, on the loop, with what the message failed with.
        """
        self.encoded: Encoded = encoded
        self.chooser: Chooser | None = chooser
        self.promise: Promise = promise
        self.settled: Callable[[RoquetError | None], None] = settled
        self.may_share: bool = may_share
        self.waits: bool = waits
        self.size: int = len(encoded.body) + len(encoded.properties) + 22
        self.ends_s: float = 0.0
        """Until when it may be sent, by the loop's time."""
        self.round: int = 0
        """Between which flushes it came."""

    def fail(self, error: RoquetError) -> None:
        """Settle it with an error, without sending it."""
        if not self.promise.done():
            with _QUICKER:
                self.promise.set_exception(error)
                self.promise.exception()  # flush reports it, too
        self.settled(error)


class _Lane:
    """What waits for one chosen queue, or for any queue of a topic."""

    __slots__ = ("is_busy", "is_due", "queue", "size", "topic", "waiting")

    def __init__(self, topic: str, queue: MessageQueue | None) -> None:
        self.topic = topic
        self.queue = queue
        self.waiting: deque[Submission] = deque()
        self.size = 0
        self.is_due = False
        """Whether it is looked at soon."""
        self.is_busy = False
        """Whether a request of the chosen queue is in flight."""


class Accumulator:
    """Gathers and sends what one producer submits. The loop's thread alone calls it."""

    def __init__(self, delivery: Delivery, options: ProducerOptions) -> None:
        """Hold nothing yet."""
        self._delivery = delivery
        self._options = options
        self._tasks = Tasks()
        self._lanes: dict[tuple[str, MessageQueue | None], _Lane] = {}
        self._unplaced: dict[str, deque[Submission]] = {}
        """By topic whose queues are not known yet."""
        self._round = 0
        self._open: dict[int, int] = {}
        """Messages that are not settled, by round."""
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        self._is_closed = False
        self._has_batches = True
        """False once a broker did not know batches."""

    def open(self) -> None:
        """Begin, or begin anew after `close`."""
        self._is_closed = False

    def add(self, one: Submission) -> None:
        """Take a message; it goes out in this turn of the loop or after the linger time."""
        one.round = self._round
        self._open[one.round] = self._open.get(one.round, 0) + 1
        one.ends_s = asyncio.get_running_loop().time() + self._options.timeout_s
        topic = one.encoded.topic
        if one.chooser is None:
            self._put(one, None)
        elif (unplaced := self._unplaced.get(topic)) is not None:
            unplaced.append(one)
        elif queues := self._delivery.known_queues(topic):
            self._put(one, one.chooser(queues))
        else:
            self._unplaced[topic] = deque((one,))
            self._tasks.spawn(self._place(topic), "place")

    def hasten(self) -> None:
        """Send what lingers now."""
        for lane in tuple(self._lanes.values()):
            self._pump(lane)

    async def flush(self) -> None:
        """Send what is here now, and wait until all that came before is settled."""
        self.hasten()
        if not self._open:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flush = (self._round, done)
        self._round += 1
        self._flushes.append(flush)
        try:
            await done
        finally:
            if flush in self._flushes:
                self._flushes.remove(flush)

    async def close(self, within_s: float) -> None:
        """Send what is here; after `within_s` cancel what is left."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.flush(), within_s)
        self._is_closed = True
        await give_way()  # a task that is cancelled before it begins would settle nothing
        await self._tasks.stop()
        left = [one for lane in self._lanes.values() for one in lane.waiting]
        left += [one for unplaced in self._unplaced.values() for one in unplaced]
        self._lanes.clear()
        self._unplaced.clear()
        for one in left:
            self._cancel(one)

    # --- inside ------------------------------------------------------------------------------

    async def _place(self, topic: str) -> None:
        """Send one by one until the topic's queues are known, then by queue."""
        waiting = self._unplaced[topic]
        while waiting and not self._delivery.known_queues(topic):
            one = waiting.popleft()
            await self._send((one,), one.chooser)
        queues = self._delivery.known_queues(topic) or ()
        del self._unplaced[topic]
        for one in waiting:
            if one.chooser is not None:
                self._put(one, one.chooser(queues))
        if self._flushes:
            self.hasten()

    def _put(self, one: Submission, queue: MessageQueue | None) -> None:
        key = (one.encoded.topic, queue)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(*key)
        lane.waiting.append(one)
        lane.size += one.size
        if lane.size >= self._options.batch_bytes and not lane.is_busy:
            self._pump(lane, self._options.batch_bytes)
        if lane.is_due or lane.is_busy:
            return
        lane.is_due = True
        loop = asyncio.get_running_loop()
        # Whoever lingers for its whole time has none left for the way.
        linger_s = min(self._options.batch_linger_s, self._options.timeout_s / 2)
        if linger_s > 0.0:
            loop.call_later(linger_s, self._look, lane)
        else:
            loop.call_soon(self._look, lane)

    def _look(self, lane: _Lane) -> None:
        lane.is_due = False
        self._pump(lane)

    def _pump(self, lane: _Lane, least: int = 0) -> None:
        """Send what waits, as long as it is at least `least` bytes."""
        while lane.waiting and lane.size >= least and not lane.is_busy and not self._is_closed:
            self._tasks.spawn(self._carry(lane, self._cut(lane)), "send")
        if not lane.waiting and not lane.is_busy and not lane.is_due:
            self._lanes.pop((lane.topic, lane.queue), None)

    def _cut(self, lane: _Lane) -> list[Submission]:
        """Take the next request's messages out of a lane."""
        lane.is_busy = lane.queue is not None
        waiting, first = lane.waiting, lane.waiting.popleft()
        found, size = [first], first.size
        if first.may_share and self._has_batches:
            while waiting and len(found) < BATCH_MAX:
                one = waiting[0]
                size += one.size
                too_big = size > self._options.batch_bytes
                if too_big or not one.may_share or one.waits != first.waits:
                    break
                found.append(waiting.popleft())
        lane.size -= sum(one.size for one in found)
        return found

    async def _carry(self, lane: _Lane, these: Sequence[Submission]) -> None:
        queue, by_key = lane.queue, these[0].chooser

        def same_queue(queues: Sequence[MessageQueue]) -> MessageQueue:
            # A queue that has gone leaves its messages to where their key leads now.
            assert queue is not None
            assert by_key is not None
            return queue if queue in queues else by_key(queues)

        try:
            await self._send(these, None if queue is None else same_queue)
        finally:
            lane.is_busy = False
            self._pump(lane)

    async def _send(self, these: Sequence[Submission], chooser: Chooser | None) -> None:
        try:
            receipts = await self._receipts(these, chooser)
        except Refused as error:
            if len(these) > 1 and error.code in _JUDGE_ONE:
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    self._has_batches = False
                await self._send_apart(these, chooser)
            else:
                self._fail(these, error)
        except RoquetError as error:
            self._fail(these, error)
        except BaseException:
            for one in these:
                self._cancel(one)
            raise
        else:
            for one, receipt in zip(these, receipts, strict=True):
                if not one.promise.done():
                    with _QUICKER:
                        one.promise.set_result(receipt)
                one.settled(None)
                self._done(one)

    async def _receipts(
        self, these: Sequence[Submission], chooser: Chooser | None
    ) -> list[SendReceipt]:
        left_s = these[0].ends_s - asyncio.get_running_loop().time()
        if left_s <= 0.0:
            raise Unreachable("not sent in time: messages before it took all the time")
        parts = [one.encoded for one in these]
        encoded = parts[0] if len(parts) == 1 else batch_of(parts, waits=these[0].waits)
        try:
            return await self._delivery.deliver(encoded, chooser, left_s)
        except RoquetError:
            raise
        except Exception as error:
            # A mistake of ours, or an answer nobody expects: told, and those behind it go on.
            raise OutcomeUnknown(f"the send failed: {type(error).__name__}: {error}") from error

    async def _send_apart(self, these: Sequence[Submission], chooser: Chooser | None) -> None:
        left = deque(these)
        try:
            while left:
                await self._send((left.popleft(),), chooser)
        except BaseException:
            for one in left:
                self._cancel(one)
            raise

    def _fail(self, these: Sequence[Submission], error: RoquetError) -> None:
        for one in these:
            one.fail(error)
            self._done(one)

    def _cancel(self, one: Submission) -> None:
        one.promise.cancel()
        one.settled(None)
        self._done(one)

    def _done(self, one: Submission) -> None:
        left = self._open[one.round] = self._open[one.round] - 1
        if left:
            return
        del self._open[one.round]
        for flush in tuple(self._flushes):
            number, done = flush
            if all(it > number for it in self._open):
                self._flushes.remove(flush)
                if not done.done():
                    done.set_result(None)
