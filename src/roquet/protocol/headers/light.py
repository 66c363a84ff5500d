"""Headers of light topics (Java: lite topics): pops, and what tools ask.

Class and field names are ours; `wire` holds the Java field name, the docstring the Java class.
"""

from __future__ import annotations

from roquet.protocol.header import Header, wire

_DIGITS_MAX = 9


class PopLightRequest(Header):
    """Java: PopLiteMessageRequestHeader (POP_LITE_MESSAGE 200070). Times are milliseconds."""

    client_id: str = wire("clientId", "str")
    consumer_group: str = wire("consumerGroup", "str")
    topic: str = wire("topic", "str")
    """The parent."""
    max_msg_num: int = wire("maxMsgNum", "i32")
    invisible_time: int = wire("invisibleTime", "i64")
    poll_time: int = wire("pollTime", "i64")
    born_time: int = wire("bornTime", "i64", default=0)
    attempt_id: str | None = wire("attemptId", "str", default=None)


class PopLightResponse(Header):
    """Java: PopLiteMessageResponseHeader (POP_LITE_MESSAGE 200070)."""

    pop_time: int = wire("popTime", "i64", default=0)
    invisible_time: int = wire("invisibleTime", "i64", default=0)
    revive_qid: int = wire("reviveQid", "i32", default=0)
    order_count_info: str | None = wire("orderCountInfo", "str", default=None)

    def counts(self, messages: int) -> list[int]:
        """Return how often each of so many messages was delivered before.

        RocketMQ 5.5.0 leaves the form of other pops (`0 qo0%1 2`) in what it makes of it, and its
        clients take what they cannot read as 0.
        """
        parts = (self.order_count_info or "").split(";")
        if len(parts) != messages:
            return [0] * messages
        return [_count(part) for part in parts]


def _count(text: str) -> int:
    last = text.rsplit(" ", maxsplit=1)[-1]
    return int(last) if last.isascii() and last.isdigit() and len(last) <= _DIGITS_MAX else 0


class NotifyUnsubscribeLightRequest(Header):
    """Java: NotifyUnsubscribeLiteRequestHeader (NOTIFY_UNSUBSCRIBE_LITE 200073)."""

    lite_topic: str = wire("liteTopic", "str")
    consumer_group: str = wire("consumerGroup", "str")
    client_id: str = wire("clientId", "str")


class ParentTopicInfoRequest(Header):
    """Java: GetParentTopicInfoRequestHeader (GET_PARENT_TOPIC_INFO 200075)."""

    topic: str = wire("topic", "str")


class LightTopicInfoRequest(Header):
    """Java: GetLiteTopicInfoRequestHeader (GET_LITE_TOPIC_INFO 200076)."""

    parent_topic: str = wire("parentTopic", "str", default="")
    lite_topic: str = wire("liteTopic", "str", default="")


class LightClientInfoRequest(Header):
    """Java: GetLiteClientInfoRequestHeader (GET_LITE_CLIENT_INFO 200077)."""

    parent_topic: str = wire("parentTopic", "str", default="")
    group: str = wire("group", "str", default="")
    client_id: str = wire("clientId", "str", default="")
    max_count: int = wire("maxCount", "i32", default=1000)


class LightGroupInfoRequest(Header):
    """Java: GetLiteGroupInfoRequestHeader (GET_LITE_GROUP_INFO 200078)."""

    group: str = wire("group", "str")
    lite_topic: str | None = wire("liteTopic", "str", default=None)
    top_k: int = wire("topK", "i32", default=20)


class TriggerLightDispatchRequest(Header):
    """Java: TriggerLiteDispatchRequestHeader (TRIGGER_LITE_DISPATCH 200079)."""

    group: str = wire("group", "str")
    client_id: str | None = wire("clientId", "str", default=None)
