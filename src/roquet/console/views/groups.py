"""Consumer groups: listed, shown, created, altered, deleted, and moved in a topic."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from roquet.base.errors import NotFound, Refused, RoquetError, UsageError
from roquet.base.times import place_of
from roquet.console.context import each
from roquet.console.declared import Done
from roquet.console.views.paging import page_of
from roquet.console.web.render import to
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol import names
from roquet.protocol.codes import ResponseCode
from roquet.protocol.versions import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.admin import SeekStep
    from roquet.console.context import Context
    from roquet.console.declared import Data
    from roquet.model.subscription import SubscriptionData

_STEPS_MAX = 500
_EXPRESSION_MAX = 300


async def groups(context: Context, given: Data) -> Data:
    """List groups with members and lag, page by page."""
    context.parts.sampler.watched()
    found = await context.admin.groups.names(system=given["system"])
    chosen, about = page_of(found, given, context.limits.page)
    rows = await each(_row(context, it) for it in chosen)
    shown = [
        {"name": name, "error": str(row)} if isinstance(row, RoquetError) else row
        for name, row in zip(chosen, rows, strict=True)
    ]
    return {**about, "system": given["system"], "rows": shown}


async def _row(context: Context, group: str) -> dict[str, Any]:
    offsets, tps = await context.admin.groups.progress(group)
    online = await context.admin.groups.connection(group)
    lag = sum(max(0, it.broker_offset - it.consumer_offset) for it in offsets.values())
    members = 0 if online is None else len(online.connections)
    _noted(context, group, lag, members)
    return {
        "name": group,
        "members": members,
        "model": "" if online is None else str(online.message_model or "").lower(),
        "topics": len({it.topic for it in offsets if not names.is_retry(it.topic)}),
        "out": tps,
        "lag": lag,
        "error": "",
    }


def _noted(context: Context, group: str, lag: int, members: int) -> None:
    # An account may see a part of a group alone, and alerts are for the whole of it.
    if not context.session.is_account:
        context.parts.sampler.see_group(group, lag, members)


def _points(context: Context, group: str) -> list[tuple[int, int]]:
    """Return times and lags that the console has seen by its own account: nothing for others."""
    seen = context.parts.sampler.groups.get(group)
    return [] if seen is None or context.session.is_account else list(seen.points)


async def group(context: Context, given: Data) -> Data:
    """Show a group: configuration, members, and how far it is in each queue."""
    name = given["name"]
    context.parts.sampler.watched()
    configs = await context.admin.groups.get(name)
    online = await context.admin.groups.connection(name)
    if not configs and online is None:
        raise _unknown(name)
    offsets, tps = await context.admin.groups.progress(name)
    lag = sum(max(0, it.broker_offset - it.consumer_offset) for it in offsets.values())
    members = () if online is None else online.connections
    _noted(context, name, lag, len(members))
    points = _points(context, name)
    subscriptions: Mapping[str, SubscriptionData] = {}
    if online is not None:
        subscriptions = online.subscriptions
    return {
        "name": name,
        "lag": lag,
        "out": tps,
        "model": "" if online is None else str(online.message_model or "").lower(),
        "configs": [
            {
                "broker": broker,
                "enabled": it.consume_enable,
                "retries": it.retry_max_times,
                "order": it.consume_message_orderly,
                "broadcast": it.consume_broadcast_enable,
            }
            for broker, it in sorted(configs.items())
        ],
        "members": [
            {
                "client": it.client_id,
                "address": it.client_address,
                "language": it.language,
                "version": describe(it.version),
            }
            for it in members[: context.limits.rows]
        ],
        "members_count": len(members),
        "subscriptions": [
            {
                "topic": topic,
                "type": str(it.expression_type),
                "expression": it.expression[:_EXPRESSION_MAX],
            }
            for topic, it in sorted(subscriptions.items())[: context.limits.rows]
        ],
        # The first one is proposed for a move.
        "topics": sorted({it.topic for it in offsets}, key=lambda it: (names.is_retry(it), it)),
        "queues": [
            {
                "topic": it.topic,
                "broker": it.broker_name,
                "queue": it.queue_id,
                "offset": at.consumer_offset,
                "end": at.broker_offset,
                "lag": max(0, at.broker_offset - at.consumer_offset),
                "last_ms": at.last_timestamp,
            }
            for it, at in list(offsets.items())[: context.limits.rows]
        ],
        "queues_count": len(offsets),
        "history": [list(it) for it in points],
        "is_sampled": not context.session.is_account,
    }


async def lag(context: Context, given: Data) -> Data:
    """Return a group's lag over the last minutes, as it was sampled."""
    context.parts.sampler.watched()
    points = _points(context, given["name"])
    return {"time_ms": [it[0] for it in points], "lag": [it[1] for it in points]}


