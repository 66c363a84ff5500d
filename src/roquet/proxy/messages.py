"""The messages of gRPC as classes, made of the descriptor set that `tools/grpc_messages.py` makes.

The definitions are no part of the repository, so the attributes here have no types: `Message`,
`SendMessageRequest` and so on, by their names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
)

from roquet.base.errors import UsageError

PACKAGE = "apache.rocketmq.v2"
SERVICE = f"{PACKAGE}.MessagingService"
FILE = Path(__file__).with_name("messages.binpb")


def _pool(file: Path) -> Any:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"the message definitions of gRPC cannot be read ({file}: {error.strerror});"
            " `make grpc-messages` makes them"
        ) from error
    pool: Any = descriptor_pool.DescriptorPool()
    for known in (duration_pb2, timestamp_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    for one in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.AddSerializedFile(one.SerializeToString())
    return pool


_POOL = _pool(FILE)


def add_file(serialized: bytes) -> None:
    """Know the messages of one more file of definitions."""
    _POOL.AddSerializedFile(serialized)


def class_of(name: str) -> Any:
    """Return the class of a message by its full name."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


def files(name: str, *, is_symbol: bool) -> list[bytes]:
    """Return the file of this name, or with this symbol, and those it needs; nothing for none."""
    find = _POOL.FindFileContainingSymbol if is_symbol else _POOL.FindFileByName
    try:
        waiting = [find(name)]
    except KeyError:
        return []
    found: dict[str, bytes] = {}
    while waiting:
        file = waiting.pop()
        if file.name not in found:
            found[file.name] = file.serialized_pb
            waiting.extend(file.dependencies)
    return list(found.values())


def __getattr__(name: str) -> Any:
    """Return the class of a message."""
    if name.startswith("_"):
        raise AttributeError(name)
    found: Any = class_of(f"{PACKAGE}.{name}")
    globals()[name] = found
    return found


def methods() -> dict[str, tuple[Any, Any]]:
    """Return the classes of request and answer of each method of the service."""
    service = _POOL.FindServiceByName(SERVICE)
    return {
        method.name: (
            message_factory.GetMessageClass(method.input_type),
            message_factory.GetMessageClass(method.output_type),
        )
        for method in service.methods
    }


def name_of(enum: str, number: int) -> str | None:
    """Return the name of a number of an enum, None when it has none."""
    value = _POOL.FindEnumTypeByName(f"{PACKAGE}.{enum}").values_by_number.get(number)
    return None if value is None else str(value.name)
