"""Admin requests with drawn arguments, and what of two answers has to be alike."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from admin_bodies import bodies_of, heartbeat
from roquet.protocol import fastjson
from roquet.protocol.codes import RequestCode as Code
from roquet.protocol.command import Command

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

ODD = ("", " ", "a b", "t" * 200, "TBW102")
NUMBERS = ("0", "1", "3", "-1", "7", "2147483647", "9223372036854775807", "x")


@dataclasses.dataclass(frozen=True)
class Asked:
    """One request; `case` says in a word what is odd about it."""

    code: Code
    case: str
    ext: Mapping[str, str]
    body: bytes = b""

    def command(self) -> Command:
        return Command(self.code, dict(self.ext), self.body)


FIELDS: Mapping[Code, Mapping[str, str]] = {
    Code.QUERY_CONSUMER_OFFSET: {"consumerGroup": "G", "topic": "T", "queueId": "0"},
    Code.UPDATE_CONSUMER_OFFSET: {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "0",
        "commitOffset": "1",
    },
    Code.SEARCH_OFFSET_BY_TIMESTAMP: {"topic": "T", "queueId": "0", "timestamp": "1"},
    Code.GET_MAX_OFFSET: {"topic": "T", "queueId": "0"},
    Code.GET_MIN_OFFSET: {"topic": "T", "queueId": "0"},
    Code.GET_EARLIEST_MSG_STORETIME: {"topic": "T", "queueId": "0"},
    Code.QUERY_MESSAGE: {
        "topic": "T",
        "key": "k",
        "maxNum": "32",
        "beginTimestamp": "0",
        "endTimestamp": "9223372036854775807",
    },
    Code.VIEW_MESSAGE_BY_ID: {"offset": "0"},
    Code.GET_CONSUMER_LIST_BY_GROUP: {"consumerGroup": "G"},
    Code.GET_TOPIC_STATS_INFO: {"topic": "T"},
    Code.GET_CONSUMER_CONNECTION_LIST: {"consumerGroup": "G"},
    Code.GET_PRODUCER_CONNECTION_LIST: {"producerGroup": "G"},
    Code.GET_CONSUME_STATS: {"consumerGroup": "G", "topic": "T"},
    Code.INVOKE_BROKER_TO_RESET_OFFSET: {
        "topic": "T",
        "group": "G",
        "timestamp": "-1",
        "isForce": "true",
    },
    Code.QUERY_TOPIC_CONSUME_BY_WHO: {"topic": "T"},
    Code.QUERY_TOPICS_BY_CONSUMER: {"group": "G"},
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: {"group": "G", "topic": "T"},
    Code.QUERY_CONSUME_TIME_SPAN: {"group": "G", "topic": "T"},
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: {},
    Code.GET_CONSUMER_RUNNING_INFO: {"consumerGroup": "G", "clientId": "c"},
    Code.QUERY_CORRECTION_OFFSET: {"filterGroups": "", "compareGroup": "G", "topic": "T"},
    Code.CLONE_GROUP_OFFSET: {"srcGroup": "G", "destGroup": "H", "topic": "T"},
    Code.VIEW_BROKER_STATS_DATA: {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"},
    Code.GET_BROKER_CONSUME_STATS: {"isOrder": "false"},
    Code.QUERY_CONSUME_QUEUE: {"topic": "T", "queueId": "0", "index": "0", "count": "3"},
    Code.GET_TOPIC_CONFIG: {"topic": "T"},
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: {"group": "G"},
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: {"group": "G", "topic": "T", "readable": "false"},
    Code.GET_ALL_TOPIC_CONFIG: {},
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {},
    Code.GET_ALL_CONSUMER_OFFSET: {},
    Code.GET_ALL_DELAY_OFFSET: {},
    Code.GET_BROKER_RUNTIME_INFO: {},
    Code.UPDATE_AND_CREATE_TOPIC: {
        "topic": "T",
        "defaultTopic": "TBW102",
        "readQueueNums": "3",
        "writeQueueNums": "3",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    },
    Code.CONSUMER_SEND_MSG_BACK: {
        "offset": "0",
        "group": "G",
        "delayLevel": "1",
        "originMsgId": "0",
        "originTopic": "T",
        "unitMode": "false",
        "maxReconsumeTimes": "3",
    },
    Code.END_TRANSACTION: {
        "topic": "T",
        "producerGroup": "G",
        "tranStateTableOffset": "0",
        "commitLogOffset": "0",
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": "0",
        "transactionId": "0",
    },
    Code.LOCK_BATCH_MQ: {},
    Code.UNLOCK_BATCH_MQ: {},
    Code.HEART_BEAT: {},
    Code.CHECK_CLIENT_CONFIG: {},
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: {"topic": "T", "group": "G", "clientAddr": "c"},
    Code.CONSUME_MESSAGE_DIRECTLY: {
        "consumerGroup": "G",
        "clientId": "c",
        "msgId": "0",
        "brokerName": "b",
        "topic": "T",
    },
    Code.RESUME_CHECK_HALF_MESSAGE: {"topic": "T", "msgId": "0"},
    Code.GET_ALL_PRODUCER_INFO: {},
    Code.RECALL_MESSAGE: {"producerGroup": "G", "topic": "T", "recallHandle": "h"},
    Code.GET_TIMER_CHECK_POINT: {},
    Code.GET_TIMER_METRICS: {},
    Code.GET_BROKER_HA_STATUS: {},
    Code.RESET_MASTER_FLUSH_OFFSET: {"masterFlushOffset": "0"},
    Code.EXCHANGE_BROKER_HA_INFO: {},
    Code.GET_BROKER_CONFIG: {},
    Code.UPDATE_BROKER_CONFIG: {},
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: {},
    Code.DELETE_EXPIRED_COMMITLOG: {},
    Code.CLEAN_UNUSED_TOPIC: {},
    Code.UPDATE_AND_CREATE_TOPIC_LIST: {},
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {},
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {},
    Code.UNREGISTER_CLIENT: {"clientID": "c", "producerGroup": "G", "consumerGroup": "G"},
    Code.DELETE_SUBSCRIPTIONGROUP: {"groupName": "G", "cleanOffset": "true"},
    Code.DELETE_TOPIC_IN_BROKER: {"topic": "T"},
}
"""Code -> its fields with arguments that make sense; T, G, H stand for the code's own names."""

