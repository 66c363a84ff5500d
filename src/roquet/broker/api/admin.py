"""What operators ask for: units of queues, offsets of groups, the pair, clients to be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from roquet.broker.clients.registry import Client
    from roquet.model.subscription import SubscriptionData


class UnitsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Show units of a queue from an index on, and whether a group would get them."""

    topic: str
    queue_id: int
    index: int
    count: int
    group: str | None = None


class UnitsResult(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a queue."""

    min_index: int
    max_index: int
    """The first index behind the last unit."""
    units: list[dict[str, Any]] | None
    """None: there is no unit at the index."""
    subscription: SubscriptionData | None


class ResetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Let a group go on elsewhere."""

    topic: str
    group: str
    queue_id: int | None
    """None: all queues."""
    offset: int | None
    """Where to go on in that one queue; None: at the time."""
    time_ms: int
    """Unix milliseconds; below 0: at the end."""


class CloneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Give one group the offsets of another."""

    source: str
    target: str
    topic: str | None
    """None: all topics in which the source has offsets."""
    is_offline: bool
    """Also topics to which a connected source does not subscribe."""


class MasterAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where a master is, and how far its log is flushed."""

    address: str | None = None
    """For clients, `ip:port`."""
    ha_address: str | None = None
    """For slaves, `ip:port`."""
    flushed: int | None = None


class DirectRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Have one consumer process one stored message now."""

    group: str
    client_id: str
    topic: str
    message_id: str


class Direct(msgspec.Struct, frozen=True, kw_only=True):
    """What such a consumer is given."""

    client: Client
    record: bytes
    topic_sys_flag: int | None
    """None: there is no such topic."""
    group_sys_flag: int | None
    """None: there is no such group, and it may not be made."""
