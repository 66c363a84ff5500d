"""What the tests of light topics over gRPC share: a consumer, its requests, and what it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpc_calls import Calls, consumer
from roquet.proxy import messages as pb
from roquet.proxy.rules.codes import Code

if TYPE_CHECKING:
    from collections.abc import Sequence

PARENT, GROUP = "Chats", "chatters"
LITE_PUSH, LITE_SIMPLE = 5, 6
ADD, REMOVE, REPLACE, END = range(4)


def wanted(action: int, *names: str, topic: str = PARENT, group: str = GROUP) -> Any:
    request = pb.SyncLiteSubscriptionRequest(action=action, lite_topic_set=names)
    request.topic.name, request.group.name = topic, group
    return request


async def synced(calls: Calls, action: int, *names: str, **more: str) -> int:
    """Change a subscription; return the code."""
    answer = await calls.call("SyncLiteSubscription", wanted(action, *names, **more))
    return int(answer.status.code)


async def joined(calls: Calls, *names: str) -> None:
    """Show the settings of a consumer, and subscribe."""
    assert await calls.show(consumer(GROUP, LITE_PUSH, PARENT)) is None
    assert await synced(calls, ADD, *names) == Code.OK


async def got(calls: Calls, **more: Any) -> list[Any]:
    """Receive once; return the messages."""
    parts = await calls.receive(PARENT, GROUP, **more)
    if parts[0].status.code != Code.OK:
        return []
    return [part.message for part in parts[1:-1]]


def shown(messages: Sequence[Any]) -> list[tuple[str, bytes, int]]:
    return [
        (
            each.system_properties.lite_topic,
            each.body,
            each.system_properties.delivery_attempt,
        )
        for each in messages
    ]


def settling(method: str, found: Any) -> Any:
    request = pb.methods()[method][0]()
    request.topic.name, request.group.name = PARENT, GROUP
    system = found.system_properties
    if method == "AckMessage":
        request.entries.add(
            message_id=system.message_id,
            receipt_handle=system.receipt_handle,
            lite_topic=system.lite_topic,
        )
    else:
        request.message_id, request.receipt_handle = system.message_id, system.receipt_handle
        request.lite_topic = system.lite_topic
    return request
