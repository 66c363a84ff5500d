"""Services that need no account: health, and reflection of what is served.

Their messages are few and are defined here, so that no package is needed for them. Both versions of
reflection have the same messages under other names.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from roquet.proxy import messages as pb
from roquet.proxy.rules.methods import Status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from roquet.proxy.services.clients import Stream

HEALTH = "grpc.health.v1"
REFLECTIONS = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
CHECK, WATCH = f"/{HEALTH}.Health/Check", f"/{HEALTH}.Health/Watch"
REFLECTION_PATHS = {
    f"/{package}.ServerReflection/ServerReflectionInfo": package for package in REFLECTIONS
}
REQUEST_MAX = 64 * 1024
"""Bytes of a request that anybody may send."""
WATCHES_MAX = 1_000
NAME_MAX = 1024
SERVING, SERVICE_UNKNOWN = 1, 3
_NOT_FOUND = 5
"""In the answers of reflection, as in gRPC."""

_FIELD = descriptor_pb2.FieldDescriptorProto
_STRING, _BYTES, _INT32 = _FIELD.TYPE_STRING, _FIELD.TYPE_BYTES, _FIELD.TYPE_INT32
_Field = tuple[str, int, Any, str]
"""Name, number, a type or the name of a message, and: "", "many", or the oneof that it is in."""


def _file(name: str, package: str, messages: dict[str, Sequence[_Field]]) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        for field_name, number, kind, where in fields:
            many = where == "many"
            label = _FIELD.LABEL_REPEATED if many else _FIELD.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=number, label=label)
            if isinstance(kind, str):
                field.type_name = f".{package}.{kind}"
                field.type = _FIELD.TYPE_MESSAGE
            else:
                field.type = kind
            if where and not many:
                if not message.oneof_decl:
                    message.oneof_decl.add(name=where)
                field.oneof_index = 0
    return file


def _health_file() -> Any:
    messages: dict[str, Sequence[_Field]] = {
        "HealthCheckRequest": [("service", 1, _STRING, "")],
        "HealthCheckResponse": [],
    }
    file = _file("grpc/health/v1/health.proto", HEALTH, messages)
    answer = file.message_type[1]
    status = answer.enum_type.add(name="ServingStatus")
    names = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
    for number, name in enumerate(names):
        status.value.add(name=name, number=number)
    field = answer.field.add(name="status", number=1, label=_FIELD.LABEL_OPTIONAL)
    field.type, field.type_name = _FIELD.TYPE_ENUM, f".{HEALTH}.HealthCheckResponse.ServingStatus"
    service = file.service.add(name="Health")
    asked, answered = f".{HEALTH}.HealthCheckRequest", f".{HEALTH}.HealthCheckResponse"
    service.method.add(name="Check", input_type=asked, output_type=answered)
    service.method.add(name="Watch", input_type=asked, output_type=answered, server_streaming=True)
    return file


def _reflection_file(package: str) -> Any:
    asks, says = "message_request", "message_response"
    messages: dict[str, Sequence[_Field]] = {
        "ServerReflectionRequest": [
            ("host", 1, _STRING, ""),
            ("file_by_filename", 3, _STRING, asks),
            ("file_containing_symbol", 4, _STRING, asks),
            ("file_containing_extension", 5, "ExtensionRequest", asks),
            ("all_extension_numbers_of_type", 6, _STRING, asks),
            ("list_services", 7, _STRING, asks),
        ],
        "ExtensionRequest": [
            ("containing_type", 1, _STRING, ""),
            ("extension_number", 2, _INT32, ""),
        ],
        "ServerReflectionResponse": [
            ("valid_host", 1, _STRING, ""),
            ("original_request", 2, "ServerReflectionRequest", ""),
            ("file_descriptor_response", 4, "FileDescriptorResponse", says),
            ("all_extension_numbers_response", 5, "ExtensionNumberResponse", says),
            ("list_services_response", 6, "ListServiceResponse", says),
            ("error_response", 7, "ErrorResponse", says),
        ],
        "FileDescriptorResponse": [("file_descriptor_proto", 1, _BYTES, "many")],
        "ExtensionNumberResponse": [
            ("base_type_name", 1, _STRING, ""),
            ("extension_number", 2, _INT32, "many"),
        ],
        "ListServiceResponse": [("service", 1, "ServiceResponse", "many")],
        "ServiceResponse": [("name", 1, _STRING, "")],
        "ErrorResponse": [("error_code", 1, _INT32, ""), ("error_message", 2, _STRING, "")],
    }
    name = f"{package.replace('.', '/')}/reflection.proto"
    file = _file(name, package, messages)
    file.service.add(name="ServerReflection").method.add(
        name="ServerReflectionInfo",
        input_type=f".{package}.ServerReflectionRequest",
        output_type=f".{package}.ServerReflectionResponse",
        client_streaming=True,
        server_streaming=True,
    )
    return file


for _one in (_health_file(), *map(_reflection_file, REFLECTIONS)):
    pb.add_file(_one.SerializeToString())

SERVICES = (
    pb.SERVICE,
    f"{HEALTH}.Health",
    *(f"{package}.ServerReflection" for package in REFLECTIONS),
)


class Answer(Protocol):
    """Where the answer to one call goes."""

    async def send(self, message: bytes) -> bool:
        """Send a message when there is room; false when nobody waits any more."""
        ...

    async def send_framed(self, messages: bytes) -> bool:
        """Send messages that are framed already; false when nobody waits any more."""
        ...

    def has_room(self) -> bool:
        """Tell whether the client's connection takes a message at once."""
        ...

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Be the only call of its connection with a turn, from when that takes messages again."""
        ...

    def finish(self, status: int, text: str) -> None:
        """End the call."""
        ...


class Health:
    """Says that this port serves: what does not serve does not answer."""

    def __init__(self) -> None:
        self._watches = 0
        self._asked = pb.class_of(f"{HEALTH}.HealthCheckRequest")
        self._answered = pb.class_of(f"{HEALTH}.HealthCheckResponse")

    async def serve(self, path: str, data: bytes, answer: Answer) -> None:
        """Answer a check, or a watch for as long as the client waits."""
        if len(data) > REQUEST_MAX:
            answer.finish(Status.RESOURCE_EXHAUSTED, f"a request may have {REQUEST_MAX} bytes")
            return
        try:
            service = self._asked.FromString(data).service
        except DecodeError:
            answer.finish(Status.INTERNAL, "Invalid protobuf byte sequence")
            return
        is_known = not service or service in SERVICES
        if path == CHECK and not is_known:
            answer.finish(Status.NOT_FOUND, f"unknown service {service[:NAME_MAX]}")
            return
        status = SERVING if is_known else SERVICE_UNKNOWN
        said = self._answered(status=status).SerializeToString()
        if path == CHECK:
            await answer.send(said)
            answer.finish(Status.OK, "")
        elif self._watches >= WATCHES_MAX:
            answer.finish(Status.RESOURCE_EXHAUSTED, f"{WATCHES_MAX} clients watch already")
        else:
            await self._watch(said, answer)

    async def _watch(self, said: bytes, answer: Answer) -> None:
        self._watches += 1
        try:
            if await answer.send(said):
                # Nothing changes before the port stops; then the call ends.
                await asyncio.get_running_loop().create_future()
        finally:
            self._watches -= 1


class Reflection:
    """One conversation about what is served."""

    def __init__(self, package: str) -> None:
        self._asked = pb.class_of(f"{package}.ServerReflectionRequest")
        self._answered = pb.class_of(f"{package}.ServerReflectionResponse")

    async def take(self, data: bytes, stream: Stream) -> tuple[Status, str] | None:
        """Answer a question; return how the stream ends, None when it goes on."""
        if len(data) > REQUEST_MAX:
            return Status.RESOURCE_EXHAUSTED, f"a request may have {REQUEST_MAX} bytes"
        try:
            asked = self._asked.FromString(data)
        except DecodeError:
            return Status.INTERNAL, "Invalid protobuf byte sequence"
        stream.send(self._answer(asked).SerializeToString())
        return None

    def left(self, stream: Stream) -> None:
        """Pass over the end of the stream."""

    def _answer(self, asked: Any) -> Any:
        answer = self._answered(valid_host=asked.host, original_request=asked)
        kind = asked.WhichOneof("message_request")
        if kind == "list_services":
            for name in SERVICES:
                answer.list_services_response.service.add(name=name)
            return answer
        found: list[bytes] = []
        if kind in {"file_by_filename", "file_containing_symbol"}:
            found = pb.files(getattr(asked, kind), is_symbol=kind == "file_containing_symbol")
        if found:
            answer.file_descriptor_response.file_descriptor_proto.extend(found)
        else:
            # There are no extensions in this version of the definitions.
            answer.error_response.error_code = _NOT_FOUND
            answer.error_response.error_message = "not found"
        return answer
