"""What ends the flight of a message of any topic, or changes when it comes back."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from roquet.broker.api.pop import (
    ChangeInvisibleRequest,
    LightAckRequest,
    LightInvisibleRequest,
    PopAckRequest,
)
from roquet.broker.api.send import SendBackRequest
from roquet.broker.light.facts import QUOTA_DEFAULT, QUOTA_TOLERANCE, bound_topic, quota_of
from roquet.protocol.pop.handle import HandleError, ReceiptHandle, real_topic
from roquet.proxy.brokers.api import light_of
from roquet.proxy.rules.codes import Code, Rejected

if TYPE_CHECKING:
    from roquet.broker.api.caller import Caller
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.proxy.brokers.api import Brokers


class Flight(NamedTuple):
    """A message that lies with a consumer."""

    topic: str
    group: str
    handle: str
    """The receipt handle, with the place in the log behind it."""
    light: str = ""
    """The light topic that it is of, if any."""


class Settlements:
    """Settles messages with the broker. Each call may raise Rejected, Refusal and StoreFault."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def ack(self, flight: Flight, caller: Caller) -> None:
        """Acknowledge a message."""
        handle, plain = _plain(flight.handle)
        if flight.light:
            light_request = LightAckRequest(
                topic=flight.topic,
                name=flight.light,
                group=flight.group,
                queue_id=handle.queue_id,
                offset=handle.queue_offset,
                handle=plain,
            )
            await light_of(self._brokers).ack(handle.broker_name, light_request, caller)
            return
        request = PopAckRequest(
            topic=real_topic(flight.topic, flight.group, handle.retry_flag),
            group=flight.group,
            queue_id=handle.queue_id,
            offset=handle.queue_offset,
            handle=plain,
        )
        await self._brokers.ack(handle.broker_name, request, caller)

    async def change(
        self, flight: Flight, invisible_ms: int, caller: Caller, *, is_suspended: bool = False
    ) -> str:
        """Have a message come back at another time; return its handle from now on."""
        handle, plain = _plain(flight.handle)
        if flight.light:
            return await self._change_light(flight, invisible_ms, caller, is_suspended=is_suspended)
        request = ChangeInvisibleRequest(
            topic=real_topic(flight.topic, flight.group, handle.retry_flag),
            group=flight.group,
            queue_id=handle.queue_id,
            offset=handle.queue_offset,
            handle=plain,
            invisible_ms=invisible_ms,
            is_suspended=is_suspended,
        )
        name = handle.broker_name
        changed = await self._brokers.change_invisible(name, request, caller)
        return with_place(changed, flight.handle)

    async def _change_light(
        self, flight: Flight, invisible_ms: int, caller: Caller, *, is_suspended: bool
    ) -> str:
        handle, plain = _plain(flight.handle)
        request = LightInvisibleRequest(
            topic=flight.topic,
            name=flight.light,
            group=flight.group,
            queue_id=handle.queue_id,
            offset=handle.queue_offset,
            handle=plain,
            invisible_ms=invisible_ms,
            is_suspended=is_suspended,
        )
        light = light_of(self._brokers)
        changed = await light.change_invisible(handle.broker_name, request, caller)
        if changed is None:
            # It was acknowledged meanwhile.
            return flight.handle
        following = handle._replace(
            pop_time_ms=changed.pop_time_ms,
            invisible_ms=changed.invisible_ms,
            revive_queue=changed.revive_queue,
        )
        return with_place(following, flight.handle)

    async def bury(self, flight: Flight, physical_offset: int, caller: Caller) -> None:
        """Put a message among the dead letters of its group, then acknowledge it."""
        request = SendBackRequest(
            group=flight.group, physical_offset=physical_offset, delay_level=-1, attempts_max=0
        )
        handle = handle_of(flight.handle)
        topic = real_topic(flight.topic, flight.group, handle.retry_flag)
        await self._brokers.send_back(handle.broker_name, topic, request, caller)
        await self.ack(flight, caller)


def check_bound(config: SubscriptionGroupConfig | None, topic: str, group: str) -> None:
    """Raise Rejected unless a group is bound to a parent topic."""
    if config is None or bound_topic(config.attributes) != topic:
        text = f"the group {group[:255]} is not bound to the topic {topic[:255]}"
        raise Rejected(Code.ILLEGAL_TOPIC, text)


def told_quota(group: SubscriptionGroupConfig | None) -> int:
    """Return how many lite topics a client is told that it may have."""
    quota = quota_of({} if group is None else group.attributes)
    return QUOTA_DEFAULT if quota is None else max(0, quota - QUOTA_TOLERANCE)


def handle_of(text: str) -> ReceiptHandle:
    """Read a handle. Raises Rejected."""
    try:
        return ReceiptHandle.decode(text)
    except HandleError as error:
        raise bad_handle(str(error)) from error


def broker_of(text: str) -> str:
    """Return the broker that a handle names; nothing for what is no handle."""
    with contextlib.suppress(HandleError):
        return ReceiptHandle.decode(text).broker_name
    return ""


def bad_handle(text: str) -> Rejected:
    """Return what is said of a handle that names nothing."""
    return Rejected(Code.INVALID_RECEIPT_HANDLE, text)


def with_place(handle: ReceiptHandle, before: str) -> str:
    """Return a new handle with the place in the log that the one before it names."""
    place = before.split(" ")[8:9]
    return " ".join([handle.encode(), *place])


def _plain(text: str) -> tuple[ReceiptHandle, str]:
    """Return a handle, and its text as the broker reads it."""
    handle = handle_of(text)
    return handle, handle.encode()
