"""What a codec is, and how its failures are told."""

from __future__ import annotations

from typing import Protocol

from roquet.base.errors import DecodeFailed, RoquetError, UsageError


class Codec(Protocol):
    """Turns values into bodies and back. Whatever it raises becomes one of Roquet's errors."""

    def encode(self, value: object, /) -> bytes:
        """Return the body of a value."""
        ...

    def decode(self, body: bytes, /) -> object:
        """Return the value of a body."""
        ...


def encoded(codec: Codec, value: object) -> bytes:
    """Return the body of a value. Raises UsageError when the codec cannot write it."""
    try:
        body = codec.encode(value)
    except RoquetError:
        raise
    except Exception as error:
        kind = type(value).__name__
        raise UsageError(f"{type(codec).__name__} cannot encode this {kind}: {error}") from error
    if not body:
        raise UsageError(f"{type(codec).__name__} makes an empty body, which brokers refuse")
    return body


def decoded(codec: Codec, body: bytes) -> object:
    """Return the value of a body. Raises DecodeFailed."""
    try:
        return codec.decode(body)
    except RoquetError:
        raise
    except Exception as error:
        name = type(codec).__name__
        raise DecodeFailed(f"{name} cannot decode a body of {len(body)} bytes: {error}") from error
