"""What could not be consumed comes again later, or is put aside.

It is stored once more, in the group's retry topic after a delay that grows with every attempt, or
among the group's dead letters when the attempts are used up (spec: broker (b) 36, wire §9.5).
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.messages import fitting
from roquet.broker.services.access import Access
from roquet.broker.services.topic_checks import FAQ
from roquet.model.message import ATTEMPTS_MAX
from roquet.model.topic import READ_WRITE, TOPIC_SYS_FLAG_UNIT_SUB, can_write
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.light import light_queues
from roquet.protocol.messages import message_id
from roquet.protocol.pop.topics import is_for_group, normal_topic
from roquet.store.results import Draft, PutStatus

if TYPE_CHECKING:
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.send import SendBackRequest
    from roquet.broker.messages.appender import Appender
    from roquet.broker.messages.proof import ProvenMessages
    from roquet.broker.state import BrokerState, Identity
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.store.records import Record
    from roquet.store.tables.groups import GroupTable
    from roquet.store.tables.topics import TopicTable

log = logging.getLogger(__name__)

_TIMERS = (props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS, props.TIMER_DELIVER_MS)

FIRST_RETRY_LEVEL = 3
"""Delay level of the first retry when the consumer names none: 10 s."""
HONOURS_MAX_VERSION = 121
"""Clients from this version on (3.4.9) may set the number of attempts themselves."""


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """Where a message that was sent back goes: a delay level of 0 means at once."""

    topic: str
    queues: int
    delay_level: int


def place(
    request: SendBackRequest,
    group: SubscriptionGroupConfig,
    attempts: int,
    client_version: int,
) -> Placement:
    """Decide between another attempt and the dead letters."""
    attempts_max = group.retry_max_times
    if request.attempts_max is not None and client_version >= HONOURS_MAX_VERSION:
        attempts_max = request.attempts_max
    spent = attempts >= attempts_max or group.retry_max_times == 0
    if spent or request.delay_level < 0:
        return Placement(names.dlq_topic(request.group), 1, 0)
    level = request.delay_level or FIRST_RETRY_LEVEL + attempts
    return Placement(names.retry_topic(request.group), group.retry_queues, level)


def require_readable(access: Access, caller: Caller, record: Record, group: str) -> None:
    """Raise Refusal unless the caller, who may be of the group, may read a message.

    A copy that the group popped is one of the topic in the name of its retry topic: that name
    looks like the retry topic of a group which nobody has a right on.
    """
    origin = normal_topic(record.topic, group)
    owner = light_queues.owner(record.topic, record.properties)
    is_plain = owner in {record.topic, origin} and origin not in {"", record.topic}
    if is_plain and is_for_group(record.topic, group, props.read(record.properties)):
        access.require_read(caller, origin)
    else:
        access.require_message(caller, record)


class Returns(Protocol):
    """Who counts what comes back."""

    def sent_back(self, group: str, topic: str, *, dead: bool) -> None:
        """Note a message of a topic that a group sent back; `dead`: for good."""
        ...

    def moved(self, topic: str, size: int) -> None:
        """Note a message that waits in a topic of the broker's own."""
        ...


