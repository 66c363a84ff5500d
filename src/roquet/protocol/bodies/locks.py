"""Queue locks of orderly consumers: LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

from roquet.protocol import fastjson
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.model.queue import MessageQueue


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LockRequest:
    """Body of both requests (Java: LockBatchRequestBody, UnlockBatchRequestBody)."""

    client_id: str
    group: str
    queues: frozenset[MessageQueue]
    only_this_broker: bool = False

    def encode(self) -> bytes:
        """Write the body."""
        return fastjson.java(
            {
                "clientId": self.client_id,
                "consumerGroup": self.group,
                "mqSet": [fields.queue_json(queue) for queue in sorted(self.queues)],
                "onlyThisBroker": self.only_this_broker,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the body. Raises JsonError."""
        source = fastjson.read_object(data, tolerant_size_max=fastjson.REQUEST_SIZE_MAX)
        return fields.at_once(cls.of_json(source))

    @classmethod
    def of_json(cls, source: Mapping[str, Any]) -> fields.Steps[Self]:
        """Read the fields, in steps; arrays may be parts. Raises JsonError."""
        queues: set[MessageQueue] = set()
        for item, is_due in fields.paced_objects(source, "mqSet"):
            queues.add(fields.queue(item))
            if is_due:
                yield
        return cls(
            client_id=fields.text(source, "clientId"),
            group=fields.text(source, "consumerGroup"),
            queues=frozenset(queues),
            only_this_broker=fields.boolean(source, "onlyThisBroker"),
        )


def encode_locked(queues: Iterable[MessageQueue]) -> bytes:
    """Write the answer to 41: the queues that the client holds now."""
    return locked_body(",".join(map(locked_row, sorted(queues))).encode())


def locked_row(queue: MessageQueue) -> str:
    """Write one queue of that answer."""
    return fastjson.java(fields.queue_json(queue)).decode()


def locked_body(rows: bytes) -> bytes:
    """Write that answer around its rows, separated by commas."""
    return b'{"lockOKMQSet":[%b]}' % rows


def decode_locked(data: bytes) -> frozenset[MessageQueue]:
    """Read the answer to 41. Raises JsonError."""
    source = fastjson.read_object(data)
    return frozenset(fields.queue(item) for item in fields.objects(source, "lockOKMQSet"))
