"""Which names topics and groups may have, and the names that mean something (spec: wire §16).

Checks return None, or the words that a 5.5.0 broker answers with.
"""

from __future__ import annotations

import re

TOPIC_LENGTH_MAX = 127
RETRY_TOPIC_LENGTH_MAX = 255
GROUP_LENGTH_MAX = 120

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
_ILLEGAL = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
REPLY_SUFFIX = "_REPLY_TOPIC"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_TRANS_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_TRANS_OP_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
HEARTBEAT_SYNC_TOPIC = "DefaultHeartBeatSyncerTopic"
"""What proxies tell one another in; to brokers a topic as any other."""
REVIVE_TOPIC_PREFIX = SYSTEM_TOPIC_PREFIX + "REVIVE_LOG_"

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        CHECKPOINT_TOPIC,
        ROCKSDB_TRANS_HALF_TOPIC,
        ROCKSDB_TRANS_OP_HALF_TOPIC,
    }
)
"""The fixed ones; a broker adds those named after its cluster and itself."""

WAITING_ROOMS = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        ROCKSDB_TRANS_HALF_TOPIC,
        ROCKSDB_TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
    }
)
"""Topics of the broker's own in which messages of all other topics wait, or what settles them."""


def is_waiting_room(topic: str) -> bool:
    """Tell whether messages of other topics wait in a topic, or what settles them.

    Topics of checkpoints are among these: who reads them can settle what others popped.
    """
    return topic in WAITING_ROOMS or topic.startswith(REVIVE_TOPIC_PREFIX)


SEND_BLACK_LIST = WAITING_ROOMS | {SELF_TEST_TOPIC, OFFSET_MOVED_EVENT}
"""Nobody sends to these; the broker alone writes there."""

DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
COMMAND_LINE_GROUP = "roquet_cli"
"""Producers and consumers of the command line belong to it unless a group is named."""
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
PREDEFINED_GROUPS = frozenset(
    {
        DEFAULT_PRODUCER_GROUP,
        "DEFAULT_CONSUMER",
        "TOOLS_CONSUMER",
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        INNER_PRODUCER_GROUP,
        "SELF_TEST_P_GROUP",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
        "CID_RMQ_SYS_TRANS",
    }
)


def retry_topic(group: str) -> str:
    """Return the topic that a group's messages are sent back to."""
    return group if group.startswith(RETRY_PREFIX) else RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic of a group's dead letters."""
    return group if group.startswith(DLQ_PREFIX) else DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Return the topic that replies of the request-reply form go through."""
    return cluster + REPLY_SUFFIX


def is_retry(topic: str) -> bool:
    """Tell whether a topic holds messages sent back."""
    return topic.startswith(RETRY_PREFIX)


def is_dlq(topic: str) -> bool:
    """Tell whether a topic holds dead letters."""
    return topic.startswith(DLQ_PREFIX)


def is_lmq(topic: str | None) -> bool:
    """Tell whether a name is a light queue's."""
    return topic is not None and topic.startswith(LMQ_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Tell whether a name belongs to the fixed system topics or has their prefix."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_hidden(topic: str) -> bool:
    """Tell whether a topic is no user's: a system topic, or that of the proxies."""
    return is_system_topic(topic) or topic == HEARTBEAT_SYNC_TOPIC


def is_system_group(group: str) -> bool:
    """Tell whether a group is one of the brokers' own."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def check_topic(topic: str | None) -> str | None:
    """Return what is wrong with a topic name, None when it is legal."""
    if topic is None or not topic.strip():
        return "The specified topic is blank."
    if _LEGAL.fullmatch(topic) is None:
        return f"The specified topic: {topic}, {_ILLEGAL}"
    if is_retry(topic) or is_dlq(topic):
        if len(topic) > RETRY_TOPIC_LENGTH_MAX:
            return (
                f"The specified topic is DLQ or Retry topic: {topic}"
                f", and it's longer than topic max length: {RETRY_TOPIC_LENGTH_MAX}"
            )
        return None
    if len(topic) > TOPIC_LENGTH_MAX:
        return f"The specified topic: {topic}, is longer than topic max length: {TOPIC_LENGTH_MAX}"
    return None


def check_group(group: str | None) -> str | None:
    """Return what is wrong with a group name, None when it is legal."""
    if group is None or not group.strip():
        return "The specified group is blank."
    if _LEGAL.fullmatch(group) is None:
        return f"The specified group: {group}, {_ILLEGAL}"
    if len(group) > GROUP_LENGTH_MAX:
        return f"The specified group: {group}, is longer than group max length: {GROUP_LENGTH_MAX}"
    return None


def check_not_system(topic: str) -> str | None:
    """Return the refusal for a system topic that an administrator may not change."""
    if is_system_topic(topic):
        return f"The topic[{topic}] is conflict with system topic."
    return None


def check_may_send(topic: str) -> str | None:
    """Return the refusal for a topic that nobody may send to (code 16).

    Other than Java, revive topics are among them: whoever writes a checkpoint there has any
    message of any topic copied for a group of his choice.
    """
    if topic in SEND_BLACK_LIST or topic.startswith(REVIVE_TOPIC_PREFIX):
        return f"Sending message to topic[{topic}] is forbidden."
    return None
