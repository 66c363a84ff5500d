"""Headers of queue offsets.

Class and field names are ours; `wire` holds the Java field name, the docstring the Java class.
"""

from __future__ import annotations

from roquet.protocol.header import Header, wire


class QueryConsumerOffsetRequest(Header):
    """Java: QueryConsumerOffsetRequestHeader (QUERY_CONSUMER_OFFSET 14)."""

    consumer_group: str = wire("consumerGroup", "str")
    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")
    set_zero_if_not_found: bool | None = wire("setZeroIfNotFound", "bool", default=None)


class QueryConsumerOffsetResponse(Header):
    """Java: QueryConsumerOffsetResponseHeader (QUERY_CONSUMER_OFFSET 14)."""

    offset: int = wire("offset", "i64")


class UpdateConsumerOffsetRequest(Header):
    """Java: UpdateConsumerOffsetRequestHeader (UPDATE_CONSUMER_OFFSET 15)."""

    consumer_group: str = wire("consumerGroup", "str")
    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")
    commit_offset: int = wire("commitOffset", "i64")


class UpdateConsumerOffsetResponse(Header):
    """Java: UpdateConsumerOffsetResponseHeader (UPDATE_CONSUMER_OFFSET 15)."""


class SearchOffsetRequest(Header):
    """Java: SearchOffsetRequestHeader (SEARCH_OFFSET_BY_TIMESTAMP 29)."""

    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")
    timestamp: int = wire("timestamp", "i64")
    boundary_type: str | None = wire("boundaryType", "boundary", default=None)
    lite_topic: str | None = wire("liteTopic", "str", default=None)


class SearchOffsetResponse(Header):
    """Java: SearchOffsetResponseHeader (SEARCH_OFFSET_BY_TIMESTAMP 29)."""

    offset: int = wire("offset", "i64")


class GetMaxOffsetRequest(Header):
    """Java: GetMaxOffsetRequestHeader (GET_MAX_OFFSET 30)."""

    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")
    committed: bool = wire("committed", "bool", default=False)


class GetMaxOffsetResponse(Header):
    """Java: GetMaxOffsetResponseHeader (GET_MAX_OFFSET 30)."""

    offset: int = wire("offset", "i64")


class GetMinOffsetRequest(Header):
    """Java: GetMinOffsetRequestHeader (GET_MIN_OFFSET 31)."""

    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")


class GetMinOffsetResponse(Header):
    """Java: GetMinOffsetResponseHeader (GET_MIN_OFFSET 31)."""

    offset: int = wire("offset", "i64")


class GetEarliestMsgStoretimeRequest(Header):
    """Java: GetEarliestMsgStoretimeRequestHeader (GET_EARLIEST_MSG_STORETIME 32)."""

    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")


class GetEarliestMsgStoretimeResponse(Header):
    """Java: GetEarliestMsgStoretimeResponseHeader (GET_EARLIEST_MSG_STORETIME 32)."""

    timestamp: int = wire("timestamp", "i64")


HAS_LIGHT_OFFSETS = "lightOffsets"
"""Our own field of the answer to GET_ALL_CONSUMER_OFFSET (43): offsets of light topics that are not
in its table are not there. RocketMQ's masters leave all of them out.
"""
DELETIONS = "deletions"
"""Our own field of 43, too.

In a request: the answer shall be the list of deletions (`DeletionsBody`) instead of offsets. In an
answer with offsets: a text that differs when the list has changed; in one with the list: "true".
RocketMQ knows neither, and answers with offsets.
"""
DELETIONS_SINCE = "deletionsSince"
"""Beside it in a request: the version that the slave has. The answer names the present one here,
and lists nothing when that is the same. A master of an earlier release always sends the list.
"""
