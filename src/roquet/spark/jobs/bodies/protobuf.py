"""Bodies in Protobuf, by a set of descriptors (`protoc --descriptor_set_out --include_imports`).

A field that says whether it is set is null when it is not; all others have Protobuf's defaults.
Enums are their names, unsigned numbers the next wider type, Timestamp is a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.base.errors import UsageError
from roquet.spark.jobs.bodies import shapes
from roquet.spark.jobs.bodies.shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Callable

_MOMENT = "google.protobuf.Timestamp"


class ProtobufReader:
    """Reads bodies that are messages of one type."""

    def __init__(self, descriptors: bytes, message: str) -> None:
        """Take a serialized FileDescriptorSet and a message's full name. Raises UsageError."""
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415
        from google.protobuf.message import DecodeError  # noqa: PLC0415

        pool = descriptor_pool.DescriptorPool()
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
            for file in files:
                pool.Add(file)
            found: Any = pool.FindMessageTypeByName(message)
        except KeyError as error:
            raise UsageError(f"message: the descriptors have no {message[:200]}") from error
        except (DecodeError, TypeError) as error:
            raise UsageError(
                "schema: no set of descriptors with all imports (protoc --descriptor_set_out"
                f" --include_imports): {str(error)[:300]}"
            ) from error
        shape = _message(found, ())
        if shape is None:
            raise UsageError(f"message: {message} has no fields, which no table can keep")
        self.shape = shape
        self._type = message_factory.GetMessageClass(found)

    def read(self, body: bytes) -> Any:
        """Return the message. Raises DecodeError."""
        return self._type.FromString(body)


def _message(descriptor: Any, within: tuple[str, ...]) -> Shape | None:
    """Return the shape of messages of a type; None for one without fields."""
    import pyarrow as pa  # noqa: PLC0415  (slow to import)

    name = descriptor.full_name
    if name in within:
        raise UsageError(f"message: {name} is a part of itself, which no table can keep")
    if name == _MOMENT:
        return Shape(pa.timestamp("us", "UTC"), _micros)
    types: list[tuple[str, Any]] = []
    getters: list[tuple[str, Callable[[Any], Any]]] = []
    for field in descriptor.fields:
        shape = _field(field, (*within, name))
        if shape is not None:
            types.append((field.name, shape.type))
            getters.append((field.name, _getter(field, shape)))
    if not types:
        return None

    def convert(found: Any) -> dict[str, Any]:
        return {name: get(found) for name, get in getters}

    return Shape(pa.struct(types), convert)


def _field(field: Any, within: tuple[str, ...]) -> Shape | None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        by_name = field.message_type.fields_by_name
        key, value = _single(by_name["key"], within), _single(by_name["value"], within)
        return None if key is None or value is None else shapes.mapped(key, value)
    shape = _single(field, within)
    return shapes.repeated(shape) if shape is not None and field.is_repeated else shape


def _single(field: Any, within: tuple[str, ...]) -> Shape | None:
    """Return the shape of one value of a field."""
    import pyarrow as pa  # noqa: PLC0415

    if field.message_type is not None:
        return _message(field.message_type, within)
    if field.enum_type is not None:
        return Shape(pa.string(), _named(field.enum_type))
    if field.cpp_type == field.CPPTYPE_STRING:
        return Shape(pa.binary() if field.type == field.TYPE_BYTES else pa.string())
    return Shape(
        {
            field.CPPTYPE_INT32: pa.int32(),
            field.CPPTYPE_INT64: pa.int64(),
            field.CPPTYPE_UINT32: pa.int64(),
            field.CPPTYPE_UINT64: pa.decimal128(20, 0),
            field.CPPTYPE_DOUBLE: pa.float64(),
            field.CPPTYPE_FLOAT: pa.float32(),
            field.CPPTYPE_BOOL: pa.bool_(),
        }[field.cpp_type]
    )


def _named(enum: Any) -> Callable[[int], str]:
    names: dict[int, str] = {number: it.name for number, it in enum.values_by_number.items()}
    # A number that a later version has added has no name here.
    return lambda number: names.get(number, str(number))


def _micros(moment: Any) -> int:
    seconds: int = moment.seconds
    nanos: int = moment.nanos
    return seconds * 1_000_000 + nanos // 1_000


def _getter(field: Any, shape: Shape) -> Callable[[Any], Any]:
    name: str = field.name

    def always(found: Any) -> Any:
        return shape.of(getattr(found, name))

    def when_set(found: Any) -> Any:
        return shape.of(getattr(found, name)) if found.HasField(name) else None

    return when_set if field.has_presence else always
