"""Whether a queue is still the one that was read: the store time of the last message read. Pure.

A topic that is deleted and made again has the same queues with other messages, and so may a slave
that had less when it became master. Offsets alone do not show it once the new queue is as long as
the old one was. So a position keeps, for each queue, when the message before its offset was stored:
that message is there again, with that time, or the queue is another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from roquet.base.errors import UsageError
from roquet.spark.offsets import leaves, nested

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.spark.offsets import Bounds, Offsets, QueueKey

Marks = dict["QueueKey", int]
"""Queue -> store time, Unix milliseconds, of the message before the offset of a position."""

TIME_MAX_MS = 2**63 - 1


class Reach(NamedTuple):
    """How far a stream has read, and what was there."""

    offsets: Offsets
    marks: Marks


def with_marks(made: dict[str, Any], marks: Mapping[QueueKey, int]) -> dict[str, Any]:
    """Add marks to the JSON of offsets; earlier releases read what has them as well."""
    return {**made, "s": nested(marks)} if marks else made


def from_json(source: Mapping[str, Any]) -> Marks:
    """Return the marks that the JSON of offsets has; earlier releases wrote none.

    Raises UsageError.
    """
    table = source.get("s")
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise UsageError("offsets: s must be a JSON object")
    found: Marks = {}
    for queue, value in leaves(cast("dict[str, Any]", table)):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= TIME_MAX_MS:
            raise UsageError(f"{queue}: {str(value)[:80]!r} is no time")
        found[queue] = value
    return found


def to_ask(reach: Reach, bounds: Mapping[QueueKey, Bounds]) -> dict[QueueKey, int]:
    """Return the messages, by offset, whose store times decide on queues that have more now."""
    return {
        queue: reach.offsets[queue] - 1
        for queue in reach.marks
        if queue in bounds and bounds[queue].low < reach.offsets[queue] < bounds[queue].high
    }


def made_anew(
    reach: Reach,
    bounds: Mapping[QueueKey, Bounds],
    last: Mapping[QueueKey, int],
    asked: Mapping[QueueKey, int],
) -> dict[QueueKey, str]:
    """Return the queues that are not the ones that were read, and why.

    `last` has the store time of the last message of queues, `asked` those of `to_ask`. What
    neither knows is not judged by its time.
    """
    found: dict[QueueKey, str] = {}
    for queue, offset in reach.offsets.items():
        held = bounds.get(queue)
        if held is None:
            continue
        if offset > held.high:
            found[queue] = (
                f"it was read up to offset {offset} and has [{held.low}, {held.high}) now: its end"
                " moved back, as when a topic is made anew or a replica with less becomes master"
            )
            continue
        known = reach.marks.get(queue)
        now = (last if offset == held.high else asked).get(queue)
        if known is not None and now is not None and now != known and held.low < offset:
            found[queue] = (
                f"the message at offset {offset - 1}, the last one read, was stored at {known} ms"
                f" and is another one now, stored at {now} ms: the topic was made anew; it has"
                f" [{held.low}, {held.high})"
            )
    return found
