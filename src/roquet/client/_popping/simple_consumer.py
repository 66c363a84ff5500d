"""POP consumption by hand: receive, acknowledge, ask for more time. No member owns a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from roquet._native import decode_messages
from roquet.base.arguments import checked
from roquet.base.errors import Unreachable, UsageError
from roquet.client._cluster.requests import request
from roquet.client._cluster.routes import subscribe_queues
from roquet.client._cluster.trouble import not_started
from roquet.client._consuming.report import running_info
from roquet.client._popping.popped import Popped, popped_of
from roquet.model.subscription import ConsumeFromWhere, ConsumeType
from roquet.protocol.bodies.clients import ConsumerData
from roquet.protocol.bodies.stats import ConsumedDirectly
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.header import HeaderError
from roquet.protocol.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PopMessageRequest,
    PopMessageResponse,
)
from roquet.protocol.hosts import host_text
from roquet.protocol.messages import records
from roquet.protocol.pop.handle import HandleError, real_topic
from roquet.remoting.refusals import refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roquet.client._cluster.session import Session
    from roquet.client._options import ConsumerOptions
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.model.subscription import SubscriptionData
    from roquet.protocol.bodies.stats import RunningInfo
    from roquet.protocol.command import Command

MESSAGES_MAX = 32
"""What brokers give in one pop."""
TURN_S = 2.0
"""How long one broker's queues are waited for while there are others."""
_ANSWER_S = 3.0
_NOTHING = frozenset(
    {ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT}
)


