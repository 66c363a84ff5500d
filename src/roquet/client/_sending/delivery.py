"""One encoded message on its way: choose a queue, send, try another broker where that is safe.

The next file on a message's way is remoting/client.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable
from roquet.client._cluster.routes import auto_created, publish_queues
from roquet.client._cluster.trouble import no_broker
from roquet.client._sending.latency import FAILED_MS, LatencyBook
from roquet.client._sending.receipt import SendReceipt, receipts_of
from roquet.client._sending.retry import is_busy, may_retry, tells_of_broker
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.headers.message import SendMessageRequest
from roquet.remoting.refusals import cannot_heal

if TYPE_CHECKING:
    import random

    from roquet.client._cluster.session import Session
    from roquet.client._options import ProducerOptions
    from roquet.client._sending.choosing import Chooser
    from roquet.client._sending.encode import Encoded
    from roquet.model.queue import MessageQueue
    from roquet.remoting.client import Client

_RESTART_PAUSE_S = 0.1
_BUSY_PAUSE_MAX_S = 0.8
_SHORT_TRY_S = 0.2
"""A try with less time than this fails for lack of time, whatever else may be wrong."""
_FIELDS_MAX = 4096
"""Queues whose fields are kept."""
_SYS_FLAG, _BORN, _FLAG, _PROPERTIES, _BATCH = (
    SendMessageRequest.SHORT_NAMES[name]
    for name in ("sysFlag", "bornTimestamp", "flag", "properties", "batch")
)


class Delivery:
    """Sends what is encoded, for one producer."""

    def __init__(
        self,
        session: Session,
        options: ProducerOptions,
        group: str,
        rng: random.Random,
        *,
        traced: bool = True,
    ) -> None:
        """Begin at a queue of chance, so that producers share the load.

        Sends are traced where the client traces, unless they are traces themselves.
        """
        self._tracer = session.tracer if traced else None
        self._session = session
        self._options = options
        self._group = group
        self._latency = LatencyBook() if options.latency_aware else None
        self._fields: dict[MessageQueue, dict[str, str]] = {}
        self._turns = itertools.count(rng.randrange(1 << 16))

    @property
    def client(self) -> Client:
        """The connections that it uses."""
        return self._session.client

    async def deliver(
        self, encoded: Encoded, chooser: Chooser | None, timeout_s: float | None
    ) -> list[SendReceipt]:
        """Send, on other brokers too where no queue was chosen; a receipt for each message.

        Raises as `Producer.send` does.
        """
        if self._tracer is None:
            return await self._deliver(encoded, chooser, timeout_s)
        begun_ms = self._session.clock.now_ms()
        try:
            receipts = await self._deliver(encoded, chooser, timeout_s)
        except RoquetError:
            self._tracer.sent(encoded, self._group, begun_ms, None)
            raise
        self._tracer.sent(encoded, self._group, begun_ms, receipts)
        return receipts

    def placed(
        self, encoded: Encoded, chooser: Chooser | None
    ) -> tuple[MessageQueue, str, Command] | None:
        """Return queue, address and frame of a first try that a thread of the caller makes.

        None where more has to be known or done than the loop's thread has ready. Any thread may
        ask: nothing is changed but the turn.
        """
        if self._tracer is not None or self._latency is not None or encoded.due is not None:
            return None
        queues = self._session.book.computed_queues(encoded.topic)
        if not queues:
            return None
        queue = queues[next(self._turns) % len(queues)] if chooser is None else chooser(queues)
        address = self._session.book.master(queue.broker_name)
        return None if address is None else (queue, address, self.request(encoded, queue))

    async def go_on(
        self,
        encoded: Encoded,
        chooser: Chooser | None,
        left_s: float,
        queue: MessageQueue,
        error: Refused | Unreachable | OutcomeUnknown,
    ) -> list[SendReceipt]:
        """Deliver what failed once, at `queue` with `error`, with the tries and time that remain.

        Raises as `deliver` does.
        """
        return await self._deliver(encoded, chooser, left_s, (queue, error))

    async def _deliver(
        self,
        encoded: Encoded,
        chooser: Chooser | None,
        timeout_s: float | None,
        tried: tuple[MessageQueue, Refused | Unreachable | OutcomeUnknown] | None = None,
    ) -> list[SendReceipt]:
        budget_s = self._options.timeout_s if timeout_s is None else timeout_s
        loop = asyncio.get_running_loop()
        end = loop.time() + budget_s
        tries = 1 if chooser is not None else 1 + self._options.retries
        last: MessageQueue | None = None
        attempt = 0
        busy_s = _RESTART_PAUSE_S
        told: RoquetError | None = None
        while True:
            attempt += 1
            left = end - loop.time()
            try:
                if tried is not None:
                    (last, error), tried = tried, None
                    raise error
                last = await self.choose(encoded.topic, chooser, last, left)
                return await self._send_to(encoded, last, left)
            except (Refused, Unreachable, OutcomeUnknown) as error:
                told = _telling(told, error, left)
                again = may_retry(error, retry_unknown=self._options.retry_unknown)
                never_left = isinstance(error, Unreachable) and not cannot_heal(error)
                busy = self._options.retries > 0 and is_busy(error)
                if not again or (attempt >= tries and not (never_left or busy)):
                    raise told from told.__cause__
                left = end - loop.time()
                if left <= 0.0:
                    raise told from told.__cause__
                if busy and (attempt >= tries or self._is_only_broker(encoded.topic, last)):
                    await self._wait_for_broker(encoded.topic, busy_s, left)
                    busy_s = min(2 * busy_s, _BUSY_PAUSE_MAX_S)
                elif attempt >= tries:
                    await self._wait_for_broker(encoded.topic, _RESTART_PAUSE_S, left)

    async def _wait_for_broker(self, topic: str, pause_s: float, left_s: float) -> None:
        """Give a broker that restarts or is busy time to come back; learn where it is then."""
        await self._session.clock.sleep(min(pause_s, left_s))
        with contextlib.suppress(Refused, Unreachable, OutcomeUnknown):
            await self._session.refresh_route(topic, max(0.001, left_s - pause_s))

    def _is_only_broker(self, topic: str, last: MessageQueue | None) -> bool:
        """Tell whether the next try can go nowhere else than the last one."""
        known = self._session.book.publish_queues(topic) or ()
        return last is not None and all(it.broker_name == last.broker_name for it in known)

    async def _send_to(
        self, encoded: Encoded, queue: MessageQueue, timeout_s: float
    ) -> list[SendReceipt]:
        address = self._session.master(queue.broker_name)
        if encoded.due is not None:
            version = await self._session.version(address)
            text = encoded.due.properties_for(version, self._options.delay_levels)
            encoded = dataclasses.replace(encoded, properties=encoded.properties + text)
        if self._latency is None:
            return await self._call(encoded, queue, address, timeout_s)
        begun_ms = _now_ms()
        try:
            receipts = await self._call(encoded, queue, address, timeout_s)
        except (Refused, Unreachable, OutcomeUnknown) as error:
            if tells_of_broker(error):
                self._latency.note(queue.broker_name, FAILED_MS, _now_ms())
            raise
        now_ms = _now_ms()
        self._latency.note(queue.broker_name, now_ms - begun_ms, now_ms)
        return receipts

    async def _call(
        self, encoded: Encoded, queue: MessageQueue, address: str, timeout_s: float
    ) -> list[SendReceipt]:
        answer = await self._session.client.call(
            address, self.request(encoded, queue), max(0.001, timeout_s)
        )
        if self._tracer is not None:
            self._tracer.heard(queue.broker_name, answer.ext)
        return receipts_of(answer, encoded, queue)

    def request(self, encoded: Encoded, queue: MessageQueue) -> Command:
        """Return the frame for a queue."""
        ext = {
            **self._fields_of(queue),
            _SYS_FLAG: str(encoded.sys_flag),
            _BORN: str(self._session.clock.now_ms()),
            _FLAG: str(encoded.flag),
            _PROPERTIES: encoded.properties,
            _BATCH: "true" if encoded.is_batch else "false",
        }
        code = RequestCode.SEND_MESSAGE_V2
        if encoded.is_batch:
            code = RequestCode.SEND_BATCH_MESSAGE
        elif encoded.is_reply:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        return Command(code, ext, encoded.body)

    def _fields_of(self, queue: MessageQueue) -> dict[str, str]:
        """Return the header's fields that all messages to a queue share, written once."""
        fields = self._fields.get(queue)
        if fields is None:
            if len(self._fields) >= _FIELDS_MAX:
                self._fields.clear()
            header = SendMessageRequest(
                producer_group=self._group,
                topic=queue.topic,
                default_topic=self._options.template_topic,
                default_topic_queue_nums=self._options.template_queues,
                queue_id=queue.queue_id,
                sys_flag=0,
                born_timestamp=0,
                flag=0,
                reconsume_times=0,
                unit_mode=False,
                batch=False,
                broker_name=queue.broker_name,
            )
            fields = self._fields[queue] = header.encode(short=True)
        return fields

    async def choose(
        self,
        topic: str,
        chooser: Chooser | None,
        last: MessageQueue | None,
        timeout_s: float,
    ) -> MessageQueue:
        """Return the queue of the next try; `last` is that of a try that failed."""
        queues = await self.queues(topic, timeout_s)
        if chooser is not None:
            return chooser(queues)
        turn = next(self._turns)
        count = len(queues)
        if last is None and self._latency is None:
            return queues[turn % count]
        avoided = None if last is None else last.broker_name
        in_turn = [queues[(turn + step) % count] for step in range(count)]
        others = [queue for queue in in_turn if queue.broker_name != avoided]
        if self._latency is not None:
            now_ms, is_spared = _now_ms(), self._latency.is_spared
            for queue in others:
                if not is_spared(queue.broker_name, now_ms):
                    return queue
        return (others or in_turn)[0]

    def known_queues(self, topic: str) -> tuple[MessageQueue, ...] | None:
        """Return the queues of a topic whose route is known; no route and no queue are alike."""
        return self._session.book.publish_queues(topic) or None

    async def queues(self, topic: str, timeout_s: float) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic, which a broker may make by the first send."""
        session = self._session
        known = session.book.publish_queues(topic)
        if known:
            return known
        try:
            route = await session.route(topic, timeout_s)
        except Refused as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            try:
                template = await session.route(self._options.template_topic, timeout_s)
            except Refused:
                why = await no_broker(session, topic)
                if why is not None:
                    raise why from error
                raise Refused(
                    error.code,
                    f"topic {topic} does not exist and brokers do not create topics: create it "
                    f"first ({error.remark})",
                ) from error
            route = auto_created(template)
        # The book keeps what it computes, and knows no topic that the first send creates.
        queues = session.book.publish_queues(topic) or publish_queues(topic, route)
        if not queues:
            session.book.forget(topic)
            raise Unreachable(f"topic {topic} has no queue that can be written to now")
        return queues


def _telling(before: RoquetError | None, error: RoquetError, left_s: float) -> RoquetError:
    """Return what to raise: a try that had no time says less than the one before it."""
    had_time = left_s > _SHORT_TRY_S or not isinstance(error, Unreachable)
    return error if had_time or before is None else before


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
