"""A message made ready for the wire: checked, its properties written, its body compressed. Pure."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, cast

from roquet.base.arguments import a_text, table_of_texts, texts
from roquet.base.errors import UsageError
from roquet.client._sending.due import check_room
from roquet.model.frozen import maker
from roquet.model.message import Message
from roquet.protocol import names, properties
from roquet.protocol.messages import batch, compression

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roquet.client._options import ProducerOptions
    from roquet.client._sending.due import Due

_message = maker(Message)

BATCH_MAX = batch.messages_max(20)
"""Messages of a batch that every broker takes, whatever its address."""


def compose(
    topic: str | Message,
    body: object = b"",
    tag: str | None = None,
    keys: str | Iterable[str] = (),
    *,
    user_properties: Mapping[str, str] | None = None,
    delay_level: int = 0,
) -> Message:
    """Make a message of the arguments of a send; a text becomes UTF-8, `keys` may be one key.

    Raises UsageError for a body that is neither text nor bytes-like.
    """
    if isinstance(topic, Message):
        return topic
    a_text("topic", topic)
    if tag is not None:
        a_text("tag", tag)
    if keys != ():
        texts("keys", keys)
    if user_properties is not None:
        table_of_texts("properties", user_properties)
    return _message(
        topic,
        _bytes(body),
        tag,
        (keys,) if isinstance(keys, str) else tuple(keys),
        dict(user_properties or {}),
        delay_level=delay_level,
    )


def _bytes(body: object) -> bytes:
    """Return what is bytes-like, copied where it may change.

    A number is not so many zeros, and a list no bytes.
    """
    if type(body) is bytes:
        return body  # nobody changes it
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"a body that is text has to be valid Unicode: {error}") from error
    try:
        return bytes(memoryview(cast("bytes", body)))
    except TypeError:
        kind = type(body).__name__
        raise UsageError(
            f"a body is bytes or str, not {kind}: encode it first,"
            " or give a codec, as codec=roquet.Json()"
        ) from None


@dataclasses.dataclass(frozen=True, slots=True)
class Encoded:
    """What one send request carries. It stays the same over all tries."""

    topic: str
    body: bytes
    properties: str
    message_ids: tuple[str, ...]
    sys_flag: int = 0
    flag: int = 0
    is_batch: bool = False
    is_reply: bool = False
    due: Due | None = None
    """When it is to be delivered; the broker's version decides how that is written."""


_encoded = maker(Encoded)


def encode_one(
    message: Message,
    message_id: str,
    options: ProducerOptions,
    system: Mapping[str, str] | None = None,
    due: Due | None = None,
) -> Encoded:
    """Make a single message ready. `system` are properties of RocketMQ's own. Raises UsageError."""
    text = _properties(message, message_id, system or {}, options)
    _check(message, options)
    if due is not None:
        _check_due(message, text)
    body, sys_flag = message.body, 0
    if 0 < options.compress_over <= len(body):
        packed = compression.compress(body, options.compression, options.compression_level)
        if len(packed) < len(body):
            body, sys_flag = packed, options.compression.flag
    return _encoded(message.topic, body, text, (message_id,), sys_flag, message.flag, due=due)


def encode_batches(
    messages: Sequence[Message], message_ids: Sequence[str], options: ProducerOptions
) -> list[Encoded]:
    """Make batches ready, split where one would be too big. Raises UsageError.

    All messages go to one topic, ask for the same durability, and none is delayed or a retry.
    """
    if not messages:
        raise UsageError("a batch has at least one message")
    first = messages[0]
    topic = first.topic
    found: list[Encoded] = []
    elements: list[batch.Element] = []
    ids: list[str] = []
    size = 0
    for message, message_id in zip(messages, message_ids, strict=True):
        _check_member(message, first)
        _check(message, options)
        text = _properties(message, message_id, {}, options).encode()
        length = len(message.body) + len(text) + 22
        is_full = size + length > options.message_size_max or len(elements) == BATCH_MAX
        if elements and is_full:
            found.append(_batch(topic, elements, ids, waits=first.wait_store_ok))
            elements, ids, size = [], [], 0
        elements.append((message.flag, message.body, text))
        ids.append(message_id)
        size += length
    if size > options.message_size_max:
        raise UsageError(f"a message does not fit into a batch of {options.message_size_max} bytes")
    found.append(_batch(topic, elements, ids, waits=first.wait_store_ok))
    return found


def may_share(message: Message, encoded: Encoded) -> bool:
    """Tell whether a batch may have a message: not what is compressed, delayed or a retry."""
    if encoded.sys_flag or encoded.due is not None or message.delay_level:
        return False
    if not message.properties:
        return not names.is_retry(message.topic)
    timed = not properties.TIMER_DELAYS.isdisjoint(message.properties)
    return not timed and not names.is_retry(message.topic)


