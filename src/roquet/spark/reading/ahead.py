"""Pulls on their way while what came before is used.

A pull brings few messages (32 ordinarily), so that a reader that waits for each answer spends most
of its time on waking up and being woken. Where a queue is read whole, the offsets of further pulls
follow from what the last one brought, and several are sent at once. They are guesses: an answer
counts only if it goes on exactly where the one before ended. All others are dropped, and the reader
asks again for one at a time, which alone decides on what is lost.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Final

from roquet.protocol.codes import ResponseCode
from roquet.protocol.header import HeaderError
from roquet.protocol.headers.message import PullMessageResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.protocol.command import Command
    from roquet.spark.cluster.connections import Connections, Posted

PULLS_MAX: Final = 16
"""Sent at once."""
BYTES_MAX: Final = 1024 * 1024
"""Of answers to what was sent at once, if they are like the last one."""

_MOVES_ON = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
    }
)
"""Answers behind whose next offset reading may go on, if it is a later one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pulled:
    """Messages from an offset on, and the offset behind them."""

    offset: int
    following: int
    body: bytes


class Ahead:
    """What was asked for in advance, of one range."""

    def __init__(
        self,
        connections: Connections,
        addresses: tuple[str, ...],
        request: Callable[[int, int], Command],
        end: int,
        *,
        rows_max: int,
        bytes_max: int,
        pulls_max: int,
    ) -> None:
        """Send nothing yet; `request` makes a pull of an offset and a number of messages.

        The last pull sent at once asks for `rows_max` messages, which shows what the broker gives.
        """
        self._connections = connections
        self._addresses = addresses
        self._request = request
        self._end = end
        self._rows_max = rows_max
        self._bytes_max = min(BYTES_MAX, bytes_max)
        self._pulls_max = pulls_max
        self._pulls = 1
        self._rows = 1
        """What the last answer that was not limited by us had."""
        self._posted: tuple[list[int], Posted] | None = None
        self._ready: collections.deque[Pulled] = collections.deque()

    def go_on(self, pulled: Pulled) -> None:
        """Send what follows an answer to a pull of as many messages as it may bring."""
        self._rows = pulled.following - pulled.offset
        self._send(pulled)

    def take(self, offset: int) -> Pulled | None:
        """Return what is at an offset; None when that has to be asked for."""
        if not self._ready and self._posted is not None:
            self._receive(offset)
        if self._ready and self._ready[0].offset == offset:
            return self._ready.popleft()
        self._ready.clear()
        self._posted = None
        return None

    def move(self, addresses: tuple[str, ...]) -> None:
        """Send to other addresses from now on."""
        self._addresses = addresses

    # --- inside ------------------------------------------------------------------------------

    def _send(self, last: Pulled) -> None:
        """Ask for what follows `last`, as if all were like it."""
        at, rows = last.following, self._rows
        fit = self._bytes_max // max(1, len(last.body))
        count = min(self._pulls, fit, -(-(self._end - at) // rows))
        if count < 1:
            return
        offsets = [at + rows * number for number in range(count)]
        commands = [self._request(offset, rows) for offset in offsets[:-1]]
        commands.append(self._request(offsets[-1], self._rows_max))
        posted = self._connections.post(self._addresses, commands)
        self._posted = None if posted is None else (offsets, posted)

    def _receive(self, offset: int) -> None:
        """Take what was sent, and send what follows before it is used."""
        assert self._posted is not None
        offsets, posted = self._posted
        self._posted = None
        following = offset
        for wanted, answer in zip(offsets, self._connections.take(posted), strict=False):
            pulled = None if wanted != following else _read(wanted, answer)
            if pulled is None:
                break
            self._ready.append(pulled)
            following = pulled.following
        if len(self._ready) < len(offsets):
            self._pulls = 1
        else:
            last = self._ready[-1]
            self._rows = last.following - last.offset
            self._pulls = min(2 * self._pulls, self._pulls_max)
        if self._ready:
            self._send(self._ready[-1])


def _read(offset: int, answer: Command) -> Pulled | None:
    """Return messages; None for an answer that says anything else."""
    if answer.code not in _MOVES_ON:
        return None
    try:
        found = PullMessageResponse.decode(answer.ext)
    except HeaderError:
        return None
    if found.next_begin_offset <= offset:
        return None
    return Pulled(offset, found.next_begin_offset, answer.body)
