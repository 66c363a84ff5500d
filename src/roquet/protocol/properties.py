"""Message properties: their names, and the string they travel in (spec: wire §7.4, §7.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
BUYER_ID = "BUYER_ID"
ORIGIN_GROUP = "ORIGIN_GROUP"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG = "TRANSFER_FLAG"
CORRECTION_FLAG = "CORRECTION_FLAG"
MQ2_FLAG = "MQ2_FLAG"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
UNIQ_KEY = "UNIQ_KEY"
TRANS_OFFSET = "TRANS_OFFSET"
EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO"
CONSUME_START_TIME = "CONSUME_START_TIME"
PRIORITY = "_SYS_MSG_PRIORITY_"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
DUP_INFO = "DUP_INFO"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
CLUSTER = "CLUSTER"
MSG_TYPE = "MSG_TYPE"
POP_CK = "POP_CK"
POP_CK_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"
SHARDING_KEY = "__SHARDINGKEY"
LITE_TOPIC = "__LITE_TOPIC"
FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID"
REDIRECT = "REDIRECT"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
LMQ_ORIGIN_TOPIC = "LMQ_ORIGIN_TOPIC"
"""Of a copy for a retry or among the dead letters: the topic of a message of light queues."""
TRACE_CONTEXT = "TRACE_CONTEXT"
SEQUENCE = "ROQUET_SEQUENCE"
"""Set by a broker of ours alone, see `protocol/messages/sequences.py`."""
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_ROLL_LABEL = "TIMER_ROLL_LABEL"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
CRC32 = "__CRC32#"
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."

RESERVED = frozenset(
    value
    for name, value in sorted(globals().items())
    if name.isupper() and isinstance(value, str) and not name.startswith("_")
)
"""Names that a user's own property must not have."""

TIMER_DELAYS = frozenset({TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, TIMER_DELAY_LEVEL})
"""Any of these asks for a delivery at a time of the producer's choice."""

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""What DELAY = 1, 2 … stands for, unless a broker is configured otherwise."""

NAME_END = "\x01"
VALUE_END = "\x02"
KEY_SEPARATOR = " "
SIZE_MAX = 32767
"""UTF-8 bytes of the whole string."""


class PropertyError(ValueError):
    """A property cannot be written without becoming ambiguous, or the string is too long."""


def write(properties: Mapping[str, str]) -> str:
    """Join properties, each with its end marks. Empty values are left out, as no reader keeps them.

    Raises PropertyError for an empty name and for names or values that hold an end mark (B7).
    """
    parts = [f"{name}\x01{value}\x02" for name, value in properties.items() if value]
    text, joined_names = "".join(parts), "".join(properties)
    clean = "" not in properties and NAME_END not in joined_names and VALUE_END not in joined_names
    if clean and text.count(VALUE_END) == len(parts):
        return text
    name = next(name for name, value in properties.items() if _is_ambiguous(name, value))
    raise PropertyError(f"property {name!r} is empty or holds a separator")


def _is_ambiguous(name: str, value: str) -> bool:
    return not name or NAME_END in name or VALUE_END in name or VALUE_END in value


def read(text: str | bytes | None) -> dict[str, str]:
    """Split a property string; what Java drops is dropped: no name, no value, under 3 characters.

    Never raises: bytes that are not UTF-8 become replacement characters.
    """
    if not text:
        return {}
    if isinstance(text, (bytes, bytearray, memoryview)):
        text = bytes(text).decode("utf-8", "replace")
    found: dict[str, str] = {}
    for entry in text.split(VALUE_END):
        name, mark, value = entry.partition(NAME_END)
        if mark and name and value:
            found[name] = value
    return found


def is_half_of(properties: Mapping[str, str], message_id: str, topic: str) -> bool:
    """Tell whether a stored half message is the one of this id that belongs to a topic.

    What an index finds under an id may have it as another key, or be of another topic.
    """
    return properties.get(UNIQ_KEY) == message_id and properties.get(REAL_TOPIC) == topic


def size(text: str) -> int:
    """Return the UTF-8 bytes of a property string, which may be at most SIZE_MAX."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
