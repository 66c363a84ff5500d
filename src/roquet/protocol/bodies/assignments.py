"""Assignments of queues and request modes: bodies of 400, 401 and 402, and their file."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

from roquet.model.request_mode import GroupRequestMode, RequestMode
from roquet.model.subscription import MessageModel
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.fastjson_reader import JsonError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.model.queue import MessageQueue

_MODES = frozenset(map(str, RequestMode))
_MODELS = frozenset(map(str, MessageModel))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueryAssignmentBody:
    """Body of 400 (Java: QueryAssignmentRequestBody)."""

    topic: str
    group: str
    client_id: str
    strategy: str
    model: MessageModel = MessageModel.CLUSTERING

    def encode(self) -> bytes:
        """Write the body."""
        return fastjson.java(
            {
                "clientId": self.client_id,
                "consumerGroup": self.group,
                "messageModel": str(self.model),
                "strategyName": self.strategy,
                "topic": self.topic,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the body. Raises JsonError."""
        source = fastjson.read_object(data, tolerant_size_max=fastjson.REQUEST_SIZE_MAX)
        model = fields.text(source, "messageModel", MessageModel.CLUSTERING)
        if model not in _MODELS:
            raise JsonError(f"messageModel: {model[:60]!r} is unknown")
        return cls(
            topic=fields.text(source, "topic"),
            group=fields.text(source, "consumerGroup"),
            client_id=fields.text(source, "clientId"),
            strategy=fields.text(source, "strategyName"),
            model=MessageModel(model),
        )


def encode_assignments(queues: Iterable[MessageQueue] | None, mode: RequestMode) -> bytes:
    """Write the answer to 400; None tells the client to keep what it has."""
    if queues is None:
        return fastjson.java({"messageQueueAssignments": None})
    rows = [{"messageQueue": fields.queue_json(it), "mode": str(mode)} for it in sorted(queues)]
    return fastjson.java({"messageQueueAssignments": rows})


def decode_assignments(data: bytes) -> dict[MessageQueue, RequestMode] | None:
    """Read the answer to 400; None: keep what you have. Raises JsonError."""
    source = fastjson.read_object(data)
    if source.get("messageQueueAssignments") is None:
        return None
    rows = fields.objects(source, "messageQueueAssignments")
    return {fields.queue(fields.obj(row, "messageQueue")): _mode(row) for row in rows}


def request_mode_json(value: GroupRequestMode) -> fields.Json:
    """Return the fields of a request mode."""
    return {
        "consumerGroup": value.group,
        "mode": str(value.mode),
        "popShareQueueNum": value.pop_share,
        "topic": value.topic,
    }


def decode_request_mode(data: bytes) -> GroupRequestMode:
    """Read the body of 401. Raises JsonError."""
    return _request_mode(fastjson.read_object(data, tolerant_size_max=fastjson.REQUEST_SIZE_MAX))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestModeTable:
    """All request modes: the answer to 402 and `messageRequestMode.json`."""

    modes: tuple[GroupRequestMode, ...] = ()

    def encode(self) -> bytes:
        """Write on one line, as 402 answers it."""
        return fastjson.java(self._json())

    def encode_file(self) -> bytes:
        """Write as the file has it."""
        return fastjson.pretty(self._json())

    @classmethod
    def decode(cls, data: bytes, *, tolerant_size_max: int = fastjson.TOLERANT_SIZE_MAX) -> Self:
        """Read the table; the keys count, not what stands in a row. Raises JsonError."""
        source = fastjson.read_object(data, tolerant_size_max=tolerant_size_max)
        topics = fields.obj(source, "messageRequestModeMap")
        modes: list[GroupRequestMode] = []
        for topic in topics:
            groups = fields.obj(topics, topic)
            for group in groups:
                row = _request_mode(fields.obj(groups, group))
                modes.append(dataclasses.replace(row, topic=topic, group=group))
        return cls(modes=tuple(modes))

    def _json(self) -> fields.Json:
        topics: dict[str, fields.Json] = {}
        for row in self.modes:
            topics.setdefault(row.topic, {})[row.group] = request_mode_json(row)
        return {"messageRequestModeMap": topics}


def _request_mode(source: Mapping[str, Any]) -> GroupRequestMode:
    return GroupRequestMode(
        topic=fields.text(source, "topic"),
        group=fields.text(source, "consumerGroup"),
        mode=_mode(source),
        pop_share=fields.i32(source, "popShareQueueNum"),
    )


def _mode(source: Mapping[str, Any]) -> RequestMode:
    text = fields.text(source, "mode", RequestMode.PULL)
    if text not in _MODES:
        raise JsonError(f"mode: {text[:60]!r} is neither PULL nor POP")
    return RequestMode(text)
