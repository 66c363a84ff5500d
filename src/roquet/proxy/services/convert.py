"""Messages of gRPC to drafts of the broker, and stored records to messages of gRPC."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from roquet.model.message import ATTEMPTS_MAX
from roquet.protocol import properties as props
from roquet.protocol.hosts import host_text
from roquet.protocol.messages import compression, sys_flag
from roquet.protocol.messages.message_id import offset_id
from roquet.proxy import messages as pb
from roquet.proxy.rules import checks
from roquet.proxy.rules.codes import Code, Rejected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.proxy.rules.context import Context
    from roquet.proxy.rules.limits import ProxyLimits
    from roquet.store.records import Record

IDENTITY, GZIP = 1, 2
MD5 = 2
TRANSACTION = 4
PRIORITY_MAX = 2**31 - 1
TYPES = {
    "NORMAL": 1,
    "FIFO": 2,
    "DELAY": 3,
    "TRANSACTION": 4,
    "LITE": 5,
    "PRIORITY": 6,
}
"""Numbers of message types; MIXED is four of them, anything else none."""
_GZIP_MAGIC = b"\x1f\x8b"
_I64_MAX = 2**63 - 1
YEARS_S = 253_402_300_800
"""Seconds until the year 10000: Java's Timestamps end there."""


def millis(value: Any) -> int:
    """Return a Timestamp or Duration in milliseconds."""
    return int(value.seconds) * 1000 + int(value.nanos) // 1_000_000


def set_millis(value: Any, amount: int) -> None:
    """Set a Timestamp or Duration to milliseconds."""
    value.seconds, rest = divmod(amount, 1000)
    value.nanos = rest * 1_000_000


def properties_of(message: Any, context: Context, rules: ProxyLimits) -> dict[str, str]:
    """Return the properties that a message is stored with. Raises Rejected."""
    system = message.system_properties
    keys = list(system.keys)
    found: dict[str, str] = dict(message.user_properties)
    checks.check_properties(found, system.tag, keys, rules)
    found[props.TAGS] = system.tag
    found[props.KEYS] = props.KEY_SEPARATOR.join(keys)
    if not system.message_id.strip():
        raise Rejected(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    if checks.has_control(system.message_id):
        raise Rejected(Code.ILLEGAL_MESSAGE_ID, "message id cannot contain control character")
    found[props.UNIQ_KEY] = system.message_id
    found[props.PRODUCER_GROUP] = message.topic.name
    found[props.RECONSUME_TIME] = str(system.delivery_attempt)
    _add_kind(found, system, context, rules)
    if system.trace_context and not checks.has_control(system.trace_context):
        found[props.TRACE_CONTEXT] = system.trace_context
    host = system.born_host
    if not host.strip() or checks.has_control(host):
        host = context.remote.rpartition(":")[0]
    found[props.BORN_HOST] = host
    found[props.BORN_TIMESTAMP] = str(born_ms_of(message, context))
    return {name: value for name, value in found.items() if value}


def born_ms_of(message: Any, context: Context) -> int:
    """Return when a producer made a message."""
    stamp = message.system_properties.born_timestamp
    has = message.system_properties.HasField("born_timestamp")
    return millis(stamp) if has and 0 <= stamp.seconds < YEARS_S else context.received_ms


def _add_kind(found: dict[str, str], system: Any, context: Context, rules: ProxyLimits) -> None:
    """Add what makes a message one of a transaction, of a group, a delayed or an urgent one."""
    if system.message_type == TRANSACTION:
        found[props.TRANSACTION_PREPARED] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            seconds = int(system.orphaned_transaction_recovery_duration.seconds)
            checks.check_recovery(seconds, rules)
            found[props.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)
    if system.HasField("delivery_timestamp"):
        due_ms = millis(system.delivery_timestamp)
        checks.check_delivery(due_ms, context.received_ms, rules)
        found[props.TIMER_DELIVER_MS] = str(due_ms)
    if system.HasField("priority"):
        if system.priority < 0:
            raise Rejected(Code.BAD_REQUEST, "the priority must be greater than or equal to 0")
        found[props.PRIORITY] = str(system.priority)
    if system.message_group:
        checks.check_message_group(system.message_group, rules)
        found[props.SHARDING_KEY] = system.message_group
    if system.lite_topic:
        checks.check_light(system.lite_topic, rules)
        found[props.LITE_TOPIC] = system.lite_topic


def sys_flag_of(message: Any) -> int:
    """Return the bits that a message is stored with."""
    system = message.system_properties
    flag = sys_flag.COMPRESSED if system.body_encoding == GZIP else 0
    half = system.message_type == TRANSACTION
    return flag | (sys_flag.TRANSACTION_PREPARED if half else 0)


def message_of(record: Record, topic: str, handle: str | None = None) -> Any:
    """Return a stored record as a message of a topic; `handle` of one in flight.

    Raises CompressionError for a body that says of itself what it is not.
    """
    found = props.read(record.properties)
    body, encoding = _body(record)
    message = pb.Message()
    message.topic.name = topic
    for name, value in found.items():
        if name not in props.RESERVED:
            message.user_properties[name] = value
    message.body = body
    system = message.system_properties
    _add_texts(system, found)
    system.message_id = found.get(props.UNIQ_KEY) or offset_id(
        record.store_host, record.physical_offset
    )
    system.body_digest.type = MD5
    # The digest of the protocol: it tells a damaged body, not a forged one.
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = encoding
    system.message_type = TYPES.get(checks.message_type(found), 0)
    set_millis(system.born_timestamp, record.born_timestamp)
    if not system.born_host:
        system.born_host = host_text(record.born_host).rpartition(":")[0]
    set_millis(system.store_timestamp, record.store_timestamp)
    system.store_host = host_text(record.store_host)
    system.queue_id = record.queue_id
    system.queue_offset = record.queue_offset
    system.delivery_attempt = min(record.reconsume_times + 1, ATTEMPTS_MAX)
    if handle is not None:
        system.receipt_handle = handle
    return message


def _add_texts(system: Any, found: Mapping[str, str]) -> None:
    if props.TAGS in found:
        system.tag = found[props.TAGS]
    if props.KEYS in found:
        system.keys.extend(key for key in found[props.KEYS].split(props.KEY_SEPARATOR) if key)
    system.born_host = found.get(props.BORN_HOST, "")
    due = _number(found.get(props.TIMER_DELIVER_MS))
    if due is not None:
        set_millis(system.delivery_timestamp, due)
    priority = _number(found.get(props.PRIORITY))
    if priority is not None and priority <= PRIORITY_MAX:
        system.priority = priority
    if props.SHARDING_KEY in found:
        system.message_group = found[props.SHARDING_KEY]
    if props.LITE_TOPIC in found:
        system.lite_topic = found[props.LITE_TOPIC]
    if props.TRACE_CONTEXT in found:
        system.trace_context = found[props.TRACE_CONTEXT]
    origin = found.get(props.DLQ_ORIGIN_TOPIC)
    if origin:
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = found.get(props.DLQ_ORIGIN_MESSAGE_ID, "")


def _body(record: Record) -> tuple[bytes, int]:
    """Return the body as clients of gRPC can read it, and its encoding."""
    if not record.sys_flag & sys_flag.COMPRESSED:
        return record.body, IDENTITY
    if record.body[:2] == _GZIP_MAGIC:
        return record.body, GZIP
    # Of a client of remoting, whose three ways of compression nobody here knows.
    return compression.body_of(record.body, record.sys_flag), IDENTITY


def _number(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 15:
        return None
    return int(text)
