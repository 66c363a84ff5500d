"""Bodies of messages as values of Arrow: what the readers of Avro and of Protobuf have in common.

A reader knows the type of its values and makes one of a body's bytes. A body that is not as its
schema says becomes null; it neither ends the job nor touches the bodies beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from roquet.base.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

DECIMAL_DIGITS_MAX = 38
"""Of Spark's decimals."""
TEXT_MAX = 300
"""Characters of what a library says of a body."""
SLICE_BYTES = 1 << 20
"""Bytes of bodies, about, whose values are objects of Python at one time: these are far larger."""


class Shape(NamedTuple):
    """The Arrow type of values, and what makes one of what a library has read; None: it is one."""

    type: Any
    convert: Callable[[Any], Any] | None = None

    def of(self, value: Any) -> Any:
        """Return a library's value as Arrow takes it."""
        return value if value is None or self.convert is None else self.convert(value)


class Reader(Protocol):
    """Makes values of bodies."""

    shape: Shape

    def read(self, body: bytes) -> Any:
        """Return a body's value. Raises whatever its library does when the body is none.

        Unreachable says that nobody can tell now, and ends the task.
        """
        ...


def record(name: str, fields: Mapping[str, Shape]) -> Shape:
    """Return the shape of a record that a library gives as a dict. Raises UsageError."""
    import pyarrow as pa  # noqa: PLC0415  (slow to import)

    if not fields:
        raise UsageError(f"schema: {name} has no fields, which no table can keep")
    made = pa.struct([(field, shape.type) for field, shape in fields.items()])
    if all(shape.convert is None for shape in fields.values()):
        return Shape(made)

    def convert(found: Any) -> dict[str, Any]:
        return {name: shape.of(found[name]) for name, shape in fields.items()}

    return Shape(made, convert)


def repeated(item: Shape) -> Shape:
    """Return the shape of a list."""
    import pyarrow as pa  # noqa: PLC0415

    made = pa.list_(item.type)
    if item.convert is None:
        return Shape(made)

    def convert(found: Any) -> list[Any]:
        return [item.of(it) for it in found]

    return Shape(made, convert)


def mapped(key: Shape, value: Shape) -> Shape:
    """Return the shape of a map; its keys are as they are."""
    import pyarrow as pa  # noqa: PLC0415

    def convert(found: Any) -> list[tuple[Any, Any]]:
        return [(name, value.of(it)) for name, it in found.items()]

    return Shape(pa.map_(key.type, value.type), convert)


def values(reader: Reader, bodies: Iterable[bytes | None]) -> Any:
    """Return an Arrow array of the bodies' values, null where one cannot be read."""
    import pyarrow as pa  # noqa: PLC0415

    parts: list[Any] = []
    found: list[Any] = []
    size = 0
    for body in bodies:
        found.append(_value(reader, body))
        size += len(body or b"")
        if size >= SLICE_BYTES:
            parts.append(_array(reader, found))
            found, size = [], 0
    return pa.concat_arrays([*parts, _array(reader, found)])


def why(reader: Reader, body: bytes | None) -> str:
    """Return in a line why a body cannot be read, for one of which `values` made null."""
    if not body:
        return "empty"
    try:
        _strict(reader, reader.shape.of(reader.read(body)))
    except Unreachable:
        raise
    except (EOFError, IndexError):
        # What fastavro raises at the end of bytes.
        return "it ends too early"
    except Exception as error:  # noqa: BLE001  (bytes that anybody may have sent)
        text = " ".join(str(error).split())[:TEXT_MAX]
        return f"{type(error).__name__}: {text}" if text else type(error).__name__
    return "it is not as the schema says"


# --- inside --------------------------------------------------------------------------------------


def _value(reader: Reader, body: bytes | None) -> Any:
    if body is None:
        return None
    try:
        return reader.shape.of(reader.read(body))
    except Unreachable:
        # Where its schema is kept is away: the body may be good.
        raise
    except Exception:  # noqa: BLE001  (bytes that anybody may have sent, read by a library)
        return None


def _strict(reader: Reader, value: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    return pa.array([value], type=reader.shape.type)


def _array(reader: Reader, found: Sequence[Any]) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    try:
        return pa.array(found, type=reader.shape.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # A value that its type cannot hold, such as a decimal with too many digits.
        if len(found) == 1:
            return pa.nulls(1, reader.shape.type)
        return pa.concat_arrays([_array(reader, [it]) for it in found])
