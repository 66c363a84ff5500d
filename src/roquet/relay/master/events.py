"""What goes into the master's tick, and what comes out of it: plain values."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.relay.peers.packets import Other
    from roquet.relay.servers import ServerList


class Refreshed(Protocol):
    """What an HTTP callback may do to the machine."""

    version: int | None

    def refresh(self, servers: ServerList, source: str = "server") -> None:
        """Take a new list."""
        ...

    def load_failed(self, why: str) -> None:
        """End a question without an answer."""
        ...


# --- inputs ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Connected:
    """A dial of ours is through."""

    attempt: int
    link: int


@dataclasses.dataclass(frozen=True, slots=True)
class ConnectFailed:
    """A dial of ours is not."""

    attempt: int
    why: str


@dataclasses.dataclass(frozen=True, slots=True)
class CameIn:
    """A server dialled the relay and said who it is."""

    link: int
    id: int


@dataclasses.dataclass(frozen=True, slots=True)
class Answered:
    """A register answer came."""

    link: int
    max_online: int


@dataclasses.dataclass(frozen=True, slots=True)
class Closed:
    """A link has gone, or its register answer was wrong: it is of no use any more."""

    link: int
    why: str


@dataclasses.dataclass(frozen=True, slots=True)
class HttpDone:
    """An HTTP question of ours was answered, or not: what is to be done about it."""

    name: str
    callback: Callable[[Refreshed], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """An operator wants something."""

    what: str
    """`reconnect`, `drain`, `undrain` or `reload`."""
    id: int
    done: Callable[[bool], None]
    """Told whether there is such a server."""


Input = Connected | ConnectFailed | CameIn | Answered | Closed | HttpDone | Asked

# --- effects --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Fetch:
    """Ask the configuration server; the answer is an HttpDone of a later tick."""


@dataclasses.dataclass(frozen=True, slots=True)
class Dial:
    """Connect; the result is a Connected or ConnectFailed of a later tick."""

    attempt: int
    id: int
    host: str
    port: int


@dataclasses.dataclass(frozen=True, slots=True)
class CancelDial:
    """Give up a connect."""

    attempt: int


@dataclasses.dataclass(frozen=True, slots=True)
class CloseLink:
    """Close a link."""

    link: int
    why: str


@dataclasses.dataclass(frozen=True, slots=True)
class SendRegister:
    """Send the register packet."""

    link: int
    id: int
    type: int


@dataclasses.dataclass(frozen=True, slots=True)
class FlushLink:
    """Write out what waits on a link."""

    link: int


@dataclasses.dataclass(frozen=True, slots=True)
class NewServerNotice:
    """To all workers: a server is there, tell those you own."""

    server: Other


@dataclasses.dataclass(frozen=True, slots=True)
class RegisterNotice:
    """To one worker: this server and its link are yours, and these others are there."""

    worker: int
    link: int
    server: Other
    others: Mapping[int, Other]


@dataclasses.dataclass(frozen=True, slots=True)
class GoneNotice:
    """To all workers: a server is not there any more, tell those you own."""

    id: int
    link: int
    why: str


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """The configured ids have changed."""

    ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Drain:
    """Give a server no new packets, or again."""

    id: int
    drains: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Say:
    """A line for the log."""

    level: str
    text: str


Effect = (
    Fetch
    | Dial
    | CancelDial
    | CloseLink
    | SendRegister
    | FlushLink
    | NewServerNotice
    | RegisterNotice
    | GoneNotice
    | Known
    | Drain
    | Say
)
