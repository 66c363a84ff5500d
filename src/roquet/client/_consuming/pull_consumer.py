"""Pulling: the application chooses queues and offsets, polls, and commits when it wants."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import deque
from typing import TYPE_CHECKING, Literal, Self

from roquet._native import decode_messages
from roquet.base.arguments import checked
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable, UsageError
from roquet.client._cluster.broker_calls import Pull, Pulled
from roquet.client._cluster.routes import subscribe_queues
from roquet.client._cluster.trouble import not_started
from roquet.model.route import MASTER_ID
from roquet.model.subscription import ConsumeFromWhere, ConsumeType
from roquet.protocol import tags
from roquet.protocol.bodies.clients import ConsumerData
from roquet.protocol.codes import ResponseCode
from roquet.protocol.hosts import host_text
from roquet.protocol.messages import records
from roquet.service.background import Tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.client._cluster.broker_calls import BrokerCalls
    from roquet.client._cluster.session import Session
    from roquet.client._options import ConsumerOptions
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.model.subscription import SubscriptionData

log = logging.getLogger(__name__)

Position = Literal["earliest", "latest"]
_FETCHED_MAX = 1000
"""Messages fetched ahead of `poll`, a queue."""


@dataclasses.dataclass(slots=True)
class _Reading:
    """One assigned queue."""

    subscription: SubscriptionData
    fetch_from: int
    position: int
    """Offset after the last message handed out."""
    seeks: int = 0
    """Counts seeks, so that an answer from before one is dropped."""
    broker_id: int = MASTER_ID
    fetching: bool = False
    fetched: deque[StoredMessage] = dataclasses.field(default_factory=deque["StoredMessage"])


@checked
class PullConsumer:
    """Reads queues from offsets that the application chooses. Use it with `async with`."""

    def __init__(
        self, *, session: Session, calls: BrokerCalls, group: str, options: ConsumerOptions
    ) -> None:
        """Take what `MQ.pull_consumer` gives."""
        self.group = group
        self._session = session
        self._calls = calls
        self._options = options
        self._readings: dict[MessageQueue, _Reading] = {}
        self._tasks = Tasks()
        self._news = asyncio.Event()
        self._turn: deque[MessageQueue] = deque()
        self._failure: Exception | None = None
        self._open = False

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop. Nothing is committed by itself."""
        await self.close()

    async def start(self) -> None:
        """Be ready to assign queues."""
        self._open = True

    async def close(self) -> None:
        """Drop what was fetched. Twice is once."""
        self._open = False
        await self._tasks.stop()
        self._readings.clear()
        self._turn.clear()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic. Raises Refused when it has none."""
        topic = self._session.namespace.topic(topic)
        return subscribe_queues(topic, await self._session.refresh_route(topic))

    async def assign(
        self,
        queues: Iterable[MessageQueue],
        *,
        tags_expression: str = "*",
        start: int | Position | None = None,
    ) -> None:
        """Read exactly these queues from now on; those read already go on where they are.

        New ones begin at `start`; without one at the committed offset, else at the earliest.
        """
        self._check_open()
        wanted = dict.fromkeys(queues)
        for queue in [queue for queue in self._readings if queue not in wanted]:
            del self._readings[queue]
            self._turn.remove(queue)
        for queue in wanted:
            if queue in self._readings:
                continue
            await self._session.route(queue.topic)
            offset = await self._resolve(queue, start)
            subscription = tags.subscribe(queue.topic, tags_expression)
            self._readings[queue] = _Reading(subscription, offset, offset)
            self._turn.append(queue)

    async def seek(
        self,
        queue: MessageQueue,
        to: int | Position | None = None,
        *,
        timestamp: int | None = None,
    ) -> int:
        """Go to an offset, `earliest`, `latest`, or the first message stored at a Unix ms time.

        Returns the offset. What was fetched of the queue is dropped.
        """
        reading = self._reading(queue)
        if (to is None) == (timestamp is None):
            raise UsageError("give an offset, 'earliest' or 'latest', or a timestamp")
        if timestamp is not None:
            offset = await self._calls.offset_at(queue, timestamp)
        else:
            offset = await self._resolve(queue, to)
        reading.seeks += 1
        reading.fetched.clear()
        reading.fetch_from = reading.position = offset
        reading.fetching = False
        return offset

    async def poll(self, max_messages: int = 32, timeout_s: float = 5.0) -> list[StoredMessage]:
        """Return the next messages of the assigned queues, at most `max_messages`.

        Waits up to `timeout_s` seconds for the first; an empty list means that none came. Messages
        of one queue come in order. Raises what went wrong while fetching, once.
        """
        self._check_open()
        if not self._readings:
            raise UsageError("no queue is assigned")
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    self._fetch_more()
                    found = self._handed_out(max_messages)
                    if found:
                        return found
                    if self._failure is not None:
                        failure, self._failure = self._failure, None
                        raise failure
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return []

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that `poll` gives of a queue."""
        return self._reading(queue).position

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit the positions of all assigned queues, or the given offsets, for the group."""
        self._check_open()
        chosen = offsets or {queue: it.position for queue, it in self._readings.items()}
        for queue, offset in chosen.items():
            try:
                await self._calls.commit(self.group, queue, offset, wait=True)
            except Refused as error:
                if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                await self._calls.pull_nothing(self.group, queue)
                await self._calls.commit(self.group, queue, offset, wait=True)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group has committed."""
        await self._session.route(queue.topic)
        return await self._calls.committed(self.group, queue)

    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the first offset still there and the one after the last message."""
        await self._session.route(queue.topic)
        return await self._calls.min_offset(queue), await self._calls.max_offset(queue)

    def describe(self) -> ConsumerData:
        """Return what a heartbeat would say of the group; pulling needs none."""
        return ConsumerData(
            group=self.group,
            consume_type=ConsumeType.ACTIVELY,
            consume_from_where=ConsumeFromWhere.LAST_OFFSET,
            subscriptions=tuple(it.subscription for it in self._readings.values()),
        )

    # --- inside ------------------------------------------------------------------------------

    async def _resolve(self, queue: MessageQueue, to: int | Position | None) -> int:
        if isinstance(to, int):
            return to
        if to == "latest":
            return await self._calls.max_offset(queue)
        if to is None:
            committed = await self._calls.committed(self.group, queue)
            if committed is not None and committed >= 0:
                return committed
        return await self._calls.min_offset(queue)

    def _fetch_more(self) -> None:
        for queue, reading in self._readings.items():
            if not reading.fetching and len(reading.fetched) < _FETCHED_MAX:
                reading.fetching = True
                self._tasks.spawn(self._fetch(queue, reading, reading.seeks), f"fetch {queue}")

    async def _fetch(self, queue: MessageQueue, reading: _Reading, seeks: int) -> None:
        try:
            pulled = await self._calls.pull(
                Pull(
                    queue=queue,
                    group=self.group,
                    offset=reading.fetch_from,
                    subscription=reading.subscription,
                    count=self._options.batch,
                    suspend_s=self._options.suspend_s,
                    timeout_s=self._options.pull_timeout_s,
                    with_subscription=True,
                    broker_id=reading.broker_id,
                )
            )
            messages = self._decode(queue, reading, pulled)
        except (Refused, Unreachable, OutcomeUnknown, ValueError) as error:
            await self._session.clock.sleep(self._options.pause_after_error_s)
            if reading.seeks == seeks:
                self._failure = error
                reading.fetching = False
        else:
            if reading.seeks == seeks and self._readings.get(queue) is reading:
                reading.fetched.extend(messages)
                reading.fetch_from = pulled.next_offset
                reading.broker_id = pulled.suggested_broker_id
                if not reading.fetched:
                    reading.position = max(reading.position, pulled.next_offset)
                reading.fetching = False
        self._news.set()

    def _decode(
        self, queue: MessageQueue, reading: _Reading, pulled: Pulled
    ) -> list[StoredMessage]:
        if pulled.status == ResponseCode.PULL_OFFSET_MOVED:
            log.warning(
                "%s has no offset %d: on from %d", queue, reading.fetch_from, pulled.next_offset
            )
            reading.position = pulled.next_offset
        if pulled.status != ResponseCode.SUCCESS:
            return []
        found = records.messages_of(
            decode_messages(pulled.records, queue.broker_name, host_text),
            body_size_max=self._options.body_size_max,
        )
        return [it for it in found if reading.subscription.takes_tag(it.tag)]

    def _handed_out(self, max_messages: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        for _ in range(len(self._turn)):
            queue = self._turn[0]
            self._turn.rotate(-1)
            reading = self._readings[queue]
            while reading.fetched and len(found) < max_messages:
                message = reading.fetched.popleft()
                reading.position = message.queue_offset + 1
                found.append(self._session.namespace.shown(message))
            if not reading.fetched and not reading.fetching:
                reading.position = max(reading.position, reading.fetch_from)
        return found

    def _reading(self, queue: MessageQueue) -> _Reading:
        reading = self._readings.get(queue)
        if reading is None:
            raise UsageError(f"{queue} is not assigned")
        return reading

    def _check_open(self) -> None:
        if not self._open:
            raise not_started("consumer")