class SendBacks:
    """Takes messages back from consumers."""

    def __init__(
        self,
        appender: Appender,
        messages: ProvenMessages,
        topics: TopicTable,
        groups: GroupTable,
        *,
        returns: Returns,
        identity: Identity,
        state: BrokerState,
        access: Access | None = None,
    ) -> None:
        self._appender = appender
        self._messages = messages
        self._access = access or Access()
        self._topics = topics
        self._groups = groups
        self._returns = returns
        self._identity = identity
        self._state = state
        self._turn = 0

    async def send_back(self, request: SendBackRequest, caller: Caller) -> None:
        """Return once the message is stored again. Raises Refusal when it is not."""
        group = self._checked_group(request.group)
        if group.retry_queues <= 0:
            return
        record = await self._record(request, caller)
        where = place(request, group, record.reconsume_times, caller.version)
        properties = _properties(record, where)
        if properties is None:
            log.warning(
                "message %s of %s goes to the dead letters of %s: its properties leave no room for"
                " those of another attempt",
                message_id.offset_id(record.store_host, record.physical_offset),
                record.topic,
                request.group,
            )
            where = Placement(names.dlq_topic(request.group), 1, 0)
            properties = _dead_properties(record)
        queue_id = await self._queue(where, unit=request.is_unit)
        # The record says WAIT=false, as in Java, and yet the answer waits as the store is set: the
        # consumer moves its offset past the message as soon as it has it.
        draft = Draft.again(record, where.topic, queue_id, properties)
        draft.store_host = self._identity.store_host
        draft.reconsume_times = min(record.reconsume_times + 1, ATTEMPTS_MAX)
        result = await self._appender.append(draft, wait=True)
        if result.status is not PutStatus.PUT_OK:
            raise Refusal(Reason.FAILED, result.status.name)
        if draft.topic == names.SCHEDULE_TOPIC:
            self._returns.moved(draft.topic, result.size)
        origin = props.read(record.properties).get(props.RETRY_TOPIC) or record.topic
        self._returns.sent_back(request.group, origin, dead=names.is_dlq(where.topic))

    def _checked_group(self, name: str) -> SubscriptionGroupConfig:
        ip = self._identity.ip
        if self._identity.broker_id != 0:
            raise Refusal(Reason.FAILED, f"no master available along with ip {ip}")
        group = self._groups.find(name)
        if group is None:
            raise Refusal(Reason.UNKNOWN_GROUP, f"subscription group not exist, {name[:255]} {FAQ}")
        if not self._state.is_writable:
            raise Refusal(Reason.FORBIDDEN, f"the broker[{ip}] sending message is forbidden")
        return group

    async def _record(self, request: SendBackRequest, caller: Caller) -> Record:
        """Return the message, which the group must have been able to get. Raises Refusal."""
        offset = request.physical_offset
        record = await self._messages.record(offset)
        if record is None or names.is_waiting_room(record.topic):
            # What waits there is nobody's yet.
            raise Refusal(Reason.FAILED, f"look message by offset failed, {offset}")
        require_readable(self._access, caller, record, request.group)
        return record

    async def _queue(self, where: Placement, *, unit: bool) -> int:
        """Choose a queue of the topic, which is created when it is missing."""
        sys_flag = TOPIC_SYS_FLAG_UNIT_SUB if unit else 0
        topic = self._topics.ensure(where.topic, where.queues, READ_WRITE, sys_flag)
        if not can_write(topic.perm):
            raise Refusal(
                Reason.FORBIDDEN, f"the topic[{where.topic}] sending message is forbidden"
            )
        await self._groups.persist()
        await self._topics.persist()
        self._turn += 1
        # A topic that was made smaller by hand has no reader for the queues above.
        return self._turn % max(1, min(where.queues, topic.write_queues))


def _properties(record: Record, where: Placement) -> dict[str, str] | None:
    """Return the properties of the copy; None when the message's own leave no room for them."""
    if not where.delay_level:
        return _dead_properties(record)
    properties = _common_properties(record)
    properties[props.DELAY] = str(where.delay_level)
    # While it waits it also says where it goes to.
    place = {props.REAL_TOPIC: where.topic, props.REAL_QUEUE_ID: str(where.queues)}
    waiting = properties | place
    if not fitting.fits(waiting):
        return None
    return {name: value for name, value in properties.items() if name in waiting}


def _dead_properties(record: Record) -> dict[str, str]:
    """Return the properties of a dead letter, which always have room."""
    properties = _common_properties(record) | {props.DELAY: "0"}
    fitting.fits(properties, (props.DELAY, *fitting.SPARE_OF_DEAD))
    return properties


def _common_properties(record: Record) -> dict[str, str]:
    properties = props.read(record.properties)
    properties.setdefault(props.RETRY_TOPIC, record.topic)
    properties.setdefault(
        props.ORIGIN_MESSAGE_ID,
        message_id.offset_id(record.store_host, record.physical_offset),
    )
    light_queues.note_origin(record.topic, properties)
    properties[props.WAIT] = "false"
    for name in _TIMERS:
        # A dead letter is to be readable at once, whatever delay the message had of its own.
        properties.pop(name, None)
    return properties
