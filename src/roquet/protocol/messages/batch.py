"""Body of SEND_BATCH_MESSAGE (320): small records back to back (spec: wire §7.6)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from roquet.protocol.bodies.fields import at_once

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.protocol.bodies.fields import Steps

IDS_SIZE_MAX = 1 << 20
"""What the header of the answer has room for: the ids of all messages, by commas."""
STEP = 4_000
"""Messages that are cut between two pauses."""
_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")

Element = tuple[int, bytes, bytes]
"""(flag, body, properties as text in UTF-8)."""


class BatchError(ValueError):
    """A batch body whose lengths do not fit; nothing of it may be stored (B8)."""


def encode(elements: Iterable[Element]) -> bytes:
    """Join the elements. Raises BatchError for properties that are too long."""
    parts: list[bytes] = []
    for flag, body, properties in elements:
        if len(properties) > 32767:
            raise BatchError("properties are longer than 32767 bytes")
        total = _HEAD.size + len(body) + _SHORT.size + len(properties)
        parts.append(_HEAD.pack(total, 0, 0, flag, len(body)))
        parts += (body, _SHORT.pack(len(properties)), properties)
    return b"".join(parts)


def messages_max(host_size: int) -> int:
    """Return how many messages a batch may have at a broker with an address of 8 or 20 bytes.

    The answer names each of them: address and 8 bytes in hexadecimal.
    """
    return IDS_SIZE_MAX // (2 * (host_size + 8) + 1)


def decode(data: bytes) -> list[Element]:
    """Cut a batch body. The total of an element is not believed, as in Java. Raises BatchError."""
    return at_once(decoding(data, messages_max(8)))


def decoding(data: bytes, most: int) -> Steps[list[Element]]:
    """Cut a batch body of at most so many messages in steps. Raises BatchError."""
    found: list[Element] = []
    at = 0
    while at < len(data):
        if len(found) == most:
            raise BatchError(f"more than {most} messages: no answer has room for their ids")
        if len(found) % STEP == STEP - 1:
            yield
        if len(data) - at < _HEAD.size:
            raise BatchError("the batch ends within a message's head")
        _, _, _, flag, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if not 0 <= length <= len(data) - at - _SHORT.size:
            raise BatchError(f"a body of {length} bytes does not fit")
        body = data[at : at + length]
        at += length
        (size,) = _SHORT.unpack_from(data, at)
        at += _SHORT.size
        if not 0 <= size <= len(data) - at:
            raise BatchError(f"properties of {size} bytes do not fit")
        found.append((flag, body, data[at : at + size]))
        at += size
    return found
