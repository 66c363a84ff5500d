"""Requests to a name server with drawn arguments, and what of two answers has to be alike.

Nothing in the answers belongs to one name server alone, so all of them is compared but the texts
of remarks.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from admin_bodies import json_bodies
from admin_differential import Asked, with_one_odd, with_two_odd
from roquet.protocol import fastjson
from roquet.protocol.codes import RequestCode as Code

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

    from roquet.protocol.command import Command

_BROKER = {"clusterName": "C", "brokerName": "B", "brokerAddr": "127.0.0.1:20000"}

FIELDS: Mapping[Code, Mapping[str, str]] = {
    Code.GET_ROUTEINFO_BY_TOPIC: {"topic": "T", "acceptStandardJsonOnly": "true"},
    Code.GET_BROKER_CLUSTER_INFO: {},
    Code.GET_BROKER_MEMBER_GROUP: {"clusterName": "C", "brokerName": "B"},
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {},
    Code.GET_TOPICS_BY_CLUSTER: {"cluster": "C"},
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: {},
    Code.GET_UNIT_TOPIC_LIST: {},
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: {},
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: {},
    Code.QUERY_DATA_VERSION: {**_BROKER, "brokerId": "0"},
    Code.BROKER_HEARTBEAT: {"clusterName": "C", "brokerName": "B", "brokerAddr": "127.0.0.1:20000"},
    Code.WIPE_WRITE_PERM_OF_BROKER: {"brokerName": "B"},
    Code.ADD_WRITE_PERM_OF_BROKER: {"brokerName": "B"},
    Code.GET_KV_CONFIG: {"namespace": "N", "key": "K"},
    Code.GET_KVLIST_BY_NAMESPACE: {"namespace": "N"},
    Code.DELETE_KV_CONFIG: {"namespace": "N", "key": "K"},
    Code.REGISTER_TOPIC_IN_NAMESRV: {"topic": "T"},
    Code.DELETE_TOPIC_IN_NAMESRV: {"topic": "T", "clusterName": "C"},
    Code.UPDATE_NAMESRV_CONFIG: {},
    Code.GET_NAMESRV_CONFIG: {},
    Code.UNREGISTER_BROKER: {**_BROKER, "brokerId": "0"},
    Code.PUT_KV_CONFIG: {"namespace": "N", "key": "K", "value": "V"},
    Code.REGISTER_BROKER: {**_BROKER, "haServerAddr": "127.0.0.1:20001", "brokerId": "0"},
}
"""Code -> its fields with arguments that make sense, those that leave something behind last.

Capitals stand for the code's own names.
"""

_VERSION = {"timestamp": 1700000000000, "counter": 3, "stateVersion": 0}
_TOPIC = {
    "readQueueNums": 3,
    "writeQueueNums": 3,
    "perm": 6,
    "topicSysFlag": 3,
    "topicFilterType": "SINGLE_TAG",
    "order": False,
}
_REGISTRATION = {
    "topicConfigSerializeWrapper": {
        # A broker that nobody knows and that has one topic is not taken in, by either.
        "topicConfigTable": {
            "T": {"topicName": "T", **_TOPIC},
            "U": {"topicName": "U", **_TOPIC, "topicSysFlag": 2},
        },
        "dataVersion": _VERSION,
    },
    "filterServerList": [],
}
_ROUTE = {
    "brokerDatas": [],
    "queueDatas": [
        {"brokerName": "B", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6, "topicSysFlag": 0}
    ],
}
JSON: Mapping[Code, Mapping[str, Any]] = {
    Code.REGISTER_BROKER: _REGISTRATION,
    Code.QUERY_DATA_VERSION: _VERSION,
    Code.REGISTER_TOPIC_IN_NAMESRV: _ROUTE,
}
TEXTS: Mapping[Code, Mapping[str, bytes]] = {
    Code.UPDATE_NAMESRV_CONFIG: {
        "live": b"enableTopicList=true\n",
        "unknown": b"noSuchKey=1\n",
        "no value": b"enableTopicList\n",
        "not a number": b"waitSecondsForService=x\n",
        "at start only": b"listenPort=1\n",
        "on the deny-list": b"kvConfigPath=/tmp/x\n",
        "empty": b"",
        "comment": b"# nothing\n",
        "not UTF-8": b"\xff\xfe=1\n",
    },
}


def own(text: str, code: Code) -> str:
    """Return a name in the code's own namespace, an address on the code's own port."""
    if text in {"T", "U", "B", "C", "N"}:
        return f"D{int(code)}{text}"
    return text.replace(":2000", f":2{int(code):03d}")


def requests(rng: random.Random, draws: int) -> Iterator[Asked]:
    """Yield for each code a plain request, each field missing or odd, odd bodies, and draws."""
    for code, plain in FIELDS.items():
        fields = {name: own(text, code) for name, text in plain.items()}
        body = _named(JSON[code], code) if code in JSON else b""
        yield Asked(code, "plain", fields, body)
        yield from with_one_odd(code, fields, body)
        # What Java takes in of an odd registration would be in its next answers.
        for _ in range(draws if len(fields) > 1 and code != Code.REGISTER_BROKER else 0):
            yield with_two_odd(code, fields, rng, body)
        for case, odd in _bodies_of(code):
            yield Asked(code, case, fields, odd)
        yield Asked(code, "plain again", fields, body)


def furniture(code: Code) -> Iterator[Asked]:
    """Yield what makes a code's broker with its topic, and its key-value pair."""
    broker = FIELDS[Code.REGISTER_BROKER]
    fields = {name: own(text, code) for name, text in broker.items()}
    yield Asked(Code.REGISTER_BROKER, "furniture", fields, _named(_REGISTRATION, code))
    pair = {"namespace": own("N", code), "key": "K", "value": "V"}
    yield Asked(Code.PUT_KV_CONFIG, "furniture", pair)


def _bodies_of(code: Code) -> Iterator[tuple[str, bytes]]:
    yield from TEXTS.get(code, {}).items()
    if code in JSON:
        yield from json_bodies(json.loads(_named(JSON[code], code)))


def _named(value: object, code: Code) -> bytes:
    text = json.dumps(value)
    for name in ("T", "U", "B"):
        text = text.replace(f'"{name}"', f'"{own(name, code)}"')
    return text.encode()


def shape(answer: Command) -> tuple[object, ...]:
    """Return code, whether there is a remark, the fields, and the body without its order."""
    remark = "none" if answer.remark is None else "text" if answer.remark else "empty"
    if answer.code != 0:
        return answer.code, remark
    return answer.code, remark, tuple(sorted((answer.ext or {}).items())), _content(answer.body)


def _content(body: bytes) -> str:
    if not body:
        return ""
    try:
        content = fastjson.read_object(body)
    except fastjson.JsonError:
        return "settings"
    if content.get("brokerAddr"):
        content["brokerAddr"] = "any broker"  # Of many: Java's choice is that of its hash table.
    return repr(_sorted(content))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((str(key), _sorted(part)) for key, part in value.items())
    if isinstance(value, list):
        return sorted((_sorted(part) for part in value), key=repr)
    return value
