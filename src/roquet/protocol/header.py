"""How typed headers become extFields and back: text to text, numbers checked (spec: wire §6)."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_I32_MAX = 2**31 - 1
_I64_MAX = 2**63 - 1


class HeaderError(ValueError):
    """A field is missing or has a value of the wrong kind; `missing` tells which of the two."""

    def __init__(self, message: str, *, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


def _integer(text: str, limit: int) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError("not a decimal number")
    number = int(text)
    if not -limit - 1 <= number <= limit:
        raise ValueError(f"outside {-limit - 1}..{limit}")
    return number


def _i32(text: str) -> int:
    return _integer(text, _I32_MAX)


def _i64(text: str) -> int:
    return _integer(text, _I64_MAX)


def _boolean(text: str) -> bool:
    return text.lower() == "true"


def _boundary(text: str) -> str:
    return "UPPER" if text.upper() == "UPPER" else "LOWER"


_READERS: dict[str, Callable[[str], Any]] = {
    "i32": _i32,
    "i64": _i64,
    "bool": _boolean,
    "boundary": _boundary,
    "str": str,
}


def wire(name: str, kind: str, default: object = dataclasses.MISSING) -> Any:
    """Declare a header field by its Java name and kind (`i32 i64 bool boundary str`)."""
    metadata = {"wire": name, "kind": kind}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The fields of one request or response, beside its body."""

    SHORT_NAMES: ClassVar[Mapping[str, str]] = {}
    """Java name -> one-letter name, for the header that has a short form (SEND_MESSAGE_V2)."""

    @classmethod
    def decode(cls, ext: Mapping[str, str] | None, *, short: bool = False) -> Self:
        """Read the fields; unknown ones are ignored.

        Raises HeaderError for a required field that is absent and for a number that is none.
        """
        given = ext or {}
        values: dict[str, Any] = {}
        for field, name, read, required in _plan(cls, short):
            text = given.get(name)
            if text is None:
                if required:
                    raise HeaderError(f"field {name} of {cls.__name__} is missing", missing=True)
            elif read is str:
                values[field] = text
            else:
                try:
                    values[field] = read(text)
                except ValueError as error:
                    shown = text[:40]
                    raise HeaderError(f"field {name}: {shown!r}: {error}", missing=False) from error
        return cls(**values)

    def encode(self, *, short: bool = False) -> dict[str, str]:
        """Write the fields that have a value, under their Java (or short) names."""
        ext: dict[str, str] = {}
        for field, name, _, _ in _plan(type(self), short):
            value = getattr(self, field)
            if isinstance(value, str):
                ext[name] = value
            elif value is not None:
                ext[name] = _WORDS[value] if isinstance(value, bool) else str(value)
        return ext


_WORDS = {True: "true", False: "false"}

_Plan = tuple[tuple[str, str, "Callable[[str], Any]", bool], ...]


_plans: dict[tuple[type[Header], bool], _Plan] = {}


def _plan(cls: type[Header], short: bool) -> _Plan:
    """Return (field, name on the wire, reader, whether required) of each field, worked out once."""
    plan = _plans.get((cls, short))
    if plan is None:
        plan = _plans[cls, short] = _made_plan(cls, short)
    return plan


def _made_plan(cls: type[Header], short: bool) -> _Plan:
    rows: list[tuple[str, str, Callable[[str], Any], bool]] = []
    for field in dataclasses.fields(cls):
        name = field.metadata["wire"]
        if short:
            name = cls.SHORT_NAMES.get(name, name)
        required = field.default is dataclasses.MISSING
        rows.append((field.name, name, _READERS[field.metadata["kind"]], required))
    return tuple(rows)