def batch_of(parts: Sequence[Encoded], *, waits: bool) -> Encoded:
    """Join single messages, each of which may share a batch; `waits` is whether they all wait."""
    elements = [(it.flag, it.body, it.properties.encode()) for it in parts]
    ids = [it.message_ids[0] for it in parts]
    return _batch(parts[0].topic, elements, ids, waits=waits)


def _batch(topic: str, elements: list[batch.Element], ids: list[str], *, waits: bool) -> Encoded:
    head = {} if waits else {properties.WAIT: "false"}
    text = properties.write({**head, properties.UNIQ_KEY: ",".join(ids[:1])})
    return _encoded(topic, batch.encode(elements), text, tuple(ids), is_batch=True)


def _check_due(message: Message, text: str) -> None:
    if message.delay_level or not properties.TIMER_DELAYS.isdisjoint(message.properties):
        raise UsageError("give one of delay, at, delay_level and a timer property")
    check_room(text)


def _check_member(message: Message, first: Message) -> None:
    if message.topic != first.topic:
        raise UsageError("the messages of a batch go to one topic")
    if message.wait_store_ok != first.wait_store_ok:
        raise UsageError("the messages of a batch all wait for the store, or none does")
    if message.delay_level or not properties.TIMER_DELAYS.isdisjoint(message.properties):
        raise UsageError("a batch has no delayed messages")
    if names.is_retry(message.topic):
        raise UsageError("a batch cannot go to a retry topic")


def _check(message: Message, options: ProducerOptions) -> None:
    wrong = _wrong_topic(message.topic)
    if wrong is not None:
        raise UsageError(wrong)
    # Callers without type checks may make a Message of anything.
    if not isinstance(cast("object", message.body), bytes):
        _bytes(message.body)
        kind = type(message.body).__name__
        raise UsageError(f"the body of a Message is bytes, not {kind}")
    flag = cast("object", message.flag)
    if not isinstance(flag, int) or not -(1 << 31) <= flag < 1 << 31:
        raise UsageError(f"the flag of a Message is a number of 32 bits, not {flag!r}")
    if not message.body:
        raise UsageError("a message needs a body")
    if len(message.body) > options.message_size_max:
        raise UsageError(
            f"a body of {len(message.body)} bytes: the limit is {options.message_size_max}"
        )


@functools.lru_cache(maxsize=1024)
def _wrong_topic(topic: str) -> str | None:
    """Return what is wrong with a topic to send to; they are few, and messages many."""
    return names.check_topic(topic) or names.check_may_send(topic)


def _properties(
    message: Message, message_id: str, system: Mapping[str, str], options: ProducerOptions
) -> str:
    found = dict(message.properties)
    if found and (reserved := properties.RESERVED & found.keys() - _MAY_BE_SET):
        raise UsageError(f"property names {sorted(reserved)} are RocketMQ's own")
    if message.tag:
        found[properties.TAGS] = message.tag
    if message.keys:
        if any(not key or key.split() != [key] for key in message.keys):
            raise UsageError("a key is not empty and has no white space")
        found[properties.KEYS] = properties.KEY_SEPARATOR.join(message.keys)
    level = cast("object", message.delay_level)
    if not isinstance(level, int) or isinstance(level, bool):
        raise UsageError(f"delay_level is an int, not {type(level).__name__}")
    if not 0 <= message.delay_level <= options.delay_levels:
        raise UsageError(
            f"delay_level {message.delay_level} is not within 0..{options.delay_levels}"
            " (18 levels unless brokers have others: ProducerOptions.delay_levels)"
        )
    if message.delay_level:
        found[properties.DELAY] = str(message.delay_level)
    if not message.wait_store_ok:
        found[properties.WAIT] = "false"
    found[properties.UNIQ_KEY] = message_id
    found.update(system)
    return _joined(found)


def _joined(found: Mapping[str, str]) -> str:
    try:
        text = properties.write(found)
        if not text.isascii():
            _ = text.encode()
    except properties.PropertyError as error:
        raise UsageError(str(error)) from error
    except UnicodeEncodeError as error:
        raise UsageError(
            f"tag, keys and properties have to be valid Unicode, as {error.object!r} is not"
        ) from error
    if properties.size(text) > properties.SIZE_MAX:
        raise UsageError(f"properties are longer than {properties.SIZE_MAX} bytes")
    return text


_MAY_BE_SET = frozenset(
    {
        properties.SHARDING_KEY,
        properties.TIMER_DELAY_SEC,
        properties.TIMER_DELAY_MS,
        properties.TIMER_DELIVER_MS,
    }
)
"""Reserved names with a meaning for the producer, for which there is no field yet."""
