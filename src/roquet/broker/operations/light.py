"""Operations on light topics for fronts other than remoting, with the same wrappers around them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import msgspec

from roquet.acl import needs
from roquet.broker.operations.wrapping import Operation, wrapped
from roquet.broker.services.light_reads import may_read

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Sequence

    from roquet.broker.api.caller import Caller
    from roquet.broker.api.pop import (
        LightAckRequest,
        LightInvisible,
        LightInvisibleRequest,
        LightPopRequest,
        LightPopResult,
        LightSubscribe,
    )
    from roquet.broker.light.control import LightControl
    from roquet.broker.light.pops import LightAcks, LightPops
    from roquet.broker.light.subscriptions import Client
    from roquet.broker.operations.wrapping import Wrapper
    from roquet.broker.pop.waits import LightWaits
    from roquet.broker.services.access import Access

    Tell = Callable[[str], None]
    """Tells a client that it lost a light topic."""


def _nothing(_: object) -> tuple[()]:
    """Need an account and no right of it; the service asks for those of each entry."""
    return ()


SUBSCRIBE = Operation("lite_subscription_ctl", _nothing)
POP = Operation("pop_lite_message", lambda it: needs.popped(it.topic, it.group))
ACK = Operation("ack_message", lambda it: needs.popped(it.topic, it.group))
CHANGE_INVISIBLE = Operation(
    "change_message_invisibletime", lambda it: needs.popped(it.topic, it.group)
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LightOperations:
    """What a front calls; each call takes a request and its caller, and may raise Refusal."""

    subscribe: Callable[
        [Sequence[LightSubscribe], Caller, Callable[[LightSubscribe], Tell], Hashable],
        Awaitable[None],
    ]
    pop: Callable[[LightPopRequest, Caller], Awaitable[LightPopResult]]
    """Takes what is there; a front that wants to wait asks again when it is told of a message."""
    ack: Callable[[LightAckRequest, Caller], None]
    change_invisible: Callable[[LightInvisibleRequest, Caller], LightInvisible | None]
    close: Callable[[Client], None]
    """Forgets a client that has gone."""
    waits: LightWaits


def make_light_operations(
    control: LightControl,
    pops: LightPops,
    acks: LightAcks,
    *,
    waits: LightWaits,
    wrappers: Sequence[Wrapper],
    access: Access,
) -> LightOperations:
    """Put the wrappers around what the services do."""

    async def pop(request: LightPopRequest, caller: Caller) -> LightPopResult:
        allowed = may_read(access, caller)
        return await pops.pop(msgspec.structs.replace(request, may_read=allowed))

    def ack(request: LightAckRequest, caller: Caller) -> None:
        acks.ack(request, caller.address)

    def change(request: LightInvisibleRequest, caller: Caller) -> LightInvisible | None:
        return acks.change_invisible(request, caller.address)

    return LightOperations(
        subscribe=wrapped(SUBSCRIBE, control.change, wrappers),
        pop=wrapped(POP, pop, wrappers),
        ack=wrapped(ACK, ack, wrappers),
        change_invisible=wrapped(CHANGE_INVISIBLE, change, wrappers),
        close=control.close,
        waits=waits,
    )
