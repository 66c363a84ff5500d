"""The bodies that cost most to read, at the limit of their code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from roquet.broker.network.body_limits import body_max
from roquet.protocol.codes import RequestCode
from roquet.protocol.fastjson import REQUEST_SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    Made = tuple[RequestCode, bytes]


def heartbeat(groups: int, topics: int) -> bytes:
    """Return the heartbeat of a client that is in many groups, as Java writes it."""
    return json.dumps(
        {
            "clientID": "one",
            "consumerDataSet": [
                {
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "consumeType": "CONSUME_PASSIVELY",
                    "groupName": f"g{group}",
                    "messageModel": "CLUSTERING",
                    "subscriptionDataSet": [
                        {
                            "classFilterMode": False,
                            "codeSet": [],
                            "expressionType": "TAG",
                            "subString": "*",
                            "subVersion": 1,
                            "tagsSet": [],
                            "topic": f"topic-{topic}",
                        }
                        for topic in range(topics)
                    ],
                    "unitMode": False,
                }
                for group in range(groups)
            ],
            "heartbeatFingerprint": 0,
            "producerDataSet": [],
        }
    ).encode()


def filled(code: RequestCode, start: bytes, item: bytes, end: bytes, limit: int = 0) -> Made:
    """Return a body of as many items as fit."""
    room = (limit or body_max(code)) - len(start) - len(end)
    count = room // (len(item) + 1)
    return code, start + b",".join([item] * count) + end


def _subscriptions() -> Made:
    """Many groups with many small subscriptions, in strict JSON."""
    code = RequestCode.HEART_BEAT
    size = body_max(code)
    groups = size // 1_700
    body = heartbeat(groups, topics=8)
    while len(body) > size:
        groups -= 10
        body = heartbeat(groups, topics=8)
    return code, body


def _new_groups() -> Made:
    """As many new groups as a heartbeat may name: each makes a group and a retry topic."""
    return RequestCode.HEART_BEAT, heartbeat(2_000, topics=0)


def _loose(code: RequestCode, start: bytes, item: bytes, end: bytes) -> Callable[[], Made]:
    """Return what makes JSON that only the tolerant reader takes."""
    return lambda: filled(code, start, item, end, min(REQUEST_SIZE_MAX, body_max(code)))


_LOCK_START = b'{"clientId":"one","consumerGroup":"g","mqSet":['
_QUEUE = b'{"brokerName":"b","queueId":1,"topic":"t"}'

WORST: dict[str, Callable[[], Made]] = {
    "subscriptions": _subscriptions,
    "new groups": _new_groups,
    "loose heartbeat": _loose(
        RequestCode.HEART_BEAT, b"{clientID:'one',producerDataSet:[", b"{}", b"]}"
    ),
    "locks": lambda: filled(RequestCode.LOCK_BATCH_MQ, _LOCK_START, _QUEUE, b"]}"),
    "loose locks": _loose(
        RequestCode.LOCK_BATCH_MQ,
        b"{clientId:'one',consumerGroup:'g',mqSet:[",
        b"{brokerName:'b',queueId:1,topic:'t'}",
        b"]}",
    ),
    "unlocks": lambda: filled(RequestCode.UNLOCK_BATCH_MQ, _LOCK_START, _QUEUE, b"]}"),
    "topics": lambda: filled(
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        b'{"topicConfigList":[',
        b'{"topicName":"t","readQueueNums":1,"writeQueueNums":1,"perm":6}',
        b"]}",
    ),
    "loose topics": _loose(
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, b"{topicConfigList:[", b"{}", b"]}"
    ),
    "groups": lambda: filled(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        b'{"groupConfigList":[',
        b'{"groupName":"g","retryQueueNums":1,"retryMaxTimes":16}',
        b"]}",
    ),
}
"""What it is -> its code and the body."""
