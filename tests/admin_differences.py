"""Differences between answers to admin requests that are accepted, each with its reason.

A shape is (code, remark, names of fields, keys of the body); see `admin_differential`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol.codes import RequestCode as Code

if TYPE_CHECKING:
    from collections.abc import Callable

    from admin_differential import Asked

    Shape = tuple[object, ...]
    Rule = Callable[[Asked, Shape, Shape], bool]


def _no_number(asked: Asked, ours: Shape, java: Shape) -> bool:
    return ours[0] == 29 and java[0] == 1 and "=" in asked.case


def _absent(asked: Asked, ours: Shape, _: Shape) -> bool:
    return ours[0] in (1, 29) and asked.case.startswith("no ")


def _out_of_range(asked: Asked, ours: Shape, java: Shape) -> bool:
    ranged = {
        Code.UPDATE_CONSUMER_OFFSET: ("queueId", "commitOffset"),
        Code.QUERY_CONSUME_QUEUE: ("queueId", "index", "count"),
        Code.UPDATE_AND_CREATE_TOPIC: ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag"),
    }
    name = asked.case.partition("=")[0]
    return ours[0] in (1, 29) and java[0] == 0 and name in ranged.get(asked.code, ())


def _bad_name(asked: Asked, ours: Shape, _: Shape) -> bool:
    is_name = asked.case.partition("=")[0] in {"group", "topic"}
    return asked.code == Code.UPDATE_AND_GET_GROUP_FORBIDDEN and is_name and ours[0] == 29


def _offsets(asked: Asked, ours: Shape, java: Shape) -> bool:
    if asked.code != Code.GET_ALL_CONSUMER_OFFSET or ours[:3] != java[:3]:
        return False
    return java[3] == tuple(sorted((*_texts(ours[3]), "groupTopicMap", "pullOffsetTable")))


def _texts(keys: object) -> tuple[str, ...]:
    return tuple(str(key) for key in keys) if isinstance(keys, tuple) else ()


ACCEPTED: dict[str, Rule] = {
    "what is not a number is answered 29, where RocketMQ says 1": _no_number,
    "a request without a field that its header requires is refused; RocketMQ goes on with"
    " null or 0": _absent,
    "queues, offsets and counts out of range are refused": _out_of_range,
    "names that no topic or group may have are refused (353)": _bad_name,
    "offsets of all groups (43) come without two tables that no reader uses": _offsets,
}
"""Reason -> whether a difference is of that kind."""


def reason_of(asked: Asked, ours: Shape, java: Shape) -> str | None:
    """Return why a difference is accepted, None when it is not."""
    for reason, holds in ACCEPTED.items():
        if holds(asked, ours, java):
            return reason
    return None
