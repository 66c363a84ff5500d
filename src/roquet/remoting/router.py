"""From request code to handler: one table, and the only place where errors become codes."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from roquet.protocol.codes import RequestCode
    from roquet.protocol.command import Command


class Peer(Protocol):
    """The other end of one connection, as handlers see it."""

    @property
    def address(self) -> str:
        """`ip:port` of the peer."""
        ...

    @property
    def key(self) -> int:
        """A number no other connection of this process has or had."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether an answer could still arrive."""
        ...

    def send_one_way(self, command: Command) -> None:
        """Tell the peer something; nothing happens when it has gone."""
        ...

    async def call(self, command: Command, timeout_s: float) -> Command:
        """Ask the peer. Raises Unreachable or OutcomeUnknown."""
        ...

    def close(self, why: str) -> None:
        """End the connection."""
        ...


@dataclasses.dataclass(slots=True)
class Request:
    """What a handler is given. A handler that returned None may call `reply` later, once."""

    command: Command
    peer: Peer
    received_ms: int
    reply: Callable[[Command], None]


class Ports(enum.Flag):
    """Which of a broker's two ports serve a code."""

    MAIN = enum.auto()
    FAST = enum.auto()
    BOTH = MAIN | FAST


Handler = Callable[[Request], "Awaitable[Command | None] | Command | None"]
"""Returns the reply, or None when it comes later through `Request.reply` (or never: one-way).

A plain function runs at once on the loop; a coroutine function runs within its lane.
A handler that cannot do it raises `base.errors.Refused(code, remark)`.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """One row: these codes go to this handler, in this lane, on these ports."""

    codes: tuple[RequestCode, ...]
    handler: Handler
    lane: str
    ports: Ports = Ports.BOTH
