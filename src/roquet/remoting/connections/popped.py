"""POP between the compiled part and the broker: what was read, what is to be given, who decides.

Times are Unix milliseconds, spans are milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roquet.remoting.codec import NativeFrame


class MergeHere(NamedTuple):
    """Acknowledgements of one checkpoint that may be in memory."""

    of: tuple[str, str, int, int, int]
    """(topic, group, queue id, start offset, pop time)."""
    offsets: list[int]
    opaques: list[int]
    """Correlation numbers: one for each offset, or one of a batch."""
    frames: bytes
    """The requests, one behind the other."""
    is_batch: bool
    """Whether all of it is one request, which is settled whole or not at all."""


class PopHere(NamedTuple):
    """A plain pop that the core has read. Times are milliseconds."""

    opaque: int
    topic: str
    group: str
    queue_id: int
    """Below 0: all queues."""
    messages: int
    invisible_ms: int
    poll_ms: int
    born_ms: int
    """When its client sent it; 0: not known."""
    expression: str
    """A tag expression; empty for every message."""
    frame: bytes
    """The request; empty when the handlers have it already."""
    since_ms: int = 0
    """When a pop that has waited for a message was received; 0: it has not."""


class Wish(NamedTuple):
    """A pop that was decided, for `give`. Times are Unix milliseconds."""

    opaque: int
    names: tuple[str, str, str]
    """(group, topic, retry topic)."""
    places: list[tuple[bool, int, int]]
    """The queues in order: (whether it is of the retry topic, queue id, where the group goes on or
    -1 when that is not known)."""
    messages: int
    tag_codes: Sequence[int] | None
    times: tuple[int, int, int]
    """(now, how long the messages are invisible, when the request came)."""
    revive_queue: int
    retry_first: bool
    merges: bool
    """Whether the caller keeps the checkpoints in memory."""
    waits: bool
    """Whether the pop is to wait when there is nothing, which an empty answer says."""


Given = tuple[bytes, int, list[tuple[int, int, list[int], int]], list[tuple[int, int]]]
"""What the core gave: (answer, messages left, (queue id, start offset, distances of the messages
from it, where the group goes on), (queue id without a wanted message, where the group goes on))."""

if TYPE_CHECKING:
    Give = Callable[[Wish], Given | None]
    _Merges = list[tuple[tuple[str, str, int, int, int], list[int], list[int], bytes, bool]]
    _Pops = list[tuple[int, str, str, int, int, int, int, int, str, bytes]]
    Came = (
        tuple[bytes, list[NativeFrame], str | None]
        | tuple[bytes, list[NativeFrame], str | None, _Merges, _Pops]
    )
    """What a read came to: answers, frames for the handlers, why the rest is no frame, and where
    there are any, acknowledgements and pops to be settled."""


def no_pop(pop: object, give: object) -> bytes | None:
    """Leave every pop of another front to the service, as long as nobody has said who decides."""
    del pop, give
    return None


def no_answer(key: int, pop: object, rows: object) -> bytes | None:
    """Leave every pop to the handlers, as long as nobody has said who decides."""
    del key, pop, rows
    return None


def nothing_in_memory(merge: object) -> int:
    """Settle nothing, as long as nobody has said where."""
    del merge
    return 0


def nowhere(key: int, what: object) -> None:
    """Drop what is for a connection, as long as nobody has said how to reach one."""
    del key, what
