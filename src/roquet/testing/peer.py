"""The other end of a connection, for tests of handlers without a socket."""

from __future__ import annotations

import dataclasses
import itertools

from roquet.protocol.command import Command

_KEYS = itertools.count(1)


@dataclasses.dataclass
class FakePeer:
    """A peer that keeps what it is sent; `key` is new for each unless given."""

    address: str = "127.0.0.1:40000"
    key: int = dataclasses.field(default_factory=lambda: next(_KEYS))
    is_open: bool = True
    sent: list[Command] = dataclasses.field(default_factory=list[Command])

    def send_one_way(self, command: Command) -> None:
        """Keep the command."""
        self.sent.append(command)

    async def call(self, command: Command, timeout_s: float) -> Command:
        """Nobody answers here."""
        raise NotImplementedError((command, timeout_s))

    def close(self, why: str) -> None:
        """Be closed."""
        del why
        self.is_open = False

    def notices(self) -> list[str]:
        """Return the groups of the notices (40) that came, and forget them."""
        assert all(command.code == 40 and command.is_one_way for command in self.sent)
        groups = [(command.ext or {})["consumerGroup"] for command in self.sent]
        self.sent.clear()
        return groups
