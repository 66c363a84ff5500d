"""Headers of POP consumption: pop, acknowledge, change of the invisible time, peek, notification.

Class and field names are ours; `wire` holds the Java field name, the docstring the Java class.
The codes do not fit in the 16 bits of the one-row encoding: these headers arrive as JSON only.
"""

from __future__ import annotations

from roquet.protocol.header import Header, wire


class PopMessageRequest(Header):
    """Java: PopMessageRequestHeader (POP_MESSAGE 200050). Times are milliseconds."""

    consumer_group: str = wire("consumerGroup", "str")
    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")
    """-1 for all queues."""
    max_msg_nums: int = wire("maxMsgNums", "i32")
    invisible_time: int = wire("invisibleTime", "i64")
    poll_time: int = wire("pollTime", "i64")
    born_time: int = wire("bornTime", "i64", default=0)
    """When the client sent it, Unix milliseconds; 0 or none: when it came."""
    init_mode: int = wire("initMode", "i32")
    """Where a new group begins: 0 with the first message, 1 with the last."""
    exp_type: str | None = wire("expType", "str", default=None)
    exp: str | None = wire("exp", "str", default=None)
    order: bool = wire("order", "bool", default=False)
    attempt_id: str | None = wire("attemptId", "str", default=None)


class PopMessageResponse(Header):
    """Java: PopMessageResponseHeader (POP_MESSAGE 200050, PEEK_MESSAGE 200052)."""

    pop_time: int = wire("popTime", "i64", default=0)
    invisible_time: int = wire("invisibleTime", "i64", default=0)
    revive_qid: int = wire("reviveQid", "i32", default=0)
    rest_num: int = wire("restNum", "i64", default=0)
    start_offset_info: str | None = wire("startOffsetInfo", "str", default=None)
    msg_offset_info: str | None = wire("msgOffsetInfo", "str", default=None)
    order_count_info: str | None = wire("orderCountInfo", "str", default=None)


class AckMessageRequest(Header):
    """Java: AckMessageRequestHeader (ACK_MESSAGE 200051)."""

    consumer_group: str = wire("consumerGroup", "str")
    topic: str = wire("topic", "str")
    """The topic read: the pop retry topic for messages that came from there."""
    queue_id: int = wire("queueId", "i32")
    extra_info: str = wire("extraInfo", "str")
    """The receipt handle."""
    offset: int = wire("offset", "i64")
    lite_topic: str | None = wire("liteTopic", "str", default=None)


class ChangeInvisibleTimeRequest(Header):
    """Java: ChangeInvisibleTimeRequestHeader (CHANGE_MESSAGE_INVISIBLETIME 200053)."""

    consumer_group: str = wire("consumerGroup", "str")
    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")
    extra_info: str = wire("extraInfo", "str")
    offset: int = wire("offset", "i64")
    invisible_time: int = wire("invisibleTime", "i64")
    lite_topic: str | None = wire("liteTopic", "str", default=None)
    suspend: bool = wire("suspend", "bool", default=False)


class ChangeInvisibleTimeResponse(Header):
    """Java: ChangeInvisibleTimeResponseHeader (CHANGE_MESSAGE_INVISIBLETIME 200053)."""

    pop_time: int = wire("popTime", "i64", default=0)
    invisible_time: int = wire("invisibleTime", "i64", default=0)
    revive_qid: int = wire("reviveQid", "i32", default=0)


class PeekMessageRequest(Header):
    """Java: PeekMessageRequestHeader (PEEK_MESSAGE 200052)."""

    consumer_group: str = wire("consumerGroup", "str")
    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")
    max_msg_nums: int = wire("maxMsgNums", "i32")


class NotificationRequest(Header):
    """Java: NotificationRequestHeader (NOTIFICATION 200054)."""

    consumer_group: str = wire("consumerGroup", "str")
    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")
    poll_time: int = wire("pollTime", "i64")
    born_time: int = wire("bornTime", "i64", default=0)
    order: bool = wire("order", "bool", default=False)
    attempt_id: str | None = wire("attemptId", "str", default=None)
    exp_type: str | None = wire("expType", "str", default=None)
    exp: str | None = wire("exp", "str", default=None)


class NotificationResponse(Header):
    """Java: NotificationResponseHeader (NOTIFICATION 200054)."""

    has_msg: bool = wire("hasMsg", "bool", default=False)
    polling_full: bool = wire("pollingFull", "bool", default=False)


class PollingInfoRequest(Header):
    """Java: PollingInfoRequestHeader (POLLING_INFO 200055)."""

    consumer_group: str = wire("consumerGroup", "str")
    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")


class PollingInfoResponse(Header):
    """Java: PollingInfoResponseHeader (POLLING_INFO 200055)."""

    polling_num: int = wire("pollingNum", "i32", default=0)
