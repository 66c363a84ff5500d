"""What plugins may look at: sends, pulls, and every request. The shapes, and where they are found.

A plugin is an installed package with an entry point in one of the three groups; what it names is
called without arguments when the broker is built and returns the hook:

    [project.entry-points."roquet.send_hooks"]
    audit = "my_package:Audit"

Hooks run on the loop, in the order of their names, before and after the broker's own work. They
must not wait. Raising `roquet.base.errors.Refused` in a `before_…` method ends the request with
that code and remark, raising `roquet.broker.api.refusal.Refusal` with the code of its reason; any
other exception is logged and changes nothing. Hooks on sends and reads are around the operations of
every front, those on requests around the handlers of frames: a frame that is refused before it is
read as a send or a read (overload, a header field missing, no body) is seen by the latter alone.
While a hook is there, no request takes the fast path, and with a hook on sends each is appended by
itself; without one, none of this runs.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.protocol.command import Command

SEND_GROUP = "roquet.send_hooks"
CONSUME_GROUP = "roquet.consume_hooks"
RPC_GROUP = "roquet.rpc_hooks"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SendContext:
    """A message, a batch or a reply that has come in."""

    producer_group: str
    topic: str
    queue_id: int
    properties: Mapping[str, str]
    """As the producer gave them; those of a batch's messages are in its body."""
    body_size: int
    """Bytes, as sent."""
    born_timestamp: int
    """Unix milliseconds by the producer's clock."""
    is_batch: bool
    is_reply: bool
    peer: str
    """`ip:port` of the producer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a request was answered."""

    code: int
    remark: str | None
    message_id: str | None = None
    """Offset ids of a send, joined by commas; None when nothing was stored."""
    queue_offset: int | None = None
    messages_size: int = 0
    """Bytes of the records of a pull's answer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeContext:
    """A pull that has come in."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    peer: str
    """`ip:port` of the consumer."""


class SendHook(Protocol):
    """Looks at sends, and may refuse them."""

    def before_send(self, context: SendContext) -> None:
        """Look before anything is checked or stored. May raise Refused."""
        ...

    def after_send(self, context: SendContext, outcome: Outcome) -> None:
        """Look at the answer just before it is written."""
        ...


class ConsumeHook(Protocol):
    """Looks at pulls, and may refuse them."""

    def before_consume(self, context: ConsumeContext) -> None:
        """Look before anything is read. May raise Refused."""
        ...

    def after_consume(self, context: ConsumeContext, outcome: Outcome) -> None:
        """Look at the answer; a pull that was held is answered much later."""
        ...


class RpcHook(Protocol):
    """Looks at every request that has a handler, and may refuse it."""

    def before_request(self, peer: str, request: Command) -> None:
        """Look before the handler does. May raise Refused."""
        ...

    def after_response(self, peer: str, request: Command, response: Command | None) -> None:
        """Look at the answer; None when there is none, or the handler failed."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Hooks:
    """All hooks of a broker, each kind in the order of its plugins' names."""

    send: tuple[SendHook, ...] = ()
    consume: tuple[ConsumeHook, ...] = ()
    rpc: tuple[RpcHook, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether there is any."""
        return bool(self.send or self.consume or self.rpc)
