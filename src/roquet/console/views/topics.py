"""Topics: listed, shown, created, altered, deleted; messages published to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.base.errors import NotFound, RoquetError, UsageError
from roquet.console.context import each
from roquet.console.declared import Done
from roquet.console.views.paging import page_of
from roquet.console.web.render import to
from roquet.model.topic import READ_WRITE, Perm, perm_text
from roquet.protocol import names

if TYPE_CHECKING:
    from roquet.console.context import Context
    from roquet.console.declared import Data

KINDS = ("user", "retry", "dead letters", "system", "all")
TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED", "LITE", "UNSPECIFIED")
PERMS = {"rw": READ_WRITE, "r": int(Perm.READ), "w": int(Perm.WRITE)}
_TYPE = "message.type"
_GROUPS_MAX = 50
_PRODUCER = "ROQUET_CONSOLE"
DELAY_MAX_S = 10 * 366 * 86_400
"""The longest delay that a broker can allow."""


def kind_of(topic: str, system: frozenset[str]) -> str:
    """Return which kind of topic it is."""
    if names.is_retry(topic):
        return "retry"
    if names.is_dlq(topic):
        return "dead letters"
    return "system" if topic in system or names.is_hidden(topic) else "user"


async def topics(context: Context, given: Data) -> Data:
    """List topics with what they hold, page by page."""
    system = await context.admin.topics.system()
    found = [
        it
        for it in await context.admin.topics.names()
        if given["kind"] in ("all", kind_of(it, system))
    ]
    chosen, about = page_of(found, given, context.limits.page)
    rows = await each(_row(context, it) for it in chosen)
    shown = [
        {"name": name, "error": str(row)} if isinstance(row, RoquetError) else row
        for name, row in zip(chosen, rows, strict=True)
    ]
    return {
        **about,
        "kind": given["kind"],
        "kinds": list(KINDS),
        "types": list(TYPES),
        "rows": shown,
    }


async def _row(context: Context, topic: str) -> dict[str, Any]:
    bounds, put_tps = await context.admin.topics.stats(topic)
    configs = await context.admin.topics.get(topic)
    types = {it.attributes.get("message.type", "") for it in configs.values()}
    return {
        "name": topic,
        "queues": len(bounds),
        "brokers": len({it.broker_name for it in bounds}),
        "messages": sum(it.max_offset - it.min_offset for it in bounds.values()),
        "in": put_tps,
        "last_ms": max((it.last_update for it in bounds.values()), default=0),
        "type": ", ".join(sorted(types - {""})),
        "error": "",
    }


async def topic(context: Context, given: Data) -> Data:
    """Show a topic: configuration, queues, routes, and the groups that consume it."""
    name = given["name"]
    route = await context.admin.topics.route(name)
    bounds, put_tps = await context.admin.topics.stats(name)
    configs = await context.admin.topics.get(name)
    groups = await context.admin.topics.groups(name)
    lags = await each(context.admin.groups.lag(it, name) for it in groups[:_GROUPS_MAX])
    return {
        "name": name,
        "in": put_tps,
        "kind": kind_of(name, await context.admin.topics.system()),
        "configs": [
            {
                "broker": broker,
                "read_queues": it.read_queues,
                "write_queues": it.write_queues,
                "perm": perm_text(it.perm),
                "order": it.order,
                "attributes": dict(it.attributes),
            }
            for broker, it in sorted(configs.items())
        ],
        "queues": [
            {
                "broker": it.broker_name,
                "queue": it.queue_id,
                "low": at.min_offset,
                "high": at.max_offset,
                "last_ms": at.last_update,
            }
            for it, at in list(bounds.items())[: context.limits.rows]
        ],
        "queues_count": len(bounds),
        "messages": sum(it.max_offset - it.min_offset for it in bounds.values()),
        "routes": [
            {
                "broker": it.broker_name,
                "cluster": it.cluster,
                "addresses": list(it.addresses.values()),
            }
            for it in route.brokers
        ],
        "groups": [
            {"name": group, "lag": None if isinstance(lag, RoquetError) else lag}
            for group, lag in zip(groups, lags, strict=False)
        ],
        "groups_count": len(groups),
        "may_send": names.check_may_send(name) is None,
    }


async def create(context: Context, given: Data) -> Done:
    """Create a topic on every master."""
    attributes = {_TYPE: given["type"]} if given["type"] else {}
    made = await context.admin.topics.create(
        given["name"], given["queues"], order=given["order"], attributes=attributes
    )
    text = f"topic {given['name']} created on {', '.join(made)}, {given['queues']} queues on each"
    return Done(text, to("/topic", name=given["name"]))


async def alter(context: Context, given: Data) -> Done:
    """Change what is given of a topic; queues with messages are taken away only when confirmed."""
    name, queues = given["name"], given["queues"]
    if queues is None and given["perm"] is None and given["type"] is None:
        raise UsageError("nothing is to be changed")
    if queues is not None and given["confirm"] != name:
        bounds = await context.admin.topics.offsets(name)
        hidden = sum(
            at.max_offset - at.min_offset for it, at in bounds.items() if it.queue_id >= queues
        )
        if hidden:
            raise UsageError(
                f"{hidden} messages are in queues that would be taken away, and could not be read"
                " until they come back; to do it all the same, confirm with the topic's name"
            )
    await context.admin.topics.alter(
        name,
        queues=queues,
        perm=None if given["perm"] is None else PERMS[given["perm"]],
        attributes=None if given["type"] is None else {_TYPE: given["type"]},
    )
    return Done(f"topic {name} changed", to("/topic", name=name))


async def delete(context: Context, given: Data) -> Done:
    """Delete a topic and its messages, all or one broker's, when its name is given twice."""
    name, broker = given["name"], given["broker"]
    if given["confirm"] != name:
        raise UsageError("the name that was typed is not the topic's: nothing is deleted")
    system = await context.admin.topics.system()
    if kind_of(name, system) == "system":
        raise UsageError(f"{name} is a topic of the system: it stays")
    if name not in await context.admin.topics.names():
        raise NotFound(f"there is no topic {name}")
    if broker is None:
        await context.admin.topics.delete(name)
        return Done(f"topic {name} deleted", "/topics")
    await context.admin.topics.delete_on(name, broker)
    left = await context.admin.topics.get(name)
    back = to("/topic", name=name) if left else "/topics"
    return Done(f"topic {name} deleted on {broker}", back)


