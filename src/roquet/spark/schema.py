"""The columns of a message as Spark knows them; the native decoder makes the same, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_TYPES = {
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

COLUMNS = tuple(_TYPES)


def ddl(columns: Sequence[str] = COLUMNS) -> str:
    """Return the columns as Spark's DDL text."""
    return ", ".join(f"`{name}` {_TYPES[name]}" for name in columns)
