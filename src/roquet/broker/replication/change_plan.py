"""The order in which a broker's duties change. Pure.

Invariants:
- from the moment that a log becomes a copy of another broker's, nobody appends to it any more: what
  may append is stopped before, and the store refuses the rest (FENCE);
- what clients sent is acknowledged only while the log is this broker's: first no more is taken
  (CLOSE), then what was taken is answered (DRAIN), and only then anything else stops;
- what survives a crash is never more than what is done: a broker that gives its writes up notes
  that first, one that takes them notes it last, before it takes the first message;
- after a failure a broker never takes writes again that it was told to give up.
"""

from __future__ import annotations

import dataclasses
import enum

from roquet.base.errors import UsageError
from roquet.base.overriding import override
from roquet.service.duties import SPECIAL, Duty, names


class Act(enum.Enum):
    """What can be done in one step."""

    NOTE = "note the role in the configuration file"
    ANNOUNCE = "register under the role"
    CLOSE = "take no more messages"
    DRAIN = "answer what was taken"
    STOP = "stop"
    FENCE = "make the log a copy"
    HAND_OVER = "let slaves copy the end of the log"
    LEAD = "make the log this broker's own"
    ADOPT = "go by the settings of the role"
    START = "start"
    OPEN = "take messages"


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One act; only STOP and START are about duties."""

    act: Act
    duties: Duty = Duty.NONE

    @override
    def __str__(self) -> str:
        """Return what is done, for people."""
        return f"{self.act.value} {names(self.duties)}" if self.duties else self.act.value


def check(duties: Duty) -> None:
    """Raise UsageError for duties that nobody can have together."""
    if Duty.WRITES in duties and Duty.COPIES in duties:
        raise UsageError("a log cannot be a copy and take messages")
    appends = duties & (SPECIAL | Duty.FEEDS)
    if appends and Duty.WRITES not in duties:
        raise UsageError(f"{names(appends)}: only with writes")
    if duties & (Duty.REVIVE | Duty.POPS) and Duty.TIMERS not in duties:
        raise UsageError("revive and pops need the timer wheel")


def plan(held: Duty, wanted: Duty, *, is_new_role: bool) -> list[Step]:
    """Return the steps from some duties to others; none when nothing changes.

    `is_new_role`: the broker registers under another id, or asks for other copies.
    """
    gone, new = held & ~wanted, wanted & ~held
    if Duty.WRITES in gone:
        return _without_empty(_give_up(gone, new))
    if Duty.WRITES in new:
        return _without_empty(_take_over(gone, new))
    if not gone and not new and not is_new_role:
        return []
    fence = [Step(Act.CLOSE), Step(Act.FENCE)] if Duty.COPIES in new else []
    return _without_empty(
        [
            Step(Act.NOTE),
            Step(Act.STOP, gone),
            *fence,
            Step(Act.ADOPT),
            Step(Act.START, new),
            Step(Act.ANNOUNCE),
        ]
    )


def retreat(before: Duty, wanted: Duty, held: Duty) -> tuple[Duty, list[Step]]:
    """Return the duties to fall back to after a step failed, and the steps to them.

    A broker that took no writes before gets its old duties back. One that was to give its writes up
    is left with none: somebody else may lead already. One that keeps them goes on with what it has.
    """
    if Duty.WRITES in before & wanted & held:
        return held, [Step(Act.NOTE), Step(Act.ADOPT), Step(Act.ANNOUNCE)]
    safe = Duty.NONE if Duty.WRITES in before else before
    return safe, _without_empty(
        [
            Step(Act.CLOSE),
            Step(Act.STOP, held & ~safe),
            Step(Act.FENCE),
            Step(Act.NOTE),
            Step(Act.ADOPT),
            Step(Act.START, safe & ~held),
            Step(Act.ANNOUNCE),
        ]
    )


def _give_up(gone: Duty, new: Duty) -> list[Step]:
    return [
        Step(Act.NOTE),
        Step(Act.ANNOUNCE),
        Step(Act.CLOSE),
        Step(Act.DRAIN),
        Step(Act.STOP, gone & ~(Duty.FEEDS | Duty.WRITES)),
        Step(Act.FENCE),
        Step(Act.HAND_OVER),
        Step(Act.STOP, gone & (Duty.FEEDS | Duty.WRITES)),
        Step(Act.ADOPT),
        Step(Act.START, new),
    ]


def _take_over(gone: Duty, new: Duty) -> list[Step]:
    return [
        Step(Act.STOP, gone),
        Step(Act.LEAD),
        Step(Act.ADOPT),
        Step(Act.START, new),
        Step(Act.NOTE),
        Step(Act.OPEN),
        Step(Act.ANNOUNCE),
    ]


def _without_empty(steps: list[Step]) -> list[Step]:
    return [step for step in steps if step.duties or step.act not in (Act.STOP, Act.START)]