async def member(context: Context, given: Data) -> Data:
    """Show what a member says of itself; with `stacks` also what its threads do."""
    info = await context.admin.groups.running_info(
        given["group"], given["client"], stacks=given["stacks"]
    )
    return {
        "group": given["group"],
        "client": given["client"],
        "properties": dict(info.properties),
        "status": {name: dict(it) for name, it in info.status.items()},
        "queues": [
            {
                "topic": it.topic,
                "broker": it.broker_name,
                "queue": it.queue_id,
                "state": dict(state),
            }
            for it, state in list(info.queues.items())[: context.limits.rows]
        ],
        "asked_stacks": given["stacks"],
        "stacks": (info.stacks or "")[: context.limits.stacks],
        "stacks_size": len(info.stacks or ""),
    }


async def create(context: Context, given: Data) -> Done:
    """Create a group on every master."""
    name = given["name"]
    if await context.admin.groups.get(name):
        raise Refused(ResponseCode.INVALID_PARAMETER, f"there is a group {name} already")
    await context.admin.groups.put(
        SubscriptionGroupConfig(
            name=name, retry_max_times=given["retries"], consume_message_orderly=given["order"]
        )
    )
    return Done(f"group {name} created", to("/group", name=name))


async def alter(context: Context, given: Data) -> Done:
    """Change what is given of a group, on every master that has it."""
    name, retries = given["name"], given["retries"]
    if retries is None and given["enabled"] is None:
        raise UsageError("nothing is to be changed")
    found = await context.admin.groups.get(name)
    if not found:
        raise _unknown(name)
    for broker, config in found.items():
        changed = dataclasses.replace(
            config,
            retry_max_times=config.retry_max_times if retries is None else retries,
            consume_enable=config.consume_enable if given["enabled"] is None else given["enabled"],
        )
        await context.admin.groups.put(changed, brokers=[broker])
    return Done(f"group {name} changed on {', '.join(found)}", to("/group", name=name))


async def delete(context: Context, given: Data) -> Done:
    """Delete a group, when its name is given twice."""
    name = given["name"]
    if given["confirm"] != name:
        raise UsageError("the name that was typed is not the group's: nothing is deleted")
    if not await context.admin.groups.get(name):
        raise _unknown(name)
    await context.admin.groups.delete(name, offsets=given["offsets"])
    return Done(f"group {name} deleted", "/groups")


# --- where it goes on ------------------------------------------------------------------------


async def preview(context: Context, given: Data) -> Data:
    """Show what moving a group in a topic would do, queue by queue; nothing is done."""
    steps = await _steps(context, given)
    if len(steps) > _STEPS_MAX:
        raise UsageError(f"{len(steps)} queues are too many for a page: roquet group seek")
    online = await context.admin.groups.connection(given["group"])
    return {
        "group": given["group"],
        "topic": given["topic"],
        "place": given["to"],
        "online": 0 if online is None else len(online.connections),
        "steps": [_step(it) for it in steps],
        "repeated": sum(max(0, it.repeated) for it in steps),
        "skipped": sum(max(0, -it.repeated) for it in steps),
        # Confirmed is what was shown, and not what a time means some minutes later.
        "exact": [f"{it.queue.broker_name}:{it.queue.queue_id}:{it.then}" for it in steps],
    }


async def seek(context: Context, given: Data) -> Done:
    """Let a group go on elsewhere in a topic: where a preview said, or at a place."""
    if bool(given["exact"]) == bool(given["to"]):
        raise UsageError("give either the offsets of a preview or a place")
    if given["exact"]:
        steps = await context.admin.groups.preview_seek(
            given["group"], given["topic"], await _exact(context, given)
        )
    else:
        steps = await _steps(context, given)
    await context.admin.groups.take_steps(given["group"], given["topic"], steps)
    repeated = sum(max(0, it.repeated) for it in steps)
    skipped = sum(max(0, -it.repeated) for it in steps)
    text = (
        f"{given['group']} goes on elsewhere in {len(steps)} queues of {given['topic']}:"
        f" {repeated} messages again, {skipped} skipped"
    )
    more = {"steps": [_step(it) for it in steps]}
    return Done(text, to("/group", name=given["group"]), more)


async def _steps(context: Context, given: Data) -> list[SeekStep]:
    place = place_of(given["to"], "to")
    await _demand(context, given["group"])
    return await context.admin.groups.preview_seek(given["group"], given["topic"], place)


async def _exact(context: Context, given: Data) -> dict[Any, int]:
    await _demand(context, given["group"])
    known = {
        (it.broker_name, str(it.queue_id)): it
        for it in await context.admin.topics.queues(given["topic"])
    }
    found: dict[Any, int] = {}
    for text in given["exact"]:
        broker, _, rest = text.rpartition(":")[0].rpartition(":")
        offset = text.rpartition(":")[2]
        queue = known.get((broker, rest))
        if queue is None or not (offset.isascii() and offset.isdigit() and len(offset) < 19):
            raise UsageError(f"{text[:80]!r} is no offset of {given['topic']}: broker:queue:offset")
        found[queue] = int(offset)
    return found


async def _demand(context: Context, name: str) -> None:
    online = await context.admin.groups.connection(name)
    if online is None and not await context.admin.groups.get(name):
        raise _unknown(name)


def _step(step: SeekStep) -> dict[str, Any]:
    return {
        "broker": step.queue.broker_name,
        "queue": step.queue.queue_id,
        "now": step.now,
        "then": step.then,
        "repeated": step.repeated,
    }


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no group {name}")
