"""What clients that trace have written about one message, and the steps of its life."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.protocol.codes import ResponseCode
from roquet.protocol.messages.trace_lines import decode
from roquet.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.admin.messages import Messages
    from roquet.protocol.messages.trace_lines import Event

_LATEST = 2**62
_KINDS = {
    "Pub": "sent",
    "SubBefore": "received",
    "SubAfter": "consumed",
    "EndTransaction": "transaction ended",
    "Recall": "recalled",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that a client did with a message. Times in Unix milliseconds by its clock."""

    what: str
    group: str
    began_ms: int
    took_ms: int | None
    """None: it is not said, or has not ended."""
    result: str
    """Empty: nothing is said of it."""
    tries: int | None
    """Failed tries before this one."""

    @property
    def end_ms(self) -> int:
        """When it ended, its beginning where that is not known."""
        return self.began_ms + (self.took_ms or 0)


def kind_of(event: Event) -> str:
    """Return what a record says was done."""
    return _KINDS.get(event.kind, event.kind)


def result_of(event: Event) -> str:
    """Return how it ended; empty where the record does not say."""
    said = {True: "SUCCESS", False: "FAILED", None: ""}[event.success]
    return event.code or said or event.state or event.reason


async def events_of(
    messages: Messages, wanted: str, topic: str = TRACE_TOPIC, *, count: int
) -> list[Event]:
    """Return the records about a message, by time; of at most `count` messages of traces.

    `wanted` is an id of either kind. Raises Refused where nobody traces, Unreachable.
    """
    try:
        found = await messages.by_key(topic, wanted, count=count)
    except Refused as refusal:
        if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        text = f"there is no topic {topic}, which brokers make with traceTopicEnable=true"
        raise Refused(refusal.code, text) from refusal
    events = [
        event
        for it in found
        for event in decode(it.body)
        if event.msg_id is None or wanted in (event.msg_id, event.offset_msg_id)
    ]
    if not events:
        text = f"{topic} has nothing of {wanted[:80]}: do its clients trace?"
        raise Refused(ResponseCode.QUERY_NOT_FOUND, text)
    return sorted(events, key=lambda it: it.at_ms or _LATEST)


def steps_of(events: Iterable[Event]) -> list[Step]:
    """Return the steps by time: a consumer's beginning and end are one.

    Records that cannot be read, and ends whose beginning is not there and that have no time of
    their own, make none.
    """
    known = list(events)
    ends = {it.request_id: it for it in known if it.kind == "SubAfter"}
    begun = {it.request_id for it in known if it.kind == "SubBefore"}
    steps: list[Step] = []
    for it in known:
        if it.reason or (it.kind == "SubAfter" and it.request_id in begun):
            continue
        end = ends.get(it.request_id) if it.kind == "SubBefore" else it
        took_ms = None if end is None else end.cost_ms
        began_ms = it.at_ms
        if began_ms is None:
            continue
        if it.kind == "SubAfter":
            began_ms -= took_ms or 0  # its time is that of the end
        steps.append(
            Step(
                what=kind_of(it) if end is not None and end is it else _consumed(end),
                group=it.group or "",
                began_ms=began_ms,
                took_ms=took_ms,
                result="" if end is None else result_of(end),
                tries=it.retry_times,
            )
        )
    return sorted(steps, key=lambda it: it.began_ms)


def _consumed(end: Event | None) -> str:
    return "received, no end is known" if end is None else "consumed"
