"""Every request code with plausible fields: what an attacker sends about one topic, group, place.

A broker passes over fields that a request has no use for, so one set of fields serves nearly all
codes. They are written down here once more, as ranges; a test compares them with the product's.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CODES = (
    *range(10, 16),
    *(17, 18, 21, 22, 23),
    *range(25, 44),
    *(45, 46, 47),
    *range(50, 55),
    *(60, 61),
    *range(100, 107),
    *range(200, 218),
    *range(219, 226),
    *range(300, 330),
    *(343, 345, 351, 352, 353, 354, 355, 361, 370, 400, 401, 402, 513),
    *range(901, 909),
    *range(1001, 1019),
    *range(2001, 2005),
    *range(3001, 3011),
    5001,
    *range(200_050, 200_057),
    *range(200_070, 200_080),
    200_151,
    *(7001, 7002, 7003, 7004),
)

SEND, PULL, QUERY, CREATE_TOPIC = 10, 11, 12, 17
VIEW, HEARTBEAT, SEND_BACK, END, LOCK, UNLOCK = 33, 34, 36, 37, 41, 42
CREATE_GROUP, SEND_SHORT, SEND_BATCH, REPLY_SHORT = 200, 310, 320, 325
POP, PEEK = 200_050, 200_052
BY_PLACE = (VIEW, SEND_BACK, END, 309, 323)
"""What names a message by its place in the log."""

CHANGE_SETTINGS = (25, 318, 1009)
COMMIT, ROLLBACK = 8, 12
BODY = b"ATTACK"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a request is about."""

    topic: str
    group: str
    offset: int = 0
    queue_offset: int = 0
    key: str = "order-1"
    producer_group: str = "tx"
    broker: str = "broker-a"
    host: str = "7F00000100002A9F"
    """Address and port of the broker as message ids have them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """One request."""

    code: int
    ext: dict[str, str]
    body: bytes


def attempts(code: int, aim: Aim) -> Iterator[Attempt]:
    """Return the requests of a code about an aim."""
    ext = _fields(aim)
    if code == END:
        for state in (COMMIT, ROLLBACK):
            given = {**ext, "commitOrRollback": str(state)}
            yield Attempt(code, given, b"")
            given.pop("topic")
            yield Attempt(code, given, b"")
    elif code in (SEND_SHORT, SEND_BATCH, REPLY_SHORT):
        yield Attempt(code, _short(aim), BODY)
        half = f"TRAN_MSG\x01true\x02PGROUP\x01{aim.producer_group}\x02UNIQ_KEY\x01u\x02"
        yield Attempt(code, {**_short(aim), "i": half, "f": "4"}, BODY)
        yield Attempt(code, {**_short(aim), "i": "DELAY\x011\x02UNIQ_KEY\x01u\x02"}, BODY)
        real = f"REAL_TOPIC\x01{aim.topic}\x02REAL_QID\x010\x02UNIQ_KEY\x01u\x02"
        yield Attempt(code, {**_short(aim), "i": real}, BODY)
    else:
        yield Attempt(code, ext, _body(code, aim))


def _fields(aim: Aim) -> dict[str, str]:
    place = str(aim.offset)
    message_id = f"{aim.host}{aim.offset:016X}"
    return {
        "topic": aim.topic,
        "producerGroup": aim.producer_group,
        "consumerGroup": aim.group,
        "group": aim.group,
        "groupName": aim.group,
        "srcGroup": aim.group,
        "destGroup": "mine",
        "compareGroup": aim.group,
        "clientID": "attacker",
        "clientId": "nobody-of-this-name",
        "clientHost": "127.0.0.1:1",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "4",
        "bornTimestamp": "1700000000000",
        "producer": "attacker",
        "epoch": "0",
        "first": "0",
        "chain": "0" * 16,
        "flag": "0",
        "properties": "UNIQ_KEY\x01u\x02",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
        "queueOffset": str(aim.queue_offset),
        "begin": str(aim.queue_offset),
        "end": str(aim.queue_offset + 100),
        "maxMsgNums": "32",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
        "key": aim.key,
        "maxNum": "64",
        "beginTimestamp": "0",
        "endTimestamp": str(1 << 60),
        "offset": place,
        "delayLevel": "-1",
        "originMsgId": message_id,
        "originTopic": aim.topic,
        "maxReconsumeTimes": "0",
        "tranStateTableOffset": str(aim.queue_offset),
        "commitLogOffset": place,
        "fromTransactionCheck": "false",
        "msgId": message_id,
        "transactionId": "u",
        "timestamp": "0",
        "time": "0",
        "isForce": "true",
        "index": "0",
        "count": "256",
        "readQueueNums": "9",
        "writeQueueNums": "9",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "readable": "false",
        "statsName": "TOPIC_PUT_NUMS",
        "statsKey": aim.topic,
        "isOrder": "false",
        "namespace": "ns",
        "value": "v",
        "clusterName": "DefaultCluster",
        "brokerName": aim.broker,
        "brokerAddr": "127.0.0.1:10911",
        "brokerId": "0",
        "masterHaAddress": "127.0.0.1:1",
        "masterFlushOffset": "0",
        "cluster": "DefaultCluster",
        "accessKey": "attacker-made",
        "secretKey": "attacker-secret",
        "admin": "true",
        "globalWhiteAddrs": "*",
        "username": "attacker",
        "checkStoreTime": "0",
        "configType": "topics",
        "invisibleTime": "1000",
        "pollTime": "0",
        "bornTime": "0",
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
        "extraInfo": f"{aim.queue_offset} 1700000000000 1000 0 0 {aim.broker} 0 {aim.queue_offset}",
    }


def _short(aim: Aim) -> dict[str, str]:
    return {
        "a": aim.producer_group,
        "b": aim.topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "UNIQ_KEY\x01u\x02",
        "j": "0",
        "k": "false",
        "m": "false",
    }


def _body(code: int, aim: Aim) -> bytes:
    if code == HEARTBEAT:
        return heartbeat(aim.topic, aim.group, aim.producer_group)
    if code in (LOCK, UNLOCK):
        queue = {"topic": aim.topic, "brokerName": aim.broker, "queueId": 0}
        asked = {"clientId": "attacker", "consumerGroup": aim.group, "mqSet": [queue]}
        return json.dumps(asked).encode()
    if code == CREATE_GROUP:
        return json.dumps({"groupName": aim.group, "retryMaxTimes": 0}).encode()
    if code in CHANGE_SETTINGS:
        return b"brokerPermission=4\nhaSharedSecret=attacker-attacker\nenableTopicList=false\n"
    return BODY


def heartbeat(topic: str, group: str, producer_group: str = "") -> bytes:
    """Return the body of a heartbeat."""
    wanted = {"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [wanted],
        "unitMode": False,
    }
    return json.dumps(
        {
            "clientID": "attacker",
            "consumerDataSet": [consumer] if group else [],
            "producerDataSet": [{"groupName": producer_group}] if producer_group else [],
        }
    ).encode()
