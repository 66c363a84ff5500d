"""Whether a request may say what it says; texts are those of Java's proxy 5.5.0."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.proxy.rules.codes import Code, Rejected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roquet.proxy.rules.limits import ProxyLimits

_LIGHT_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_DELAYS = (props.DELAY, props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS, props.TIMER_DELIVER_MS)


def check_topic(name: str) -> None:
    """Raise Rejected unless clients may name the topic."""
    wrong = names.check_topic(name)
    if wrong is not None:
        raise Rejected(Code.ILLEGAL_TOPIC, wrong[:1024])
    if names.is_system_topic(name):
        raise Rejected(Code.ILLEGAL_TOPIC, "cannot access system topic")


def check_group(name: str) -> None:
    """Raise Rejected unless clients may name the group."""
    wrong = names.check_group(name)
    if wrong is not None:
        raise Rejected(Code.ILLEGAL_CONSUMER_GROUP, wrong[:1024])
    if names.is_system_group(name):
        raise Rejected(Code.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")


def check_body(size: int, rules: ProxyLimits) -> None:
    """Raise Rejected for an empty body and one that is too long."""
    if size == 0:
        raise Rejected(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if 0 < rules.message_max < size:
        text = f"message body cannot exceed the max {rules.message_max}"
        raise Rejected(Code.MESSAGE_BODY_TOO_LARGE, text)


def check_tag(tag: str) -> None:
    """Raise Rejected for a tag that filters could not name."""
    if not tag:
        return
    if not tag.strip():
        text = "tag cannot be the char sequence of whitespace"
    elif "|" in tag:
        text = "tag cannot contain '|'"
    elif has_control(tag):
        text = "tag cannot contain control character"
    else:
        return
    raise Rejected(Code.ILLEGAL_MESSAGE_TAG, text)


def check_key(key: str) -> None:
    """Raise Rejected for a key that cannot be looked up."""
    if key and not key.strip():
        text = "key cannot be the char sequence of whitespace"
    elif has_control(key):
        text = "key cannot contain control character"
    else:
        return
    raise Rejected(Code.ILLEGAL_MESSAGE_KEY, text)


def check_message_group(group: str, rules: ProxyLimits) -> None:
    """Raise Rejected for a message group that is blank, too long, or not printable."""
    if not group.strip():
        text = "message group cannot be the char sequence of whitespace"
    elif 0 < rules.group_bytes_max <= len(group.encode()):
        text = f"message group exceed the max size {rules.group_bytes_max}"
    elif has_control(group):
        text = "message group cannot contain control character"
    else:
        return
    raise Rejected(Code.ILLEGAL_MESSAGE_GROUP, text)


def check_light(name: str, rules: ProxyLimits) -> None:
    """Raise Rejected for what is no name of a lite topic."""
    if not name.strip():
        text = "lite topic cannot be the char sequence of whitespace"
    elif len(name.encode()) > rules.light_bytes_max:
        text = f"lite topic exceed the max size {rules.light_bytes_max}"
    elif not _LIGHT_NAME.fullmatch(name):
        text = "lite topic can only contain alphanumeric characters, hyphens(-), and underscores(_)"
    else:
        return
    raise Rejected(Code.ILLEGAL_LITE_TOPIC, text)


def check_properties(
    properties: Mapping[str, str], tag: str, keys: Sequence[str], rules: ProxyLimits
) -> None:
    """Raise Rejected for user properties, a tag or keys that a message may not have."""
    if len(properties) > rules.properties_max:
        text = f"too many user properties, max is {rules.properties_max}"
        raise Rejected(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    size = 0
    for key, value in properties.items():
        wrong = _property_fault(key, value)
        if wrong is not None:
            raise Rejected(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, wrong)
        size += len(key.encode()) + len(value.encode())
    check_tag(tag)
    size += len(tag.encode())
    for key in keys:
        check_key(key)
        size += len(key.encode())
    if 0 < rules.property_bytes_max < size:
        text = f"the total size of user property is too large, max is {rules.property_bytes_max}"
        raise Rejected(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)


def _property_fault(key: str, value: str) -> str | None:
    if key in props.RESERVED:
        return f"property is used by system: {key}"
    if has_control(key):
        return "the key of property cannot contain control character"
    if has_control(value):
        return "the value of property cannot contain control character"
    # Java stores a property without a name, which no reader finds again.
    return None if key else "the key of property cannot be empty"


def check_delivery(due_ms: int, now_ms: int, rules: ProxyLimits) -> None:
    """Raise Rejected for a delivery too far in the future."""
    if 0 < rules.delay_max_ms < due_ms - now_ms:
        text = f"the max delay time of message is too large, max is {rules.delay_max_ms}"
        raise Rejected(Code.ILLEGAL_DELIVERY_TIME, text)


def check_recovery(seconds: int, rules: ProxyLimits) -> None:
    """Raise Rejected for a check too long after the half message."""
    if 0 < rules.recovery_max_s < seconds:
        most = rules.recovery_max_s
        text = f"the max transaction recovery time of message is too large, max is {most}"
        raise Rejected(Code.BAD_REQUEST, text)


def check_invisible(invisible_ms: int, low_ms: int, rules: ProxyLimits) -> None:
    """Raise Rejected for an invisible time out of range."""
    if invisible_ms < low_ms:
        text = f"the invisibleTime is too small. min is {low_ms}"
        raise Rejected(Code.ILLEGAL_INVISIBLE_TIME, text)
    if 0 < rules.invisible_max_ms < invisible_ms:
        text = f"the invisibleTime is too large. max is {rules.invisible_max_ms}"
        raise Rejected(Code.ILLEGAL_INVISIBLE_TIME, text)


def message_type(properties: Mapping[str, str]) -> str:
    """Return the type of a message by its properties."""
    if properties.get(props.TRANSACTION_PREPARED) == "true":
        return "TRANSACTION"
    if any(name in properties for name in _DELAYS):
        return "DELAY"
    if props.SHARDING_KEY in properties:
        return "FIFO"
    if props.PRIORITY in properties:
        return "PRIORITY"
    return "LITE" if props.LITE_TOPIC in properties else "NORMAL"


def check_type(topic_type: str, properties: Mapping[str, str]) -> None:
    """Raise Rejected for a message that the topic is not for."""
    actual = message_type(properties)
    if topic_type not in {"MIXED", actual}:
        text = (
            f"TopicMessageType validate failed, the expected type is {topic_type},"
            f" but actual type is {actual}"
        )
        raise Rejected(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)


def has_control(text: str) -> bool:
    """Tell whether a text has a control character."""
    return not text.isprintable() and any(unicodedata.category(each) == "Cc" for each in text)