LAST = (Code.DELETE_SUBSCRIPTIONGROUP, Code.DELETE_TOPIC_IN_BROKER)


def own(text: str, code: Code) -> str:
    """Return a name in the code's own namespace."""
    return f"D{int(code)}{text}" if text in {"T", "G", "H"} else text


def requests(rng: random.Random, draws: int) -> Iterator[Asked]:
    """Yield for each code plain requests, each field missing and with each odd value, and draws.

    A draw has odd values in two fields or leaves out two.
    """
    for code, plain in FIELDS.items():
        fields = {name: own(text, code) for name, text in plain.items()}
        if code not in LAST:
            yield Asked(code, "plain", fields)
        yield from with_one_odd(code, fields)
        for _ in range(draws if len(fields) > 1 else 0):
            yield with_two_odd(code, fields, rng)
        for case, body in bodies_of(code):
            yield Asked(code, case, fields, body)
        if code in LAST:
            yield Asked(code, "plain", fields)


def with_one_odd(code: Code, fields: Mapping[str, str], body: bytes = b"") -> Iterator[Asked]:
    """Yield a request without each field, and with each odd value of it."""
    for name, text in fields.items():
        yield Asked(code, f"no {name}", {k: v for k, v in fields.items() if k != name}, body)
        for odd in odd_values(text, code):
            yield Asked(code, f"{name}={odd[:20]}", {**fields, name: odd}, body)


def with_two_odd(
    code: Code, fields: Mapping[str, str], rng: random.Random, body: bytes = b""
) -> Asked:
    """Return a request with two fields that are odd or missing."""
    drawn: dict[str, str] = dict(fields)
    cases: list[str] = []
    for name in sorted(rng.sample(sorted(fields), 2)):
        odd = rng.choice((None, *odd_values(fields[name], code)))
        if odd is None:
            del drawn[name]
            cases.append(f"no {name}")
        else:
            drawn[name] = odd
            cases.append(f"{name}={odd[:20]}")
    return Asked(code, ", ".join(cases), drawn, body)


def odd_values(text: str, code: Code) -> tuple[str, ...]:
    """Return what is tried in the place of a value; names that nobody has are the code's own."""
    if text in {"true", "false"}:
        return ("", "yes", "TRUE")
    if text.lstrip("-").isdigit():
        return NUMBERS
    return (*ODD, f"D{int(code)}no_such", f"%RETRY%D{int(code)}no_such")


def furniture(code: Code) -> Iterator[Asked]:
    """Yield what makes a code's topic and group."""
    topic = {**FIELDS[Code.UPDATE_AND_CREATE_TOPIC], "topic": own("T", code)}
    yield Asked(Code.UPDATE_AND_CREATE_TOPIC, "furniture", topic)
    for name in ("G", "H"):
        body = json.dumps({"groupName": own(name, code)}).encode()
        yield Asked(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "furniture", {}, body)
    send = {
        "a": "makers",
        "b": own("T", code),
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "KEYS\x01k\x02",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    yield Asked(Code.HEART_BEAT, "furniture", {}, heartbeat(own("G", code), own("T", code)))
    for number in range(3):
        yield Asked(Code.SEND_MESSAGE_V2, "furniture", send, b"m%d" % number)


def shape(answer: Command) -> tuple[object, ...]:
    """Return code, whether there is a remark, names of fields, and keys of the body."""
    remark = "none" if answer.remark is None else "text" if answer.remark else "empty"
    return answer.code, remark, tuple(sorted(answer.ext or ())), keys_of(answer.body)


def keys_of(body: bytes) -> tuple[str, ...]:
    """Return the keys of a JSON object, or what else a body is."""
    if not body:
        return ()
    try:
        return tuple(sorted(fastjson.read_object(body)))
    except fastjson.JsonError:
        return ("not an object",)
