"""Differences between answers to admin requests that are accepted, each with its reason.

A difference is accepted for the codes, the parts of a request and the two response codes that its
row names, for no others. `part` is the name of a field, of a field of a JSON body, or the case of
a body (see `admin_differential`); `no part` is one that is missing.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.protocol.codes import RequestCode as Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admin_differential import Asked

    Shape = tuple[object, ...]

NOT_OF_ITS_KIND = "what is not of its field's kind (a number, say) is answered 29, by RocketMQ 1"
_WRONG_KIND = ("x", "yes", "9223372036854775807")


@dataclasses.dataclass(frozen=True)
class Difference:
    """One reason, where it holds, and with which response codes."""

    reason: str
    ours: frozenset[int]
    java: frozenset[int]
    where: Mapping[Code, tuple[str, ...]]

    def explains(self, asked: Asked, ours: Shape, java: Shape) -> str | None:
        """Return the part that is the reason for two unlike answers, None when there is none."""
        if ours[0] not in self.ours or java[0] not in self.java:
            return None
        odd = parts_of(asked.case)
        return next((part for part in self.where.get(asked.code, ()) if part in odd), None)

    def line(self) -> str:
        """Return the line of the page on compatibility."""
        shown = [
            f"{int(code)} {', '.join(part.removeprefix('no ') for part in parts)}"
            for code, parts in sorted(self.where.items())
        ]
        return f"{self.reason}: {'; '.join(shown)}"


def parts_of(case: str) -> set[str]:
    """Return which parts of a request a case makes odd."""
    return {_part(one) for one in case.split(", ")}


def _part(one: str) -> str:
    missing, name = one.startswith("no "), one.partition("=")[0].removeprefix("no ")
    steps = [step for step in name.split(".") if step != "0"]
    return f"{'no ' if missing else ''}{steps[-1]}" if steps and name != "body" else one


def _codes(*codes: int) -> frozenset[int]:
    return frozenset(codes)


_NOT_JSON = ("plain", "no body", "null", "[]", "text")
_SETTINGS = ("unknown", "no value", "not a number", "at start only", "not UTF-8")
_QUEUES = ("readQueueNums", "writeQueueNums", "perm")

BROKER: tuple[Difference, ...] = (
    Difference(
        "a request without a field that its header requires is refused (1); RocketMQ goes on with"
        " null or 0",
        _codes(1, 29),
        _codes(0, 22, 26, 29, 604),
        {
            Code.QUERY_MESSAGE: ("no topic", "no key"),
            Code.QUERY_CONSUMER_OFFSET: ("no consumerGroup",),
            Code.UPDATE_CONSUMER_OFFSET: ("no consumerGroup", "no queueId", "no commitOffset"),
            Code.UNREGISTER_CLIENT: ("no clientID",),
            Code.INVOKE_BROKER_TO_RESET_OFFSET: ("no group", "no timestamp"),
            Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ("no topic",),
            Code.QUERY_CONSUME_TIME_SPAN: ("no group",),
            Code.QUERY_CORRECTION_OFFSET: ("no compareGroup",),
            Code.CLONE_GROUP_OFFSET: ("no destGroup",),
            Code.QUERY_CONSUME_QUEUE: ("no count",),
            Code.RECALL_MESSAGE: ("no recallHandle",),
            Code.RESET_MASTER_FLUSH_OFFSET: ("no masterFlushOffset",),
        },
    ),
    Difference(
        "what is not a number is refused (29), where RocketMQ goes on without it",
        _codes(29),
        _codes(0),
        {
            Code.UPDATE_AND_CREATE_TOPIC: ("topicSysFlag",),
            Code.CONSUMER_SEND_MSG_BACK: ("maxReconsumeTimes",),
            Code.INVOKE_BROKER_TO_RESET_OFFSET: ("timestamp",),
            Code.RESET_MASTER_FLUSH_OFFSET: ("masterFlushOffset",),
        },
    ),
    Difference(
        "queues, offsets, counts and permissions out of range are refused (29)",
        _codes(29),
        _codes(0),
        {
            Code.UPDATE_CONSUMER_OFFSET: ("queueId", "commitOffset"),
            Code.UPDATE_AND_CREATE_TOPIC: _QUEUES,
            Code.UPDATE_AND_CREATE_TOPIC_LIST: _QUEUES,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ("retryQueueNums", "retryMaxTimes"),
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: ("retryQueueNums", "retryMaxTimes"),
            Code.QUERY_CONSUME_QUEUE: ("queueId", "index", "count"),
        },
    ),
    Difference(
        "names that no topic or group may have are refused (29)",
        _codes(29),
        _codes(0),
        {
            Code.UPDATE_AND_GET_GROUP_FORBIDDEN: ("group", "topic"),
            Code.HEART_BEAT: ("groupName",),
        },
    ),
    Difference(
        "a body that is no JSON object is refused (29, 46: 1); RocketMQ does nothing or ends in an"
        " exception (1)",
        _codes(1, 29),
        _codes(0, 1),
        {
            Code.UPDATE_AND_CREATE_TOPIC_LIST: _NOT_JSON,
            Code.CHECK_CLIENT_CONFIG: ("null",),
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _NOT_JSON,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _NOT_JSON,
        },
    ),
    Difference(
        "a list that is missing or null is empty (0), null in a list is refused (29); RocketMQ ends"
        " in an exception (1)",
        _codes(0, 29),
        _codes(1),
        {
            Code.UPDATE_AND_CREATE_TOPIC_LIST: ("{}", "topicConfigList", "no topicConfigList"),
            Code.HEART_BEAT: ("producerDataSet", "consumerDataSet", "subscriptionDataSet"),
            Code.LOCK_BATCH_MQ: ("mqSet",),
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (
                "{}",
                "groupConfigList",
                "no groupConfigList",
            ),
        },
    ),
    Difference(
        "text where a list is expected, null in a list of queues are refused (1)",
        _codes(1),
        _codes(0),
        {
            Code.HEART_BEAT: ("tagsSet",),
            Code.UNLOCK_BATCH_MQ: ("mqSet",),
            Code.CHECK_CLIENT_CONFIG: ("tagsSet",),
        },
    ),
    Difference(
        "names that are missing or null are empty (0) or refused (29); RocketMQ ends in an"
        " exception (1)",
        _codes(0, 29),
        _codes(1),
        {
            Code.HEART_BEAT: ("groupName", "no groupName", "topic", "no topic", "no clientID"),
            Code.QUERY_SUBSCRIPTION_BY_CONSUMER: ("no topic",),
        },
    ),
    Difference(
        "queue locks without a group or a client are refused (1)",
        _codes(1),
        _codes(0),
        {
            Code.LOCK_BATCH_MQ: ("{}", "consumerGroup", "clientId", "no clientId"),
            Code.UNLOCK_BATCH_MQ: ("consumerGroup", "clientId", "no clientId"),
        },
    ),
    Difference(
        "a new group begins at 0 in a queue that never had a message (`newQueueFromZero`)",
        _codes(0),
        _codes(22),
        {Code.QUERY_CONSUMER_OFFSET: ("topic", "queueId")},
    ),
    Difference(
        "a queue that never had a message does not exist (1); by RocketMQ only until somebody asks"
        " for its offsets",
        _codes(1),
        _codes(0),
        {Code.QUERY_CONSUME_QUEUE: ("topic",)},
    ),
    Difference(
        "nothing is found where fewer than no messages are asked for; RocketMQ ends in an exception"
        " (1)",
        _codes(22),
        _codes(1),
        {Code.QUERY_MESSAGE: ("maxNum",)},
    ),
    Difference(
        "what is no message id is answered 29, by RocketMQ 1",
        _codes(29),
        _codes(1),
        {
            Code.CONSUME_MESSAGE_DIRECTLY: (
                "plain",
                "msgId",
                "no msgId",
                "brokerName",
                "no brokerName",
                "topic",
                "no topic",
            )
        },
    ),
    Difference(
        "settings that are not live or not valid are refused (29); RocketMQ answers 0 and ignores"
        " them",
        _codes(29),
        _codes(0),
        {Code.UPDATE_BROKER_CONFIG: _SETTINGS},
    ),
    Difference(
        "offsets of all groups come without two tables that no reader uses",
        _codes(0),
        _codes(0),
        {Code.GET_ALL_CONSUMER_OFFSET: ("plain",)},
    ),
)
"""What a broker answers otherwise than Java's."""

