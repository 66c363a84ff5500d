"""Replies of request-reply: what the requester is given, and what the replier is told."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.broker.api.send import SendRequest


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PushedReply:
    """A reply on its way to the client that waits for it."""

    request: SendRequest
    """As the replier sent it."""
    properties: Mapping[str, str]
    """Those of the request, and when it was pushed."""
    born_address: str
    """`ip:port` of the replier."""
    store_address: str
    """`ip:port` of the broker."""
    store_ms: int
    """When the broker had it, Unix milliseconds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplyResult:
    """What became of a reply."""

    fault: str | None
    """Why the requester did not get it; None: it did."""
    queue_id: int
    message_id: str = "0"
    """Offset id of the stored copy; `0` when there is none."""
    queue_offset: int = 0
