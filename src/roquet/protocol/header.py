"""How typed headers become extFields and back: text to text, numbers checked (spec: wire §6)."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, dataclass_transform

from roquet.base.overriding import override

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_I32_MAX = 2**31 - 1
_DIGITS_OF_I32 = len(str(_I32_MAX))
_I64_MAX = 2**63 - 1
_DIGITS_OF_I64 = len(str(_I64_MAX))
"""Plain digits, fewer than these, fit and need no closer look."""


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
    if len(text) < _DIGITS_OF_I32 and text.isdigit() and text.isascii():
        return int(text)
    return _integer(text, _I32_MAX)


def _i64(text: str) -> int:
    if len(text) < _DIGITS_OF_I64 and text.isdigit() and text.isascii():
        return int(text)
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


class _Wire(NamedTuple):
    """What `wire` says of a field."""

    name: str
    kind: str
    default: object


def wire(name: str, kind: str, default: object = ...) -> Any:
    """Declare a header field by its Java name and kind (`i32 i64 bool boundary str`)."""
    return _Wire(name, kind, default)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(wire,))
class Header:
    """The fields of one request or response, beside its body.

    A subclass declares its fields with `wire`, and is then made, compared and shown as a frozen
    dataclass is. It is none: making the methods of nearly a hundred classes took a fifth of the
    time that a broker's imports need.
    """

    SHORT_NAMES: ClassVar[Mapping[str, str]] = {}
    """Java name -> one-letter name, for the header that has a short form (SEND_MESSAGE_V2)."""

    wire_fields: ClassVar[Mapping[str, _Wire]] = {}
    wire_required: ClassVar[frozenset[str]] = frozenset()

    @override
    def __init_subclass__(cls) -> None:
        """Note the fields; a default becomes the value that the class itself has."""
        given = {name: field for name, field in vars(cls).items() if isinstance(field, _Wire)}
        cls.wire_fields = {**cls.wire_fields, **given}
        for name, field in given.items():
            if field.default is ...:
                delattr(cls, name)
            else:
                setattr(cls, name, field.default)
        cls.wire_required = frozenset(n for n, it in cls.wire_fields.items() if it.default is ...)

    def __init__(self, **values: Any) -> None:
        """Take values by field name. Raises TypeError for one too many or too few."""
        given = values.keys()
        wrong = (given - self.wire_fields.keys()) | (self.wire_required - given)
        if wrong:
            raise TypeError(
                f"{type(self).__name__}: unknown or missing: {', '.join(sorted(wrong))}"
            )
        self.__dict__.update(values)

    @override
    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: what was read stays as it was read."""
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")

    @override
    def __delattr__(self, name: str) -> None:
        """Refuse."""
        raise AttributeError(f"{type(self).__name__}.{name} cannot be deleted")

    @override
    def __eq__(self, other: object) -> bool:
        """Tell whether all fields are equal."""
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.wire_fields)

    @override
    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.wire_fields))

    @override
    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.wire_fields)
        return f"{type(self).__name__}({shown})"

    @classmethod
    def decode(cls, ext: Mapping[str, str] | None, *, short: bool = False) -> Self:
        """Read the fields; unknown ones are ignored.

        Raises HeaderError for a required field that is absent and for a number that is none.
        """
        given = ext or {}
        values: dict[str, Any] = {}
        for field, name, read, required, _ in _plan(cls, short):
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
        return cls.of(values)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Make a header of values by field that were read before, as `decode` does."""
        header = cls.__new__(cls)
        header.__dict__.update(values)
        return header

    def encode(self, *, short: bool = False) -> dict[str, str]:
        """Write the fields that have a value, under their Java (or short) names."""
        return _written(_plan(type(self), short), self.__dict__)

    @classmethod
    def written(cls, **values: Any) -> dict[str, str]:
        """Return what `encode` of a header with these values would, without making one.

        Raises TypeError for a required field that is missing.
        """
        if not cls.wire_required <= values.keys():
            raise TypeError(f"{cls.__name__}: missing: {cls.wire_required - values.keys()}")
        return _written(_plan(cls, False), values)

    @classmethod
    def writer(cls) -> Callable[[Mapping[str, Any]], dict[str, str]]:
        """Return what `encode` does, for values by field, with less work for each header.

        What is returned raises KeyError for a required field that is missing.
        """
        return functools.partial(_written, _plan(cls, False))

    @classmethod
    def rows(cls, *, short: bool = False) -> list[tuple[str, str, str, bool]]:
        """Return (field, name on the wire, kind, whether required) of each field."""
        kinds = cls.wire_fields
        return [
            (field, name, kinds[field].kind, required)
            for field, name, _, required, _ in _plan(cls, short)
        ]


_WORDS = {True: "true", False: "false"}

_Plan = tuple[tuple[str, str, "Callable[[str], Any]", bool, object], ...]


def _written(plan: _Plan, values: Mapping[str, Any]) -> dict[str, str]:
    ext: dict[str, str] = {}
    for field, name, _, required, default in plan:
        value = values[field] if required else values.get(field, default)
        if value is None:
            continue
        if isinstance(value, str):
            ext[name] = value
        else:
            ext[name] = _WORDS[value] if isinstance(value, bool) else str(value)
    return ext


_plans: dict[tuple[type[Header], bool], _Plan] = {}


def _plan(cls: type[Header], short: bool) -> _Plan:
    """Return (field, name on the wire, reader, whether required, default) of each, made once."""
    plan = _plans.get((cls, short))
    if plan is None:
        plan = _plans[cls, short] = _made_plan(cls, short)
    return plan


def _made_plan(cls: type[Header], short: bool) -> _Plan:
    rows: list[tuple[str, str, Callable[[str], Any], bool, object]] = []
    for field, (name, kind, default) in cls.wire_fields.items():
        shown = cls.SHORT_NAMES.get(name, name) if short else name
        required = default is ...
        rows.append((field, shown, _READERS[kind], required, None if required else default))
    return tuple(rows)
