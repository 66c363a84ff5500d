"""Who this broker is and what it takes at the moment: the few facts that change while it runs."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from roquet.base.overriding import override
from roquet.model.topic import READ_WRITE, can_read, can_write
from roquet.protocol.hosts import host_bytes, join_address

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclasses.dataclass(slots=True, kw_only=True)
class Identity:
    """The broker's names and addresses. `port` is the bound one once the server has started."""

    cluster: str
    name: str
    broker_id: int
    ip: str
    """Told to clients (brokerIP1)."""
    ha_ip: str
    """Told to slaves (brokerIP2)."""
    port: int
    ha_port: int

    @property
    def address(self) -> str:
        """`ip:port` that clients use."""
        return join_address(self.ip, self.port)

    @property
    def ha_address(self) -> str:
        """`ip:port` that slaves use."""
        return join_address(self.ha_ip, self.ha_port)

    @property
    def store_host(self) -> bytes:
        """The address as records keep it: 4 or 16 bytes and the port."""
        return _host(self.ip, self.port)


_UNKNOWN = object()


@dataclasses.dataclass(slots=True, kw_only=True)
class BrokerState:
    """What the broker takes at the moment."""

    permission: int = READ_WRITE
    accept_sends_from_ms: int = 0
    """Unix milliseconds before which sends are refused."""
    is_slave: bool = False
    waits_for_slave: bool = False
    """Whether an acknowledgement waits until slaves have a copy (`FastPath.set_replicated`)."""
    slave_timeout_ms: int = 3000
    """How long it waits for that."""
    has_master: bool = False
    """Whether a slave is connected to its master, which clients ought to ask first."""
    has_diverged: bool = False
    """Whether the log of this slave is known to be no copy of its master's: nobody reads it."""
    lacks_slave: bool = False
    """Whether an acknowledgement would need a slave, and there is none."""
    version: int = 0
    """Moves with every change."""
    listeners: list[Callable[[], None]] = dataclasses.field(
        default_factory=list["Callable[[], None]"]
    )

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener()` called after every change."""
        self.listeners.append(listener)

    @override
    def __setattr__(self, name: str, value: object) -> None:
        """Change a fact; tell nobody when it is what it was, as timers set some again and again."""
        if getattr(self, name, _UNKNOWN) == value:
            return
        object.__setattr__(self, name, value)
        if name != "version":
            object.__setattr__(self, "version", getattr(self, "version", 0) + 1)
            for listener in getattr(self, "listeners", ()):
                listener()

    @property
    def is_readable(self) -> bool:
        """Whether pulls are served."""
        return can_read(self.permission) and not self.has_diverged

    @property
    def is_writable(self) -> bool:
        """Whether the broker's permission allows sends."""
        return can_write(self.permission)


@functools.lru_cache(maxsize=64)
def _host(ip: str, port: int) -> bytes:
    """Work out the bytes once for all messages."""
    return host_bytes(join_address(ip, port))
