"""Messages that groups gave up: listed, sent again with a result each, exported as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.admin.lookup import found_by_id
from roquet.admin.messages import origin_of
from roquet.base.errors import NotFound, RoquetError
from roquet.base.times import time_of
from roquet.console.context import each
from roquet.console.declared import Action, Done, Download, Field, File, View
from roquet.console.roles import Role
from roquet.console.views.messages import FUTURE_MS, message_row, newest_first
from roquet.console.views.paging import FILTER, PAGE, page_of
from roquet.console.web import files
from roquet.console.web.render import time_text, to
from roquet.protocol import names

if TYPE_CHECKING:
    from roquet.console.context import Context
    from roquet.console.declared import Data
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue

_AT_ONCE = 32
_CHOSEN_MAX = 200
_HIDDEN = "(hidden)"
_COLUMNS = (
    *("stored", "stored_ms", "topic", "id", "unique", "broker", "queue", "offset"),
    *("reconsumeTimes", "tag", "keys", "properties", "body", "encoding", "size", "error"),
)


async def dead_groups(context: Context, given: Data) -> Data:
    """List groups that gave messages up."""
    found = [
        it.removeprefix(names.DLQ_PREFIX)
        for it in await context.admin.topics.names()
        if names.is_dlq(it)
    ]
    chosen, about = page_of(found, given, context.limits.page)
    bounds = await each(context.admin.topics.offsets(names.dlq_topic(it)) for it in chosen)
    rows: list[dict[str, Any]] = []
    for name, seen in zip(chosen, bounds, strict=True):
        if isinstance(seen, RoquetError):
            rows.append({"name": name, "error": str(seen)})
            continue
        count = sum(it.max_offset - it.min_offset for it in seen.values())
        last_ms = max((it.last_update for it in seen.values()), default=0)
        rows.append({"name": name, "count": count, "last_ms": last_ms, "error": ""})
    return {**about, "rows": rows}


async def dead(context: Context, given: Data) -> Data:
    """Show what a group gave up, the newest first."""
    found, is_whole = await _dead(context, given["group"], given["since"])
    rows = [
        {**message_row(context, it), "origin": origin_of(it)}
        for it in newest_first(found)[: context.limits.found]
    ]
    return {
        "group": given["group"],
        "since": given["since"],
        "rows": rows,
        "is_whole": is_whole,
        "hidden": context.parts.config.hide_bodies,
        "exported": context.limits.exported,
    }


async def _dead(context: Context, group: str, since: str) -> tuple[list[StoredMessage], bool]:
    topic = names.dlq_topic(group)
    if not await _has_dead(context, group):
        return [], True
    begin, end = time_of(since, "since"), context.now_ms() + FUTURE_MS
    count = context.limits.found
    found = [it async for it in context.admin.messages.between(topic, begin, end, count=count)]
    return found, len(found) < count


async def _has_dead(context: Context, group: str) -> bool:
    """Tell whether a group has ever given up a message. Raises NotFound for no group."""
    # A group gets its dead-letter topic with the first dead letter.
    if names.dlq_topic(group) in await context.admin.topics.names():
        return True
    admin = context.admin.groups
    if not await admin.get(group) and await admin.connection(group) is None:
        raise NotFound(f"there is no group {group[:80]}")
    return False


async def resend_dead(context: Context, given: Data) -> Done:
    """Send what a group gave up again, to that group alone; a failure stops none of the others."""
    topic = names.dlq_topic(given["group"])
    results: list[dict[str, str]] = []
    for name in given["id"]:
        try:
            it = await _of(context, topic, name)
            sent = await context.admin.messages.send_again(it, group=given["group"])
        except RoquetError as error:
            results.append({"id": name, "result": str(error)})
        else:
            results.append({"id": name, "result": "sent", "new": sent.offset_id})
    failed = [it for it in results if it["result"] != "sent"]
    text = f"{len(results) - len(failed)} of {len(results)} messages sent again to {given['group']}"
    if failed:
        text = f"{text}; {failed[0]['id']}: {failed[0]['result']}"
    goto = to("/dead/group", group=given["group"])
    return Done(text, goto, {"results": results}, results=results)


async def _of(context: Context, topic: str, name: str) -> StoredMessage:
    """Return a dead letter by its id. Raises NotFound for a message of another topic."""
    it = (await found_by_id(context.admin, topic, name))[0]
    if it.topic != topic:
        raise NotFound(f"{topic.removeprefix(names.DLQ_PREFIX)} has not given up {name[:80]}")
    return it


# --- exported --------------------------------------------------------------------------------


async def export_all(context: Context, given: Data) -> File:
    """Return what a group gave up since a time as a file, the oldest first."""
    if not await _has_dead(context, given["group"]):
        return _file(context, given, [], "")
    return _file(context, given, *await _all(context, given))


async def export_chosen(context: Context, given: Data) -> File:
    """Return chosen dead letters as a file; one that cannot be had has a row that says why."""
    return _file(context, given, *await _chosen(context, given))


def _file(context: Context, given: Data, rows: list[dict[str, Any]], missing: str) -> File:
    ending = given["format"]
    if context.away:
        left_out = ", ".join(f"{name} ({why})" for name, why in context.away.items())
        missing = f"{missing}; without {left_out}" if missing else f"without {left_out}"
    is_csv = ending == "csv"
    data = files.comma_separated(_COLUMNS, rows) if is_csv else files.json_lines(rows)
    # Who has the file sees by its name that there is more.
    parts = ("dead-letters", given["group"], *(("incomplete",) if missing else ()))
    name = files.file_name(*parts, ending=ending)
    return File(name, files.FORMATS[ending], data, len(rows), missing)


async def _chosen(context: Context, given: Data) -> tuple[list[dict[str, Any]], str]:
    """Return a row for each id, and what is missing."""
    topic = names.dlq_topic(given["group"])
    rows: list[dict[str, Any]] = []
    left = context.limits.exported_bytes
    for number, name in enumerate(given["id"]):
        try:
            it = await _of(context, topic, name)
        except RoquetError as error:
            rows.append({"id": name, "error": str(error)})
            continue
        left -= it.store_size
        if left < 0 < number:
            return rows, f"the first {number} of {len(given['id'])} messages: more are too large"
        rows.append(_exported(context, it))
    return rows, ""


async def _all(context: Context, given: Data) -> tuple[list[dict[str, Any]], str]:
    """Return the messages of a time in the order of time, and what is missing.

    Each queue has the same share of what is read. Where one has more, nothing is returned that was
    stored later than the first message that was not read: what is there has no gaps.
    """
    topic = names.dlq_topic(given["group"])
    begin = time_of(given["since"], "since")
    queues = await context.admin.topics.offsets_at(topic, begin)
    share = max(1, len(queues))
    found: list[StoredMessage] = []
    next_ms: int | None = None
    for queue, offset in sorted(queues.items()):
        read, following = await _read(context, queue, offset, share)
        found += read
        if following is not None:
            at_ms = following.store_timestamp
            next_ms = at_ms if next_ms is None else min(next_ms, at_ms)
    found.sort(key=lambda it: (it.store_timestamp, it.broker_name, it.queue_offset))
    if next_ms is None:
        return [_exported(context, it) for it in found], ""
    rows = [_exported(context, it) for it in found if it.store_timestamp <= next_ms]
    return rows, f"the first {len(rows)}, until {time_text(next_ms)}: go on with since={next_ms}"


async def _read(
    context: Context, queue: MessageQueue, offset: int, share: int
) -> tuple[list[StoredMessage], StoredMessage | None]:
    """Return the messages of a queue within its share of the limits, and the next one, if any.

    Messages of one millisecond stay together as far as twice the limits reach, so that whoever
    goes on at the next message's time has read all before it.
    """
    count = max(1, context.limits.exported // share)
    size = context.limits.exported_bytes // share
    found: list[StoredMessage] = []
    taken = 0
    while True:
        more = await context.admin.messages.at(queue, offset, _AT_ONCE)
        for it in more:
            is_full = len(found) >= count or taken + it.store_size > size
            is_overfull = len(found) >= 2 * count or taken > size
            is_later = bool(found) and it.store_timestamp > found[-1].store_timestamp
            if found and is_full and (is_later or is_overfull):
                return found, it
            taken += it.store_size
            found.append(it)
        if len(more) < _AT_ONCE:
            return found, None
        offset = more[-1].queue_offset + 1


def _exported(context: Context, it: StoredMessage) -> dict[str, Any]:
    is_hidden = context.parts.config.hide_bodies
    shown: dict[str, Any] = {"keys": _HIDDEN, "properties": _HIDDEN, "body": _HIDDEN}
    if not is_hidden:
        shown = {"keys": list(it.keys), "properties": dict(it.properties)}
        shown |= files.body_fields(it.body)
    return {
        "stored": time_text(it.store_timestamp),
        "stored_ms": it.store_timestamp,
        "topic": origin_of(it),
        "id": it.msg_id,
        "unique": it.unique_key or "",
        "broker": it.broker_name,
        "queue": it.queue_id,
        "offset": it.queue_offset,
        "reconsumeTimes": it.reconsume_times,
        "tag": it.tag or "",
        "encoding": "hidden",
        **shown,
        "size": len(it.body),
    }


_GROUP = Field(name="group", about="the consumer group", required=True)
_SINCE = Field(name="since", about="given up then or later", default="30d")


def _ids(high: int) -> Field:
    about = "ids of messages"
    return Field(name="id", about=about, kind="texts", required=True, high=high, size_max=128)


VIEWS = (
    View(
        path="/dead",
        title="Dead letters",
        role=Role.VIEWER,
        show=dead_groups,
        template="messages/dead.html",
        fields=(FILTER, PAGE),
    ),
    View(
        path="/dead/group",
        title="Dead letters of a group",
        role=Role.VIEWER,
        show=dead,
        template="messages/dead_group.html",
        fields=(_GROUP, _SINCE),
    ),
)
ACTIONS = (
    Action(
        path="/dead/resend",
        title="Send dead letters again",
        role=Role.OPERATOR,
        do=resend_dead,
        fields=(_GROUP, _ids(100)),
    ),
)
_FORMAT = Field(
    name="format", about="CSV or JSON lines", choices=tuple(files.FORMATS), default="csv"
)
DOWNLOADS = (
    Download(
        path="/dead/export",
        title="Dead letters as a file",
        role=Role.VIEWER,
        make=export_all,
        fields=(_GROUP, _SINCE, _FORMAT),
    ),
    Download(
        path="/dead/export/chosen",
        title="Chosen dead letters as a file",
        role=Role.VIEWER,
        make=export_chosen,
        fields=(_GROUP, _ids(_CHOSEN_MAX), _FORMAT),
    ),
)
