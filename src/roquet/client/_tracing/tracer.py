"""Takes trace records of a client's producers and consumers and sends them, a little later.

Tracing never delays or fails what it traces: records wait in a table with a bound, and what does
not fit or cannot be sent is dropped, counted and said once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from roquet.base.errors import RoquetError
from roquet.client._options import ProducerOptions
from roquet.client._received import Outcome
from roquet.client._sending.delivery import Delivery
from roquet.client._sending.encode import encode_one
from roquet.client._tracing.records import Consumption, Traced, TracedType, keys_of
from roquet.model.message import Message
from roquet.protocol import properties
from roquet.protocol.messages import batch, sys_flag
from roquet.service.background import Tasks

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from roquet.client._cluster.session import Session
    from roquet.client._received import Received
    from roquet.client._sending.encode import Encoded
    from roquet.client._sending.receipt import SendReceipt
    from roquet.client._tracing.records import TraceRecord
    from roquet.protocol.messages.message_id import UniqueIds

log = logging.getLogger(__name__)

WAITING_MAX = 8192
"""Records that wait; more are dropped."""
TOGETHER_MAX = 100
"""Records of one trace message."""
SIZE_MAX = 128_000
"""Bytes of its body at most, as in Java."""
KEYS_SIZE_MAX = 16_000
"""Bytes of its keys at most: properties have to stay below 32 KiB."""
EVERY_S = 5.0
"""How long records wait for others."""
GROUP = "_INNER_TRACE_PRODUCER"
_REGION = "DefaultRegion"


class Tracer:
    """The traces of one client."""

    def __init__(self, session: Session, topic: str, ids: UniqueIds, rng: random.Random) -> None:
        """Trace to `topic`. Nothing is sent before `start`."""
        self.topic: str = topic
        self.dropped: int = 0
        """Records that were not sent."""
        self._session = session
        self._ids = ids
        self._options = ProducerOptions(compress_over=0)
        self._delivery = Delivery(session, self._options, GROUP, rng, traced=False)
        self._tasks = Tasks()
        self._waiting: deque[TraceRecord] = deque()
        self._regions: dict[str, tuple[str, bool]] = {}
        """By broker: its region, and whether it wants traces."""
        self._sending = asyncio.Lock()
        self._is_flushed = False
        """Whether a flush begins soon anyway."""

    def start(self) -> None:
        """Begin to send what waits every few seconds."""
        self._tasks.repeat(
            self.flush,
            self._session.clock,
            name="send traces",
            every_s=EVERY_S,
            first_after_s=EVERY_S,
        )

    async def stop(self) -> None:
        """Send what waits, within five seconds, and end."""
        try:
            async with asyncio.timeout(EVERY_S):
                await self.flush()
        except TimeoutError:
            self._drop(len(self._waiting), "no broker took them in time")
        await self._tasks.stop()

    # --- what is traced ----------------------------------------------------------------------

    def heard(self, broker_name: str, fields: Mapping[str, str] | None) -> None:
        """Take note of what a broker says in its answer to a send."""
        given = fields or {}
        region = given.get(properties.MSG_REGION) or _REGION
        self._regions[broker_name] = (region, given.get(properties.TRACE_ON) != "false")

    def sent(
        self, encoded: Encoded, group: str, begun_ms: int, receipts: Sequence[SendReceipt] | None
    ) -> None:
        """Trace a send that ended now: with its receipts, None when it failed."""
        now_ms = self._session.clock.now_ms()
        broker_name = receipts[0].queue.broker_name if receipts else ""
        region, wanted = self._regions.get(broker_name, (_REGION, True))
        if not wanted:
            return
        broker = self._session.book.master(broker_name) or ""
        for index, (body, own) in enumerate(_members(encoded)):
            traced = self._traced(encoded, group, own, encoded.message_ids[index], region, broker)
            self._add(
                traced.sent(
                    begun_ms,
                    now_ms - begun_ms,
                    len(body),
                    receipts[index].offset_id if receipts else "",
                    success=receipts is not None and receipts[index].is_durable,
                )
            )

    def ended(  # noqa: PLR0917  (what a record needs)
        self,
        group: str,
        topic: str,
        message_id: str,
        own: Mapping[str, str],
        broker: str,
        state: str,
        *,
        from_check: bool,
    ) -> None:
        """Trace the end of a transaction; `state` is Java's name of it.

        `own` are the properties of the half message as far as known, `broker` is its address.
        """
        half = self._named(group, topic, message_id, own, broker, TracedType.HALF)
        self._add(half.ended(self._session.clock.now_ms(), state, from_check=from_check))

    def recalled(self, group: str, topic: str, message_id: str, *, success: bool) -> None:
        """Trace the recall of a message: it was taken back, or its broker refused to.

        The record has no place for tag and keys, and a handle tells neither.
        """
        message = self._named(group, topic, message_id, {}, "", TracedType.NORMAL)
        self._add(message.recalled(self._session.clock.now_ms(), success=success))

    def consumed_by(self, group: str) -> Callable[[Received], None]:
        """Return what traces the deliveries of a group; call it when a message is given out."""
        shown = self._session.namespace.bare(group)

        def given(received: Received) -> None:
            own = received.properties
            if own.get(properties.TRACE_ON) == "false":
                return
            clock = self._session.clock
            begun_ms = clock.now_ms()
            consumption = Consumption(
                region=own.get(properties.MSG_REGION) or _REGION,
                group=shown,
                request_id=self._ids.make(begun_ms),
                message_id=received.message_id,
                attempts_before=received.attempt - 1,
                keys=received.keys,
            )
            self._add(consumption.begun(begun_ms))

            def settled(outcome: Outcome) -> None:
                now_ms = clock.now_ms()
                ok = outcome is Outcome.ACK
                self._add(consumption.ended(now_ms, now_ms - begun_ms, success=ok))

            received.watch(settled)

        return given

    # --- sending -----------------------------------------------------------------------------

    async def flush(self) -> None:
        """Send everything that waits now; what fails is dropped."""
        async with self._sending:
            self._is_flushed = False
            left = len(self._waiting)
            while left > 0 and self._waiting:
                records = self._next()
                left -= len(records)
                await self._send(records)

    def _add(self, record: TraceRecord) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._drop(1, "more came than could be sent")
            return
        self._waiting.append(record)
        if len(self._waiting) >= TOGETHER_MAX and not self._is_flushed:
            self._is_flushed = True
            self._tasks.spawn(self.flush(), "send traces")

    def _next(self) -> list[TraceRecord]:
        """Take the records of the next message: of one region, within the limits."""
        first = self._waiting.popleft()
        found, size = [first], first.size
        keys_size = sum(len(key) + 1 for key in first.keys)
        while self._waiting and len(found) < TOGETHER_MAX:
            one = self._waiting[0]
            size += one.size
            keys_size += sum(len(key) + 1 for key in one.keys)
            if one.region != first.region or size > SIZE_MAX or keys_size > KEYS_SIZE_MAX:
                break
            found.append(self._waiting.popleft())
        return found

    async def _send(self, records: Sequence[TraceRecord]) -> None:
        body = "".join(record.text for record in records).encode()
        message_id = self._ids.make(self._session.clock.now_ms())
        try:
            message = Message(self.topic, body, keys=keys_of(records))
            encoded = encode_one(message, message_id, self._options)
            await self._delivery.deliver(encoded, None, EVERY_S)
        except RoquetError as error:
            self._drop(len(records), str(error))

    def _drop(self, count: int, why: str) -> None:
        if count and not self.dropped:
            log.warning("traces are dropped: %s", why)
        self.dropped += count

    def _named(  # noqa: PLR0917  (what a record needs)
        self,
        group: str,
        topic: str,
        message_id: str,
        own: Mapping[str, str],
        broker: str,
        kind: TracedType,
    ) -> Traced:
        namespace = self._session.namespace
        return Traced(
            region=own.get(properties.MSG_REGION) or _REGION,
            group=namespace.bare(group),
            topic=namespace.bare(topic),
            message_id=message_id,
            tag=own.get(properties.TAGS, ""),
            keys=own.get(properties.KEYS, ""),
            broker=broker,
            kind=kind,
        )

    def _traced(  # noqa: PLR0917  (what a record needs)
        self,
        encoded: Encoded,
        group: str,
        own: Mapping[str, str],
        message_id: str,
        region: str,
        broker: str,
    ) -> Traced:
        kind = TracedType.NORMAL
        if encoded.sys_flag & sys_flag.TRANSACTION_PREPARED:
            kind = TracedType.HALF
        elif encoded.due is not None or properties.DELAY in own:
            kind = TracedType.DELAY
        seen = {**own, properties.MSG_REGION: region}
        return self._named(group, encoded.topic, message_id, seen, broker, kind)


def _members(encoded: Encoded) -> Iterator[tuple[bytes, dict[str, str]]]:
    """Return body and properties of each message of a request."""
    if not encoded.is_batch:
        yield encoded.body, properties.read(encoded.properties)
        return
    for _, body, text in batch.decode(encoded.body):
        yield body, properties.read(text)
