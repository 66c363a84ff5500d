"""Messages: found, shown, sent again."""

from __future__ import annotations

import base64
import dataclasses
import json
import shlex
import zlib
from typing import TYPE_CHECKING, Any

from roquet.admin.lookup import found_by_id
from roquet.admin.matching import matcher
from roquet.admin.messages import origin_of
from roquet.admin.tracing import events_of, steps_of
from roquet.base.errors import Refused, RoquetError, UsageError
from roquet.base.times import time_of
from roquet.console.context import each
from roquet.console.declared import Done
from roquet.console.views.timers import recalled, timer_of
from roquet.console.web.render import to

if TYPE_CHECKING:
    from roquet.console.context import Context
    from roquet.console.declared import Data
    from roquet.model.message import StoredMessage

_HEX_MAX = 4096
_PREVIEW = 80
_SHORT = 50
_VALUE_MAX = 1000
_GROUPS_MAX = 20
_BAD_ENDS = ("FAILED", "TIME_OUT", "EXCEPTION", "RETURNNULL")
FUTURE_MS = 60_000


async def search(context: Context, given: Data) -> Data:
    """Find messages of a topic by id, by key, or by the time at which they were stored."""
    data: Data = {
        "topic": given["topic"],
        "rows": [],
        "scanned": 0,
        "recalled": 0,
        "is_whole": True,
        "asked": given["topic"] is not None,
        "hidden": context.parts.config.hide_bodies,
    }
    if given["topic"] is None:
        if given["id"] is None:
            return data
        found = await found_by_id(context.admin, None, given["id"])
    elif given["id"] is not None:
        found = await found_by_id(context.admin, given["topic"], given["id"])
    elif given["key"] is not None:
        found = await context.admin.messages.by_key(given["topic"], given["key"], count=64)
        data["is_whole"] = len(found) < 64
    else:
        found, data["scanned"], data["is_whole"] = await _scan(context, given)
    if given["id"] is not None or given["key"] is not None:
        found, data["recalled"] = await _still_there(context, found)
    return {**data, "asked": True, "rows": [message_row(context, it) for it in found]}


async def _still_there(
    context: Context, found: list[StoredMessage]
) -> tuple[list[StoredMessage], int]:
    """Return the messages without those that were recalled while they waited, and their number."""
    gone = await recalled(context, found)
    return [it for it in found if it.msg_id not in gone], len(gone)