_BROKER_NAMES = ("no clusterName", "no brokerName", "no brokerAddr")

NAME_SERVER: tuple[Difference, ...] = (
    Difference(
        "a request without a field that its header requires is refused (1); RocketMQ goes on with"
        " null or 0",
        _codes(1),
        _codes(0, 22),
        {
            Code.PUT_KV_CONFIG: ("no value",),
            Code.GET_KV_CONFIG: ("no namespace", "no key"),
            Code.DELETE_KV_CONFIG: ("no namespace", "no key"),
            Code.REGISTER_BROKER: (*_BROKER_NAMES, "no haServerAddr"),
            Code.UNREGISTER_BROKER: (*_BROKER_NAMES, "no brokerId"),
            Code.WIPE_WRITE_PERM_OF_BROKER: ("no brokerName",),
            Code.DELETE_TOPIC_IN_NAMESRV: ("no topic",),
            Code.REGISTER_TOPIC_IN_NAMESRV: ("no topic",),
            Code.GET_KVLIST_BY_NAMESPACE: ("no namespace",),
            Code.GET_TOPICS_BY_CLUSTER: ("no cluster",),
            Code.QUERY_DATA_VERSION: ("no brokerName", "no brokerId"),
            Code.ADD_WRITE_PERM_OF_BROKER: ("no brokerName",),
            Code.GET_BROKER_MEMBER_GROUP: ("no clusterName", "no brokerName"),
            Code.BROKER_HEARTBEAT: ("no brokerName",),
        },
    ),
    Difference(
        "what is not a number is refused (29), where RocketMQ goes on without it",
        _codes(29),
        _codes(0),
        {Code.UNREGISTER_BROKER: ("brokerId",), Code.QUERY_DATA_VERSION: ("brokerId",)},
    ),
    Difference(
        "names, addresses, ids, queues and permissions that no broker or topic may have are refused"
        " (29)",
        _codes(29),
        _codes(0),
        {
            Code.PUT_KV_CONFIG: ("namespace", "key"),
            Code.REGISTER_BROKER: (
                *("clusterName", "brokerName", "brokerAddr", "brokerId", "topicName"),
                *_QUEUES,
            ),
            Code.REGISTER_TOPIC_IN_NAMESRV: ("topic", *_QUEUES),
        },
    ),
    Difference(
        "a body that is no JSON object, and null in a list, is refused (29); RocketMQ does nothing"
        " or ends in an exception (1)",
        _codes(29),
        _codes(0, 1),
        {
            Code.REGISTER_TOPIC_IN_NAMESRV: ("null", "[]", "text", "queueDatas"),
            Code.QUERY_DATA_VERSION: ("no body", "null", "[]", "text"),
        },
    ),
    Difference(
        "an answer (0) has a remark when another living broker has the name and id",
        _codes(0),
        _codes(0),
        {Code.QUERY_DATA_VERSION: ("brokerAddr",)},
    ),
    Difference(
        "text where a list is expected is refused (1)",
        _codes(1),
        _codes(0),
        {Code.REGISTER_BROKER: ("filterServerList",)},
    ),
    Difference(
        "settings that are not live or not valid are refused (29); RocketMQ answers 0 and ignores"
        " them",
        _codes(29),
        _codes(0),
        {Code.UPDATE_NAMESRV_CONFIG: _SETTINGS},
    ),
)
"""What a name server answers otherwise than Java's."""


def reason_of(
    asked: Asked, ours: Shape, java: Shape, accepted: Iterable[Difference]
) -> tuple[str, Code, str] | None:
    """Return why a difference is accepted, with its code and part; None when it is not."""
    if (ours[0], java[0]) == (29, 1) and _has_wrong_kind(asked.case):
        return NOT_OF_ITS_KIND, asked.code, ""
    for difference in accepted:
        part = difference.explains(asked, ours, java)
        if part is not None:
            return difference.reason, asked.code, part
    return None


def rows_of(accepted: Iterable[Difference]) -> set[tuple[str, Code, str]]:
    """Return all (reason, code, part) that are accepted."""
    return {
        (one.reason, code, part)
        for one in accepted
        for code, parts in one.where.items()
        for part in parts
    }


def _has_wrong_kind(case: str) -> bool:
    return any(one.partition("=")[2] in _WRONG_KIND for one in case.split(", "))
