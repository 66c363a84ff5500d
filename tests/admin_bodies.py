"""Bodies of admin requests: sound ones, and those of which one part is odd."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from roquet.protocol.codes import RequestCode as Code

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_QUEUE = {"topic": "T", "brokerName": "twin", "queueId": 0}
_SUBSCRIPTION = {
    "topic": "T",
    "subString": "*",
    "expressionType": "TAG",
    "subVersion": 1,
    "classFilterMode": False,
    "tagsSet": [],
    "codeSet": [],
}
_HEARTBEAT = {
    "producerDataSet": [{"groupName": "G"}],
    "consumerDataSet": [
        {
            "groupName": "G",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [_SUBSCRIPTION],
            "unitMode": False,
        }
    ],
    "heartbeatFingerprint": 0,
    "withoutSub": False,
    # Last: a member without an id spoils each later heartbeat of its group at a Java broker.
    "clientID": "c",
}
_TOPIC = {
    "topicName": "T",
    "readQueueNums": 3,
    "writeQueueNums": 3,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": False,
    "attributes": {},
}
_GROUP = {
    "groupName": "G",
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeBroadcastEnable": True,
    "consumeMessageOrderly": False,
    "retryQueueNums": 1,
    "retryMaxTimes": 16,
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "notifyConsumerIdsChangedEnable": True,
    "groupSysFlag": 0,
    "consumeTimeoutMinute": 15,
}
JSON: Mapping[Code, Mapping[str, Any]] = {
    Code.LOCK_BATCH_MQ: {"consumerGroup": "G", "clientId": "c", "mqSet": [_QUEUE]},
    Code.UNLOCK_BATCH_MQ: {"consumerGroup": "G", "clientId": "c", "mqSet": [_QUEUE]},
    Code.HEART_BEAT: _HEARTBEAT,
    Code.CHECK_CLIENT_CONFIG: {
        "clientId": "c",
        "group": "G",
        "namespace": "",
        "subscriptionData": _SUBSCRIPTION,
    },
    Code.UPDATE_AND_CREATE_TOPIC_LIST: {"topicConfigList": [_TOPIC]},
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _GROUP,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groupConfigList": [_GROUP]},
}
"""Code -> a sound body; T and G stand for the code's own names."""

TEXTS: Mapping[Code, Mapping[str, bytes]] = {
    Code.UPDATE_BROKER_CONFIG: {
        "live": b"maxMsgsNumBatch=64\n",
        "two": b"maxMsgsNumBatch=64\ndefaultQueryMaxNum=32\n",
        "unknown": b"noSuchKey=1\n",
        "no value": b"maxMsgsNumBatch\n",
        "not a number": b"maxMsgsNumBatch=x\n",
        "at start only": b"listenPort=1\n",
        "on the deny-list": b"brokerConfigPath=/tmp/x\n",
        "empty": b"",
        "comment": b"# nothing\n",
        "not UTF-8": b"\xff\xfe=1\n",
    },
}
"""Code -> case -> a body that is no JSON."""

_WHOLE = {"no body": b"", "{}": b"{}", "null": b"null", "[]": b"[]", "text": b"no json"}
_TEXTS: tuple[Any, ...] = ("", " ", "a b", "no_such", "t" * 200, None)
_NUMBERS: tuple[Any, ...] = (0, -1, 7, 2147483647, "x", None)


def heartbeat(group: str, topic: str) -> bytes:
    """Return the heartbeat of client `c`, producer and consumer of `group`."""
    return _dumped(_renamed(_HEARTBEAT, {"G": group, "T": topic}))


def bodies_of(code: Code) -> Iterator[tuple[str, bytes]]:
    """Yield (case, body) of a code; nothing for a code without a body."""
    yield from TEXTS.get(code, {}).items()
    plain = JSON.get(code)
    if plain is not None:
        yield from json_bodies(_renamed(plain, {name: f"D{int(code)}{name}" for name in "TG"}))


def json_bodies(plain: Any) -> Iterator[tuple[str, bytes]]:
    """Yield (case, body): whole ones, and those of which one part is odd or missing."""
    yield from _WHOLE.items()
    yield "body", _dumped(plain)
    for path in _paths(plain):
        name = ".".join(str(step) for step in path)
        for odd in _odd_values(_at(plain, path)):
            yield f"{name}={str(odd)[:20]}", _dumped(_with(plain, path, odd))
        yield f"no {name}", _dumped(_without(plain, path))


def _odd_values(value: object) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return ("yes", None)
    if isinstance(value, int):
        return _NUMBERS
    return _TEXTS if isinstance(value, str) else (None, "x")


def _paths(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to each part of a JSON value, the value itself left out."""
    if above:
        yield above
    if isinstance(value, dict):
        for key in value:
            yield from _paths(value[key], (*above, key))
    elif isinstance(value, list) and value:
        yield from _paths(value[0], (*above, 0))


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _with(value: Any, path: tuple[str | int, ...], odd: object) -> Any:
    changed = copy.deepcopy(value)
    _at(changed, path[:-1])[path[-1]] = odd
    return changed


def _without(value: Any, path: tuple[str | int, ...]) -> Any:
    changed = copy.deepcopy(value)
    del _at(changed, path[:-1])[path[-1]]
    return changed


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(part, names) for key, part in value.items()}
    if isinstance(value, list):
        return [_renamed(part, names) for part in value]
    return names.get(value, value) if isinstance(value, str) else value