async def _scan(context: Context, given: Data) -> tuple[list[StoredMessage], int, bool]:
    """Return what was found, how many messages were read, and whether that was all."""
    begin = time_of(given["since"], "since")
    now_ms = context.now_ms() + FUTURE_MS
    end = now_ms if given["until"] is None else time_of(given["until"], "until")
    wanted = matcher(tag=given["tag"], sql=given["sql"])
    if given["text"] is not None and context.parts.config.hide_bodies:
        raise UsageError("bodies are hidden in this console: they cannot be searched")
    text = None if given["text"] is None else given["text"].encode()
    count = max(1, len(await context.admin.topics.queues(given["topic"])))
    each_queue = max(1, context.limits.scanned // count)
    found: list[StoredMessage] = []
    read: dict[tuple[str, int], int] = {}
    async for it in context.admin.messages.between(given["topic"], begin, end, count=each_queue):
        place = (it.broker_name, it.queue_id)
        read[place] = read.get(place, 0) + 1
        if wanted(it) and (text is None or text in it.body):
            found.append(it)
        if len(found) >= context.limits.found:
            return newest_first(found), sum(read.values()), False
    is_whole = all(it < each_queue for it in read.values())
    return newest_first(found), sum(read.values()), is_whole


def newest_first(found: list[StoredMessage]) -> list[StoredMessage]:
    """Return messages in the order of lists."""
    return sorted(found, key=lambda it: (-it.store_timestamp, -it.queue_offset))


async def message(context: Context, given: Data) -> Data:
    """Show one message, whole; and which groups are past it."""
    found = await found_by_id(context.admin, given["topic"], given["id"])
    it = found[0]
    groups: list[str] = []
    try:
        groups = (await context.admin.topics.groups(it.topic))[:_GROUPS_MAX]
        seen = await each(context.admin.groups.offsets(name, it.topic) for name in groups)
    except RoquetError:
        seen = []  # its topic may be gone
    tracks = [
        {"group": name, "state": _state(it, offsets)}
        for name, offsets in zip(groups, seen, strict=False)
    ]
    is_hidden = context.parts.config.hide_bodies
    return {
        **message_row(context, it),
        "origin": origin_of(it),
        "born_ms": it.born_timestamp,
        "born_host": it.born_host,
        "store_host": it.store_host,
        "size": it.store_size,
        "body_size": len(it.body),
        "reconsumed": it.reconsume_times,
        "properties": {}
        if is_hidden
        else {name: value[:_VALUE_MAX] for name, value in it.properties.items()},
        "body": _body(b"" if is_hidden else it.body, context.limits.shown_body),
        "tracks": tracks,
        "copies": len(found),
        "command": shlex.join(["roquet", "msg", "get", it.msg_id]),
        "hidden": is_hidden,
        "timer": await timer_of(context, it),
    }


def _state(message: StoredMessage, offsets: Any) -> str:
    if isinstance(offsets, RoquetError):
        return f"unknown: {offsets}"
    for queue, at in offsets.items():
        if (queue.broker_name, queue.queue_id) == (message.broker_name, message.queue_id) or (
            not message.broker_name and queue.queue_id == message.queue_id
        ):
            return "past it" if at.consumer_offset > message.queue_offset else "not there yet"
    return "no offset in this queue"


def _preview(body: bytes) -> str:
    """Return how a body begins, as text; an ellipsis at its end says that there is more."""
    text = body[: _PREVIEW * 4].decode(errors="replace")
    is_whole = len(text) <= _PREVIEW and len(body) <= _PREVIEW * 4
    return text if is_whole else text[: _PREVIEW - 1] + "…"


def message_row(context: Context, it: StoredMessage) -> dict[str, Any]:
    """Return what lists show of a message; nothing of its contents where they are hidden."""
    is_hidden = context.parts.config.hide_bodies
    return {
        "topic": it.topic,
        "id": it.msg_id,
        "unique": it.unique_key or "",
        "broker": it.broker_name,
        "queue": it.queue_id,
        "offset": it.queue_offset,
        "stored_ms": it.store_timestamp,
        "tag": (it.tag or "")[:_SHORT],
        "keys": [] if is_hidden else " ".join(it.keys)[:_SHORT].split(),
        "preview": "" if is_hidden else _preview(it.body),
        "tries": it.reconsume_times,
    }


def _unpacked(body: bytes, size_max: int) -> tuple[str, bytes]:
    """Return how a body is packed, and one byte more of its contents than are shown."""
    for kind, magic in (("gzip", b"\x1f\x8b\x08"), ("zlib", b"\x78")):
        if not body.startswith(magic):
            continue
        try:
            # A few bytes may unpack to very many.
            found = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(body, size_max + 1)
        except zlib.error:
            continue
        if found:
            return kind, found
    return "", body


def _body(body: bytes, size_max: int) -> dict[str, Any]:
    """Return a body as text and hex, as JSON for people if it is JSON; gzip and zlib unpacked."""
    packed, body = _unpacked(body, size_max)
    cut = body[:size_max]
    shown: dict[str, Any] = {"cut": len(body) > size_max, "json": None, "text": None}
    shown["packed"] = packed
    try:
        # A cut may fall within a character.
        shown["text"] = cut.decode(errors="ignore" if shown["cut"] else "strict")
        if not shown["cut"]:
            shown["json"] = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        pass
    if shown["json"] is not None and len(shown["json"]) > 2 * size_max:
        shown["json"] = None  # deep nesting grows by its indentation
    shown["hex"] = hex_lines(body[:_HEX_MAX])
    shown["base64"] = base64.b64encode(cut).decode() if shown["text"] is None else None
    return shown


def hex_lines(data: bytes) -> str:
    """Return lines of offset, sixteen bytes, and their characters."""
    lines: list[str] = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        text = "".join(chr(it) if 32 <= it < 127 else "." for it in row)
        lines.append(f"{start:06x}  {row.hex(' '):<47}  {text}")
    return "\n".join(lines)


async def draft(context: Context, given: Data) -> Data:
    """Show the form of a new message, filled in from a stored one if an id is given."""
    data: Data = {"topic": given["topic"], "body": "", "tag": "", "keys": "", "properties": ""}
    if given["id"] is None:
        await context.admin.topics.route(given["topic"])
        return data
    if context.parts.config.hide_bodies:
        raise UsageError("bodies are hidden in this console: a message cannot be edited")
    it = (await found_by_id(context.admin, given["topic"], given["id"]))[0]
    try:
        body = it.body.decode()
    except UnicodeDecodeError as error:
        text = "its body is no text: it can be sent again as it is, but not edited here"
        raise UsageError(text) from error
    if len(it.body) > context.limits.published_body:
        raise UsageError("its body is too large to be edited here")
    own = {name: value for name, value in it.properties.items() if not name.isupper()}
    return {
        "topic": origin_of(it),
        "body": body,
        "tag": it.tag or "",
        "keys": " ".join(it.keys),
        "properties": "\n".join(f"{name}={value}" for name, value in own.items()),
    }


async def resend(context: Context, given: Data) -> Done:
    """Send a copy of a message: to its topic, to another, or to one group alone."""
    it = (await found_by_id(context.admin, given["topic"], given["id"]))[0]
    sent = await context.admin.messages.send_again(it, topic=given["to"], group=given["group"])
    text = f"sent again to {sent.queue.topic}, queue {sent.queue.queue_id}, id {sent.offset_id}"
    return Done(text, to("/message", topic=it.topic, id=it.msg_id), {"id": sent.offset_id})


async def consume(context: Context, given: Data) -> Done:
    """Have one member of a group consume a message now."""
    it = (await found_by_id(context.admin, given["topic"], given["id"]))[0]
    said = await context.admin.messages.consume_directly(given["group"], given["client"], it)
    text = f"{given['client']} says {said.result} after {said.spent_ms} ms"
    text = f"{text}: {said.remark}" if said.remark else text
    return Done(text, to("/message", topic=it.topic, id=it.msg_id), {"result": said.result})


# --- what clients say that they did with it ----------------------------------------------------


async def trace(context: Context, given: Data) -> Data:
    """Show what clients did with a message, as far as they trace, on one line of time."""
    wanted = (given["id"] or "").strip()
    shown: Data = {"id": wanted, "topic": given["topic"], "steps": [], "missing": ""}
    if not wanted:
        return {**shown, "from_ms": 0, "to_ms": 0}
    try:
        events = await events_of(
            context.admin.messages, wanted, given["topic"], count=context.limits.found
        )
    except Refused as refusal:
        return {**shown, "from_ms": 0, "to_ms": 0, "missing": refusal.remark}
    steps = steps_of(events)[: context.limits.rows]
    from_ms = min((it.began_ms for it in steps), default=0)
    to_ms = max((it.end_ms for it in steps), default=0)
    share = 100 / max(1, to_ms - from_ms)
    rows = [
        {
            **dataclasses.asdict(it),
            "after_ms": it.began_ms - from_ms,
            # Per cent of the whole time; what took no time is still to be seen.
            "left": round(min(99.0, (it.began_ms - from_ms) * share), 2),
            "width": round(max(1.0, (it.took_ms or 0) * share), 2),
            "is_good": it.result not in _BAD_ENDS,
        }
        for it in steps
    ]
    return {**shown, "steps": rows, "from_ms": from_ms, "to_ms": to_ms}
