"""What a front in the broker's own process is given."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.acl.rights import RequestGuard
    from roquet.base.clock import Clock
    from roquet.broker.operations.light import LightOperations
    from roquet.broker.operations.table import Operations
    from roquet.broker.pop.waits import PopWaits
    from roquet.broker.services.clients.heartbeats import Clients
    from roquet.broker.state import Identity
    from roquet.service.metrics import Metrics


class FastBroker(Protocol):
    """The fast path of the broker, for calls of other fronts that are plain."""

    def fresh(self) -> object:
        """Return what answers them by today's rules, for use before anything else happens.

        It is the core's `Ingest`; None when it is closed.
        """
        ...

    def pop(self, pop: Any, give: Callable[[Any, Any], Any]) -> bytes | None:
        """Return the answer that `give` makes of a pop; None when an operation has to look.

        A pop, a wish and what comes of `give(wish, ingest)` have the shapes of the core's `Ingest`.
        """
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LocalBroker:
    """A broker as a further front sees it."""

    operations: Operations
    """Access control, plugins, metrics and audit are around each call."""
    clients: Clients
    """Members of groups; what their accounts may do is asked there."""
    waits: PopWaits
    identity: Identity
    guard: RequestGuard | None
    """Knows whose signature is good; None where nobody needs an account."""
    clock: Clock
    metrics: Metrics
    light: LightOperations | None = None
    """What is done with light topics."""
    fast: FastBroker | None = None
    """Answers plain calls without one of an operation."""
