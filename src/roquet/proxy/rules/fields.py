"""How many fields a request has, before it is read: each becomes an object of its own.

Two bytes of a request can be an empty message, which takes seventy bytes of memory once it is read,
and reading does not let others have their turn. So the fields of a long request are counted by
their heads alone, and counting ends at the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from roquet.proxy.rules.codes import Code, Rejected
from roquet.proxy.rules.limits import FIELDS_MAX, REQUEST_MAX, SEND_FIELDS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORT = 4096
"""Requests up to so many bytes are read without being counted."""
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BYTES_MAX = 10


def check_size(method: str, data: bytes, kind: Any) -> None:
    """Raise Rejected for a request of too many bytes or fields, DecodeError for what is none.

    `kind` is the descriptor of the request.
    """
    is_send = method == "SendMessage"
    if not is_send and len(data) > REQUEST_MAX:
        raise Rejected(Code.BAD_REQUEST, f"a request of {method} may have {REQUEST_MAX} bytes")
    if len(data) <= SHORT:
        return
    most = SEND_FIELDS_MAX if is_send else FIELDS_MAX
    for count, _ in enumerate(_fields(data, kind)):
        if count >= most:
            raise Rejected(Code.BAD_REQUEST, f"a request of {method} may have {most} fields")


def _fields(data: bytes, kind: Any) -> Iterator[int]:
    """Yield the number of each field, of messages within messages as well."""
    left = [(0, len(data), kind)]
    while left:
        at, end, within = left.pop()
        known = within.fields_by_number
        while at < end:
            tag, at = _varint(data, at, end)
            number, shape = tag >> 3, tag & 7
            yield number
            if shape == _VARINT:
                _, at = _varint(data, at, end)
                continue
            size = _FIXED.get(shape)
            if size is None:
                if shape != _SIZED:
                    raise DecodeError("groups are not taken")
                size, at = _varint(data, at, end)
            field = known.get(number) if shape == _SIZED else None
            if size > end - at:
                raise DecodeError("a field ends behind its message")
            if field is not None and field.message_type is not None and size:
                left.append((at, at + size, field.message_type))
            at += size


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    found = shift = 0
    for place in range(at, min(end, at + _VARINT_BYTES_MAX)):
        byte = data[place]
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, place + 1
        shift += 7
    raise DecodeError("a number has no end")