async def publish(context: Context, given: Data) -> Done:
    """Send one message to a topic."""
    body = given["body"].replace("\r\n", "\n").encode(errors="surrogateescape")
    if len(body) > context.limits.published_body:
        raise UsageError(
            f"the body has {len(body)} bytes, at most {context.limits.published_body} here;"
            " larger ones: roquet pub --file"
        )
    if given["delay"] and given["delay_level"]:
        raise UsageError("give a delay level, or a delay in seconds")
    # Producers make topics that are not there: a slip of the pen is to make none.
    await context.admin.topics.route(given["topic"])
    async with context.mq.producer(_PRODUCER) as producer:
        receipt = await producer.send(
            given["topic"],
            body,
            tag=given["tag"],
            keys=tuple((given["keys"] or "").split()),
            properties=_properties(given["properties"] or ""),
            delay_level=given["delay_level"],
            delay=given["delay"] or None,
        )
    text = f"stored in queue {receipt.queue.queue_id} of {receipt.queue.broker_name}"
    if not receipt.is_durable:
        text = f"{text}, but less safely than wanted: {receipt.status}"
    place = {"id": receipt.message_id, "queue": receipt.queue.queue_id}
    more = place | {"broker": receipt.queue.broker_name, "offset": receipt.queue_offset}
    text = f"{text}, offset {receipt.queue_offset}, id {receipt.message_id}"
    return Done(text, to("/topic", name=given["topic"]), more)


def _properties(text: str) -> dict[str, str]:
    """Read lines of `name=value`. Raises UsageError."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"a property is a line like name=value, not {line[:40]!r}")
        found[name.strip()] = value.strip()
    return found
