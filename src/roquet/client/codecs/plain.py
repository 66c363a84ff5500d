"""JSON by the standard library, and typed JSON or MessagePack by msgspec."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import msgspec

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Json:
    """JSON in UTF-8, of what the `json` module knows: dicts, lists, texts, numbers, None.

    NaN and infinities are refused, as no other language reads them.
    """

    def encode(self, value: object, /) -> bytes:
        """Return the shortest text."""
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()

    def decode(self, body: bytes, /) -> object:
        """Return the value."""
        return json.loads(body)


class Msgspec(Generic[T]):
    """Values of one type: a `msgspec.Struct`, a dataclass, a TypedDict, `list[int]` and so on.

    Bodies are checked against the type when they are decoded.
    """

    def __init__(self, kind: type[T], *, form: Literal["json", "msgpack"] = "json") -> None:
        """Take the type. Raises UsageError for one that msgspec does not know."""
        self._kind = kind
        coder = msgspec.json if form == "json" else msgspec.msgpack
        self._encode: Callable[[object], bytes] = coder.Encoder().encode
        try:
            self._decode: Callable[[bytes], T] = coder.Decoder(kind).decode
        except TypeError as error:
            raise UsageError(f"msgspec does not know {kind!r:.80}: {error}") from error

    def encode(self, value: object, /) -> bytes:
        """Return the body of a value of the type. Raises UsageError for another."""
        try:
            msgspec.convert(msgspec.to_builtins(value), self._kind)
        except msgspec.ValidationError as error:
            raise UsageError(f"the value is no {self._kind!r:.80}: {error}") from error
        return self._encode(value)

    def decode(self, body: bytes, /) -> T:
        """Return the value."""
        return self._decode(body)
