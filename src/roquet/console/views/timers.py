"""What brokers keep until later: timer messages, which can be taken back, and transactions.

The timer topic is only ever appended to. That a message was recalled is told by a request that was
stored behind it, so whoever asks reads on from the message, as far as the bound of a search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.admin.lookup import found_by_id
from roquet.base.errors import RoquetError, UsageError
from roquet.console.declared import Action, Done, Field, View
from roquet.console.roles import Role
from roquet.console.web.render import time_text, to
from roquet.protocol import names, properties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.console.context import Context
    from roquet.console.declared import Data
    from roquet.model.message import StoredMessage

_TRANSACTIONS = "CID_RMQ_SYS_TRANS"
_SETTING = "recallMessageEnable"
_AT_ONCE = 32
_NEAR_MS = 2_000
_LOOKS = 40
_LOOK_S = 0.05


async def waiting(context: Context, _: Data) -> Data:
    """Show what brokers keep until later: timer messages, and transactions without an end."""
    rows: list[dict[str, Any]] = []
    errors: dict[str, str] = {}
    for name, data in sorted((await context.admin.brokers.cluster()).brokers.items()):
        if data.master is None:
            continue
        try:
            found = await context.admin.brokers.timers(data.master)
        except RoquetError as error:
            errors[name] = str(error)
            continue
        rows += [
            {"broker": name, "topic": it.topic, "waiting": it.waiting, "time_ms": it.timestamp}
            for it in found.topics
        ]
    rows.sort(key=lambda it: (-it["waiting"], it["topic"]))
    transactions: dict[str, dict[str, Any]] = {}
    for topic in (names.TRANS_HALF_TOPIC, names.ROCKSDB_TRANS_HALF_TOPIC):
        try:
            offsets = await context.admin.groups.offsets(_TRANSACTIONS, topic)
        except RoquetError:
            continue  # nobody has begun a transaction on this cluster
        for it, at in offsets.items():
            # A broker that has none begun may still have the queue.
            if not at.broker_offset:
                continue
            row = transactions.setdefault(
                it.broker_name, {"broker": it.broker_name, "half": 0, "checked": 0, "open": 0}
            )
            row["half"] += at.broker_offset
            row["checked"] += at.consumer_offset
            row["open"] += max(0, at.broker_offset - at.consumer_offset)
    return {
        "timers": rows[:500],
        "timer_topic": names.TIMER_TOPIC,
        "errors": errors,
        "transactions": list(transactions.values()),
    }


# --- one timer message -----------------------------------------------------------------------


async def timer_of(context: Context, message: StoredMessage) -> Data | None:
    """Return when a message that waits is due and why it cannot be recalled; None for others."""
    if message.topic == names.SCHEDULE_TOPIC:
        why = "it waits by a delay level, which knows no recall: only timer messages are taken back"
        return {
            "topic": message.properties.get(properties.REAL_TOPIC, "?"),
            "due_ms": 0,
            "why": why,
        }
    if message.topic != names.TIMER_TOPIC:
        return None
    due_ms = _due_ms(message)
    real = message.properties.get(properties.REAL_TOPIC, "?")
    return {"topic": real, "due_ms": due_ms, "why": await _why_not(context, message, due_ms)}


async def _why_not(context: Context, message: StoredMessage, due_ms: int) -> str:
    """Return why a record of the timer topic cannot be recalled; empty when it can."""
    other = message.properties.get(properties.TIMER_DEL_UNIQKEY)
    if other is not None:
        return f"it is itself the request to recall {other[:80]}"
    if not message.unique_key or not message.properties.get(properties.REAL_TOPIC) or not due_ms:
        return "its producer gave it no id of its own, or it has no time"
    if due_ms <= context.now_ms():
        return f"it was due at {time_text(due_ms)}, and was delivered then"
    if await recalled(context, [message]):
        return "it was recalled"
    broker = message.broker_name or message.store_host
    off = f"{broker} takes nothing back: set {_SETTING} to true on its page"
    return off if await _takes_nothing_back(context, broker) else ""


async def _takes_nothing_back(context: Context, broker: str) -> bool:
    try:
        return (await context.admin.brokers.config(broker)).get(_SETTING) == "false"
    except RoquetError:
        return False  # the broker itself will say


async def recalled(context: Context, messages: Sequence[StoredMessage]) -> set[str]:
    """Return the ids, of records, of those timer messages that were taken back.

    The last messages of the timer topic are read, as many as a search reads. Where they cannot be,
    the banner of partial results says so.
    """
    waiting = [
        it
        for it in messages
        if it.topic == names.TIMER_TOPIC
        and it.unique_key
        and properties.TIMER_DEL_UNIQKEY not in it.properties
        and _due_ms(it) > context.now_ms()
    ]
    if not waiting:
        return set()
    try:
        found = await _recalls(context, waiting)
    except RoquetError as error:
        context.away["recalls"] = str(error)
        return set()
    # Brokers that do as RocketMQ did before 5.5 have the topic before the key.
    return {
        it.msg_id
        for it in waiting
        if found
        & {str(it.unique_key), f"{it.properties.get(properties.REAL_TOPIC)}+{it.unique_key}"}
    }


async def _recalls(context: Context, waiting: Sequence[StoredMessage]) -> set[str]:
    """Return the keys of the recalls that are stored behind these messages."""
    found: set[str] = set()
    for queue, bounds in (await context.admin.topics.offsets(names.TIMER_TOPIC)).items():
        mine = [it for it in waiting if it.broker_name in ("", queue.broker_name)]
        if not mine:
            continue
        begin = min(it.queue_offset for it in mine) + 1
        begin = max(begin, bounds.max_offset - context.limits.scanned)
        while begin < bounds.max_offset:
            count = min(_AT_ONCE, bounds.max_offset - begin)
            read = await context.admin.messages.at(queue, begin, count)
            if not read:
                break
            deleted = (it.properties.get(properties.TIMER_DEL_UNIQKEY) for it in read)
            found |= {key for key in deleted if key is not None}
            begin = read[-1].queue_offset + 1
    return found


def _due_ms(message: StoredMessage) -> int:
    text = message.properties.get(properties.TIMER_OUT_MS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0


async def recall(context: Context, given: Data) -> Done:
    """Take back a timer message that waits."""
    message = (await found_by_id(context.admin, names.TIMER_TOPIC, given["id"]))[0]
    due_ms = _due_ms(message)
    if message.topic != names.TIMER_TOPIC:
        raise UsageError(f"{given['id']} is no timer message: it lies in {message.topic}")
    why = await _why_not(context, message, due_ms)
    if why:
        raise UsageError(f"{message.unique_key or given['id']} cannot be recalled: {why}")
    left_ms = due_ms - context.now_ms()
    key = await context.admin.messages.recall(message)
    # The request is in its queue a moment later; the page that follows is to know of it.
    for _ in range(_LOOKS):
        if await recalled(context, [message]):
            break
        await context.parts.clock.sleep(_LOOK_S)
    text = f"{key} is recalled: it will not come to {message.properties[properties.REAL_TOPIC]}"
    if left_ms < _NEAR_MS:
        text = f"{key}: its recall is stored, but it was nearly due and may have come all the same"
    return Done(text, to("/waiting"), {"id": key})


VIEWS = (
    View(
        path="/waiting",
        title="Timers and transactions",
        role=Role.VIEWER,
        show=waiting,
        template="groups/waiting.html",
    ),
)
ACTIONS = (
    Action(
        path="/waiting/recall",
        title="Recall a timer message",
        role=Role.OPERATOR,
        do=recall,
        fields=(
            Field(
                name="id", about="id of the message, of either kind", required=True, size_max=128
            ),
        ),
    ),
)
