"""The columns of a message as Spark knows them; the native decoder makes the same, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TYPES = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "physicalOffset": "bigint",
    "storeSize": "int",
    "msgId": "string",
    "uniqKey": "string",
    "keys": "string",
    "tags": "string",
    "properties": "map<string,string>",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "bornHost": "string",
    "storeHost": "string",
    "reconsumeTimes": "int",
    "sysFlag": "int",
    "bodyCRC": "int",
    "body": "binary",
}

COLUMNS = tuple(TYPES)

DAMAGE = {
    "file": "string",
    "beginOffset": "bigint",
    "endOffset": "bigint",
    "bytes": "bigint",
    "reason": "string",
}
DAMAGE_COLUMNS = tuple(DAMAGE)

META = {
    "brokers": {
        "cluster": "string",
        "brokerName": "string",
        "brokerId": "bigint",
        "address": "string",
    },
    "topics": {
        "topic": "string",
        "brokerName": "string",
        "readQueues": "int",
        "writeQueues": "int",
        "perm": "int",
    },
    "queues": {
        "topic": "string",
        "brokerName": "string",
        "queueId": "int",
        "minOffset": "bigint",
        "maxOffset": "bigint",
        "lastStoreTimestamp": "timestamp",
    },
    "groups": {
        "group": "string",
        "topic": "string",
        "brokerName": "string",
        "queueId": "int",
        "offset": "bigint",
        "maxOffset": "bigint",
        "lag": "bigint",
        "minOffset": "bigint",
        "lastStoreTimestamp": "timestamp",
    },
    "members": {
        "group": "string",
        "clientId": "string",
        "address": "string",
        "language": "string",
        "topic": "string",
        "brokerName": "string",
        "queueId": "int",
        "lastPullTimestamp": "timestamp",
        "lastConsumeTimestamp": "timestamp",
        "cached": "bigint",
    },
}
"""Tables of `roquet-meta`; times are null where there is no message.

A member that holds no queue, or does not say which, has one row without a queue.
"""


def ddl(columns: Sequence[str] = COLUMNS) -> str:
    """Return the columns as Spark's DDL text."""
    return _ddl({name: TYPES[name] for name in columns})


def _ddl(types: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in types.items())
