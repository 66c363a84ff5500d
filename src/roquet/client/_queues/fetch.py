"""Fetching one queue: pull, hand on, pull again."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from roquet._native import decode_messages
from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable
from roquet.client._cluster.broker_calls import Pull, Pulled
from roquet.model.route import MASTER_ID
from roquet.protocol import names, properties
from roquet.protocol.codes import ResponseCode
from roquet.protocol.hosts import host_text
from roquet.protocol.messages import records
from roquet.protocol.messages.compression import CompressionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.client._cluster.broker_calls import BrokerCalls
    from roquet.client._cluster.session import Session
    from roquet.client._cluster.trouble import Troubles
    from roquet.client._options import ConsumerOptions
    from roquet.client._queues.offsets import Offsets
    from roquet.client._queues.process_queue import ProcessQueue
    from roquet.model.message import StoredMessage
    from roquet.model.subscription import SubscriptionData

log = logging.getLogger(__name__)

_FULL_PAUSE_S = 0.05
_BUSY_PAUSE_S = 0.02
_UNLOCKED_PAUSE_S = 0.5


class OffsetMoved(Exception):  # noqa: N818  (news, not an accident)
    """The broker does not have the offset we asked for; `offset` is the one to go on from."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"offset moved to {offset}")
        self.offset = offset


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fetcher:
    """Fetches queues of one group for one consumer."""

    session: Session
    calls: BrokerCalls
    offsets: Offsets
    options: ConsumerOptions
    group: str
    ordered: bool
    deliver: Callable[[ProcessQueue, list[StoredMessage]], None]
    """Gets what is new and matches."""
    troubles: Troubles
    broken: Callable[[ProcessQueue, StoredMessage], None]
    """Gets a message whose body cannot be decompressed."""

    async def run(
        self, held: ProcessQueue, subscription: Callable[[], SubscriptionData], offset: int
    ) -> None:
        """Fetch until cancelled. Raises OffsetMoved when the broker corrects us."""
        broker_id = MASTER_ID
        while not held.dropped:
            if held.is_full(self.options, ordered=self.ordered):
                await self.session.clock.sleep(_FULL_PAUSE_S)
                continue
            if self.ordered and not held.lock_is_fresh(self.session.clock.steady_ms()):
                await self.session.clock.sleep(_UNLOCKED_PAUSE_S)
                continue
            held.last_pull_ms = self.session.clock.now_ms()
            pulled = await self._pull(held, subscription(), offset, broker_id)
            if pulled is None:
                continue
            broker_id = pulled.suggested_broker_id
            try:
                offset = self._take(held, pulled, subscription())
            except ValueError as error:
                # Damaged on its way or on the disk: nothing is skipped, an operator has to look.
                log.error("what %s gave at %d cannot be read: %s", held.queue, offset, error)  # noqa: TRY400
                await self.session.clock.sleep(self.options.pause_after_error_s)

    async def _pull(
        self, held: ProcessQueue, subscription: SubscriptionData, offset: int, broker_id: int
    ) -> Pulled | None:
        pull = Pull(
            queue=held.queue,
            group=self.group,
            offset=offset,
            subscription=subscription,
            count=self.options.batch,
            suspend_s=self.options.suspend_s,
            timeout_s=self.options.pull_timeout_s,
            commit_offset=self.offsets.to_commit(held.queue),
            broker_id=broker_id,
        )
        try:
            pulled = await self.calls.pull(pull)
        except Refused as error:
            await self._refused(held, error, broker_id)
        except (Unreachable, OutcomeUnknown) as error:
            await self._met(held, f"broker {held.queue.broker_name}", error, broker_id)
            await self.session.clock.sleep(self.options.pause_after_error_s)
            await self.session.beat_new()
        else:
            self.troubles.over(held.queue)
            self.troubles.over(f"broker {held.queue.broker_name}")
            return pulled
        return None

    async def _met(
        self, held: ProcessQueue, subject: object, error: RoquetError, broker_id: int
    ) -> None:
        # A slave may be behind with topics, groups and accounts: only a master's no is final.
        may_end = broker_id == MASTER_ID
        if names.is_retry(held.queue.topic) and isinstance(error, Refused):
            may_end = may_end and error.code != ResponseCode.TOPIC_NOT_EXIST
        await self.troubles.met(subject, error, topic=held.queue.topic, may_end=may_end)

    async def _refused(self, held: ProcessQueue, error: Refused, broker_id: int) -> None:
        if error.code in (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL):
            await self.session.clock.sleep(_BUSY_PAUSE_S)
            return
        await self._met(held, held.queue, error, broker_id)
        if error.code in (
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ):
            await self.session.beat()
        await self.session.clock.sleep(self.options.pause_after_error_s)

    def _take(self, held: ProcessQueue, pulled: Pulled, subscription: SubscriptionData) -> int:
        if pulled.status == ResponseCode.PULL_OFFSET_MOVED:
            raise OffsetMoved(pulled.next_offset)
        if pulled.status == ResponseCode.SUCCESS and pulled.records:
            messages, broken = self._decode(held, pulled.records, subscription)
            fresh = held.add(messages)
            whole = [message for message in fresh if message.queue_offset not in broken]
            if whole:
                self.deliver(held, whole)
            for message in fresh:
                if message.queue_offset in broken:
                    self.broken(held, message)
        if held.count == 0:
            self.offsets.move(held.queue, pulled.next_offset)
        return pulled.next_offset

    def _decode(
        self, held: ProcessQueue, data: bytes, subscription: SubscriptionData
    ) -> tuple[list[StoredMessage], set[int]]:
        found: list[StoredMessage] = []
        broken: set[int] = set()
        name = held.queue.broker_name
        for row in decode_messages(data, name, host_text):
            try:
                message = records.message_of_row(row, self.options.body_size_max)
            except CompressionError as error:
                offset = row[records.QUEUE_OFFSET]
                log.error("message at %d of %s: %s", offset, held.queue, error)  # noqa: TRY400
                message = records.stored_row(row)
                broken.add(message.queue_offset)
            if subscription.takes_tag(message.tag):
                found.append(self._restored(message))
        return found, broken

    def _restored(self, message: StoredMessage) -> StoredMessage:
        """Give a message from the retry topic its own topic back."""
        if message.topic == names.retry_topic(self.group):
            topic = message.properties.get(properties.RETRY_TOPIC)
            if topic:
                return dataclasses.replace(message, topic=topic)
        return message
