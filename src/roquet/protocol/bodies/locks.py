"""Queue locks of orderly consumers: LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Self

from roquet.protocol import fastjson
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from collections.abc import Iterable

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
        return cls(
            client_id=fields.text(source, "clientId"),
            group=fields.text(source, "consumerGroup"),
            queues=frozenset(fields.queue(item) for item in fields.objects(source, "mqSet")),
            only_this_broker=fields.boolean(source, "onlyThisBroker"),
        )


def encode_locked(queues: Iterable[MessageQueue]) -> bytes:
    """Write the answer to 41: the queues that the client holds now."""
    return fastjson.java({"lockOKMQSet": [fields.queue_json(queue) for queue in sorted(queues)]})


def decode_locked(data: bytes) -> frozenset[MessageQueue]:
    """Read the answer to 41. Raises JsonError."""
    source = fastjson.read_object(data)
    return frozenset(fields.queue(item) for item in fields.objects(source, "lockOKMQSet"))
