"""What happened to one message, and which steps its time went into. Pure.

The critical path of a message leads from its send to the last consumer group that was done with
it; every millisecond of it is in exactly one step, unless clocks differ by more than it took.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One send. Times in Unix milliseconds, as everywhere here."""

    msg_id: str
    group: str
    topic: str
    host: str
    at: int
    cost: int
    success: bool = True
    message_type: str = "normal"

    @property
    def end(self) -> int:
        """When the broker had answered."""
        return self.at + self.cost


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One consumption; `cost` is None when nothing says that it ended."""

    msg_id: str
    group: str
    host: str
    at: int
    cost: int | None
    success: bool
    code: str
    retry: int | None = None

    @property
    def end(self) -> int:
        """When it ended, as far as that is known."""
        return self.at + (self.cost or 0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A part of the way: from `begin` to `end`."""

    what: str
    begin: int
    end: int
    bad: bool = False
    waiting: bool = False

    @property
    def span(self) -> int:
        """Milliseconds; by two clocks it may be below zero."""
        return self.end - self.begin


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All that is known of a message, and its critical path."""

    msg_id: str
    topic: str
    steps: tuple[Step, ...]
    """Sends and consumptions by time."""
    path: tuple[Step, ...]
    group: str
    """The consumer group that the path ends in; empty when nobody consumed."""

    @property
    def total(self) -> int:
        """Milliseconds from begin to end of the path."""
        return self.path[-1].end - self.path[0].begin if self.path else 0


def tell(msg_id: str, sends: Sequence[Sent], tries: Sequence[Tried]) -> Story:
    """Return the story of one message."""
    sent = sorted((it for it in sends if it.msg_id == msg_id), key=lambda it: it.at)
    tried = sorted((it for it in tries if it.msg_id == msg_id), key=lambda it: it.at)
    steps = sorted([*map(_send, sent), *map(_try, tried)], key=lambda it: it.begin)
    group = _last_group(tried)
    return Story(
        msg_id=msg_id,
        topic=sent[0].topic if sent else "",
        steps=tuple(steps),
        path=tuple(_path(sent, [it for it in tried if it.group == group])),
        group=group,
    )


def words(story: Story) -> list[str]:
    """Return the path in sentences, and the step that took longest."""
    if not story.path:
        return [f"{story.msg_id}: nothing is known of it"]
    begin = story.path[0].begin
    said = [f"{story.msg_id} of topic {story.topic or '(unknown)'}: {story.total:,} ms in all"]
    said += [
        f"  {step.begin - begin:+,} ms: {step.what}, {step.span:,} ms{_share(step, story)}"
        for step in story.path
    ]
    longest = max(story.path, key=lambda it: it.span)
    said.append(f"  longest: {longest.what}")
    if not story.group:
        said.append("  nobody is known to have consumed it")
    return said


# --- inside --------------------------------------------------------------------------------------


def _send(it: Sent) -> Step:
    how = "" if it.message_type == "normal" else f" ({it.message_type})"
    failed = "" if it.success else ", which failed"
    return Step(
        what=f"sent by {it.group} at {it.host}{how}{failed}",
        begin=it.at,
        end=it.end,
        bad=not it.success,
    )


def _try(it: Tried) -> Step:
    number = f", retry {it.retry}" if it.retry else ""
    done = "consumed" if it.success else f"failed ({it.code})"
    return Step(
        what=f"{done} by {it.group} at {it.host}{number}",
        begin=it.at,
        end=it.end,
        bad=not it.success,
    )


def _last_group(tried: Sequence[Tried]) -> str:
    """Return the group that was done last; one that never was done waits still, and is later."""
    done: dict[str, int] = {}
    for group in {it.group for it in tried}:
        ends = [it.end for it in tried if it.group == group and it.success]
        begun = [it.end for it in tried if it.group == group]
        done[group] = min(ends) if ends else max(begun) + 2**62
    return max(done, key=lambda group: (done[group], group), default="")


def _path(sent: Sequence[Sent], tried: Sequence[Tried]) -> list[Step]:
    made: list[Step] = []
    # What comes behind the first success of the group was not waited for.
    first = next((n for n, it in enumerate(tried) if it.success), len(tried))
    chosen = [*map(_send, sent[:1]), *map(_try, tried[: first + 1])]
    for step in chosen:
        if made:
            before = made[-1].end
            what = "until it was tried again" if made[-1].bad else "until a consumer had it"
            if step.begin > before:
                made.append(Step(what=what, begin=before, end=step.begin, waiting=True))
            elif step.begin < before:
                # Consumed while the producer still waited for the answer: counted once.
                made[-1] = dataclasses.replace(made[-1], end=max(made[-1].begin, step.begin))
        made.append(step)
    return made


def _share(step: Step, story: Story) -> str:
    return f" ({step.span / story.total:.0%})" if story.total > 0 else ""
