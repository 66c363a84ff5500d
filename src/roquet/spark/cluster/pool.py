"""Connections of a worker process, kept from one range and one task to the next.

A reader leases a set for itself, since answers that it has asked for ahead are its own, and gives
it back. Spark runs one task of a worker process after the other, so there is one set of one
connection a broker, whatever number of ranges is read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from roquet.spark.cluster.connections import Connections

if TYPE_CHECKING:
    from roquet.spark.options import Wire

SETS_MAX: Final = 4
"""Sets that are kept while nobody uses them; further ones are closed."""


class Pool:
    """Idle sets of connections by how brokers are talked to."""

    def __init__(self) -> None:
        """Hold nothing; connections are opened when they are needed."""
        self._idle: list[tuple[Wire, Connections]] = []
        self._process = os.getpid()

    def lease(self, wire: Wire) -> Connections:
        """Return a set that nobody else uses, without connections that were closed meanwhile."""
        if self._process != os.getpid():
            # Sockets of the process that was forked are its own.
            self._idle, self._process = [], os.getpid()
        for at, (known, found) in enumerate(self._idle):
            if known == wire:
                del self._idle[at]
                found.drop_stale()
                found.forgive()
                return found
        return Connections(wire)

    def give_back(self, wire: Wire, connections: Connections) -> None:
        """Keep a set for the next reader; late answers are dropped by their numbers."""
        if len(self._idle) < SETS_MAX and self._process == os.getpid():
            self._idle.append((wire, connections))
        else:
            connections.close()

    def close(self) -> None:
        """Close all that is idle."""
        for _, connections in self._idle:
            connections.close()
        self._idle.clear()


OF_PROCESS: Final = Pool()
"""The one of this process."""