@checked
class SimpleConsumer:
    """Receives and acknowledges messages one by one. Use it with `async with`."""

    def __init__(
        self,
        *,
        session: Session,
        group: str,
        subscriptions: Sequence[SubscriptionData],
        options: ConsumerOptions,
        starts_latest: bool,
    ) -> None:
        """Take what `MQ.simple_consumer` gives."""
        self.group = group
        self._session = session
        self._subscriptions = tuple(subscriptions)
        self._options = options
        self._starts_latest = starts_latest
        self._open = False
        self._turn = 0
        self._started_ms = 0

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop. What was not acknowledged comes again."""
        await self.close()

    async def start(self) -> None:
        """Join the group. Raises Refused for a topic that is not there, Unreachable."""
        if self._open:
            return
        for it in self._subscriptions:
            await self._session.route(it.topic)
        self._started_ms = self._session.clock.now_ms()
        self._session.members.add_consumer(self.group, self)
        self._open = True
        await self._session.beat()

    async def close(self) -> None:
        """Leave the group. Twice is once."""
        if not self._open:
            return
        self._open = False
        self._session.members.remove_consumer(self.group)
        await self._session.unregister(consumer=self.group)

    async def receive(
        self, max_messages: int = 16, *, wait_s: float = 10.0, invisible_s: float = 60.0
    ) -> list[Popped]:
        """Return up to `max_messages` (1 to 32); an empty list when none came in `wait_s` seconds.

        Nobody else in the group gets them for `invisible_s`; then what is not acknowledged comes
        again. Raises UsageError, Refused, Unreachable, OutcomeUnknown.
        """
        self._check_open()
        if not 1 <= max_messages <= MESSAGES_MAX:
            raise UsageError(f"max_messages = {max_messages}: must be from 1 to {MESSAGES_MAX}")
        if wait_s < 0 or invisible_s <= 0:
            raise UsageError("wait_s has to be 0 or more, invisible_s more than 0")
        clock = self._session.clock
        ends_ms = clock.steady_ms() + int(wait_s * 1000)
        poll_s = 0.0
        while True:
            places = await self._places()
            for _ in range(len(places)):
                subscription, broker = places[self._turn % len(places)]
                self._turn += 1
                left_s = max(0.0, (ends_ms - clock.steady_ms()) / 1000)
                found = await self._pop(
                    subscription, broker, max_messages, min(poll_s, left_s), invisible_s
                )
                if found:
                    return found
            left_s = (ends_ms - clock.steady_ms()) / 1000
            if left_s <= 0:
                return []
            # All were looked at once: from now on the brokers hold the requests.
            poll_s = left_s if len(places) == 1 else TURN_S

    async def ack(self, popped: Popped) -> None:
        """Say that a message is done: the group does not get it again.

        Raises Refused, also for one whose invisible time is long over; Unreachable, OutcomeUnknown.
        """
        handle = popped.handle
        header = AckMessageRequest(
            consumer_group=self.group,
            topic=self._lies_in(popped),
            queue_id=handle.queue_id,
            extra_info=handle.encode(),
            offset=handle.queue_offset,
        )
        command = request(RequestCode.ACK_MESSAGE, header, broker=handle.broker_name)
        await self._ask(popped, command)

    async def change_invisible(self, popped: Popped, invisible_s: float) -> Popped:
        """Have a message stay invisible for `invisible_s` from now on; return its new delivery.

        With 0 it comes again at once. The old handle settles nothing any more. Raises as `ack`.
        """
        if invisible_s < 0:
            raise UsageError("invisible_s has to be 0 or more")
        handle = popped.handle
        header = ChangeInvisibleTimeRequest(
            consumer_group=self.group,
            topic=self._lies_in(popped),
            queue_id=handle.queue_id,
            extra_info=handle.encode(),
            offset=handle.queue_offset,
            invisible_time=int(invisible_s * 1000),
        )
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        answer = await self._ask(popped, request(code, header, broker=handle.broker_name))
        try:
            now = ChangeInvisibleTimeResponse.decode(answer.ext)
        except HeaderError as error:
            raise Unreachable(
                f"{handle.broker_name} answers without its fields: {error}"
            ) from error
        changed = handle._replace(
            start_offset=handle.queue_offset,
            pop_time_ms=now.pop_time,
            invisible_ms=now.invisible_time,
            revive_queue=now.revive_qid,
        )
        return popped._replace(handle=changed)

    # --- what brokers ask (_members.Consumer) ----------------------------------------------------

    def describe(self) -> ConsumerData:
        """Return what heartbeats say of the group."""
        latest = ConsumeFromWhere.LAST_OFFSET
        return ConsumerData(
            group=self.group,
            consume_type=ConsumeType.PASSIVELY,
            consume_from_where=latest if self._starts_latest else ConsumeFromWhere.FIRST_OFFSET,
            subscriptions=self._subscriptions,
        )

    def rebalance_soon(self) -> None:
        """Nothing: members own no queues."""

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Nothing: the broker has the only offsets."""

    def progress(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return no offset: the broker has them."""
        del topic
        return {}

    def running_info(self) -> RunningInfo:
        """Return everything that tools show."""
        return running_info(
            name_servers=self._session.name_servers.addresses,
            started_ms=self._started_ms,
            ordered=False,
            subscriptions=self._subscriptions,
            queues=(),
        )

    async def consume_directly(self, message: StoredMessage) -> ConsumedDirectly:
        """Refuse: the application asks for messages, nothing can be given to it."""
        del message
        return ConsumedDirectly(
            result="CR_THROW_EXCEPTION", spent_ms=0, remark="a simple consumer asks for messages"
        )

    # --- inside ----------------------------------------------------------------------------------

    async def _places(self) -> list[tuple[SubscriptionData, str]]:
        """Return each topic with each broker that has queues of it. Raises as `route`."""
        found: list[tuple[SubscriptionData, str]] = []
        for it in self._subscriptions:
            queues = subscribe_queues(it.topic, await self._session.route(it.topic))
            found += [(it, name) for name in dict.fromkeys(one.broker_name for one in queues)]
        return found

    async def _pop(
        self,
        subscription: SubscriptionData,
        broker: str,
        count: int,
        poll_s: float,
        invisible_s: float,
    ) -> list[Popped]:
        session = self._session
        header = PopMessageRequest(
            consumer_group=self.group,
            topic=subscription.topic,
            queue_id=-1,
            max_msg_nums=count,
            invisible_time=int(invisible_s * 1000),
            poll_time=int(poll_s * 1000),
            born_time=session.clock.now_ms(),
            init_mode=1 if self._starts_latest else 0,
            exp_type=str(subscription.expression_type),
            exp=subscription.expression,
        )
        address = session.master(broker)
        command = request(RequestCode.POP_MESSAGE, header, broker=broker)
        answer = await session.client.call(address, command, poll_s + _ANSWER_S)
        if answer.code in _NOTHING:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer.code, answer.remark)
        found = records.messages_of(
            decode_messages(answer.body, broker, host_text),
            body_size_max=self._options.body_size_max,
        )
        try:
            popped = popped_of(found, PopMessageResponse.decode(answer.ext), broker)
        except (HeaderError, HandleError) as error:
            raise Unreachable(f"{address} answers a pop that cannot be read: {error}") from error
        shown = session.namespace.shown
        return [one._replace(message=shown(one.message)) for one in popped]

    async def _ask(self, popped: Popped, command: Command) -> Command:
        self._check_open()
        return await self._session.ask(self._session.master(popped.handle.broker_name), command)

    def _lies_in(self, popped: Popped) -> str:
        topic = self._session.namespace.topic(popped.topic)
        return real_topic(topic, self.group, popped.handle.retry_flag)

    def _check_open(self) -> None:
        if not self._open:
            raise not_started("consumer")
