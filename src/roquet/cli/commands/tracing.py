"""`roquet msg trace`: what clients that trace have written about one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin.tracing import events_of, kind_of, result_of
from roquet.base.times import some_time
from roquet.cli import output

if TYPE_CHECKING:
    import argparse

    from roquet.admin import Admin


async def trace(admin: Admin, options: argparse.Namespace) -> int:
    """Show what happened to a message, in order."""
    events = await events_of(
        admin.messages, str(options.id), options.trace_topic, count=options.count
    )
    rows = [
        (
            some_time(event.at_ms or 0),
            kind_of(event),
            event.group,
            event.topic,
            event.cost_ms,
            result_of(event) or None,
            event.retry_times,
        )
        for event in events
    ]
    head = ("at", "what", "group", "topic", "took ms", "result", "try")
    output.listed(head, rows, options.output, {"id": options.id})
    return 0
