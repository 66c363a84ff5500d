"""`roquet msg trace`: what clients that trace have written about one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.base.times import shown_time
from roquet.cli import output
from roquet.protocol.codes import ResponseCode
from roquet.protocol.trace_lines import decode

if TYPE_CHECKING:
    import argparse

    from roquet.admin import Admin

_KINDS = {
    "Pub": "sent",
    "SubBefore": "received",
    "SubAfter": "consumed",
    "EndTransaction": "transaction ended",
    "Recall": "recalled",
}


async def trace(admin: Admin, options: argparse.Namespace) -> int:
    """Show what happened to a message, in order."""
    wanted = str(options.id)
    try:
        traces = await admin.messages.by_key(options.trace_topic, options.id, count=options.count)
    except Refused as refusal:
        if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        text = f"there is no topic {options.trace_topic}: no broker has traceTopicEnable=true"
        raise Refused(refusal.code, text) from refusal
    events = [
        event
        for it in traces
        for event in decode(it.body)
        if event.msg_id is None or wanted in (event.msg_id, event.offset_msg_id)
    ]
    if not events:
        text = f"{options.trace_topic} has nothing of {wanted[:80]}: do its clients trace?"
        raise Refused(ResponseCode.QUERY_NOT_FOUND, text)
    # What has no time of its own (a consumer's end) follows its beginning in the record.
    at_ms = 0
    rows: list[tuple[object, ...]] = []
    for event in sorted(events, key=lambda it: it.at_ms or 2**62):
        at_ms = event.at_ms or at_ms
        result = event.code or {True: "SUCCESS", False: "FAILED", None: None}[event.success]
        rows.append(
            (
                shown_time(event.at_ms or 0),
                _KINDS.get(event.kind, event.kind),
                event.group,
                event.topic,
                event.cost_ms,
                result or event.state or event.reason or None,
                event.retry_times,
            )
        )
    head = ("at", "what", "group", "topic", "took ms", "result", "try")
    output.listed(head, rows, options.output, {"id": options.id})
    return 0
