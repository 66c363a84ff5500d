"""`roquet topic …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin.topics import unknown_topic
from roquet.base.errors import NotFound, UsageError
from roquet.cli import output
from roquet.cli.commands.asking import OnlySaid, ask
from roquet.cli.commands.brokers import say_when_none
from roquet.model.attributes import MESSAGE_TYPE
from roquet.model.topic import Perm, TopicConfig, perm_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from roquet.admin import Admin

_PERMS = {"rw": int(Perm.READ | Perm.WRITE), "r": int(Perm.READ), "w": int(Perm.WRITE)}


async def ls(admin: Admin, options: argparse.Namespace) -> int:
    """List topics."""
    names = await admin.topics.names(system=options.everything)
    output.listed(("topic",), [(name,) for name in names], options.output, none="")
    if not names:
        await say_when_none(admin, options)
    return 0


async def get(admin: Admin, options: argparse.Namespace) -> int:
    """Show a topic's queues with their offsets."""
    topic = options.topic
    route = await admin.topics.route(topic)
    perms = {queues.broker_name: queues.perm for queues in route.queues}
    masters = {it.broker_name: it.master for it in route.brokers}
    rows = [
        (
            queue.broker_name,
            str(masters[queue.broker_name]),
            perm_text(perms.get(queue.broker_name, 0)),
            queue.queue_id,
            at.min_offset,
            at.max_offset,
            at.max_offset - at.min_offset,
        )
        for queue, at in (await admin.topics.offsets(topic)).items()
    ]
    head = ("broker", "address", "perm", "queue", "min", "max", "messages")
    if options.output == "table":
        for broker, config in (await admin.topics.get(topic)).items():
            kind = config.attributes.get(MESSAGE_TYPE, "UNSPECIFIED")
            order = ", in order" if config.order else ""
            output.line(f"{topic} on {broker}: {config.write_queues} queues, {kind}{order}")
    output.listed(head, rows, options.output, {"topic": topic})
    return 0


async def create(admin: Admin, options: argparse.Namespace) -> int:
    """Create a topic."""
    attributes = {} if options.type is None else {MESSAGE_TYPE: options.type}
    made = await admin.topics.create(
        options.topic,
        options.queues,
        order=options.order,
        attributes=attributes,
        cluster=options.cluster,
    )
    known = (await admin.brokers.cluster()).brokers
    for broker in made:
        where = known[broker].master
        output.line(f"{options.topic}: {options.queues} queues on {broker} ({where})")
    return 0


async def alter(admin: Admin, options: argparse.Namespace) -> int:
    """Change a topic; ask before messages go out of reach."""
    topic, queues = options.topic, options.queues
    perm = None if options.perm is None else _PERMS[options.perm]
    attributes = {} if options.type is None else {MESSAGE_TYPE: options.type}
    if queues is None and perm is None and options.order is None and not attributes:
        raise UsageError("nothing is to be changed: give --queues, --perm, --order or --type")
    found = await admin.topics.get(topic, cluster=options.cluster)
    if not found:
        raise unknown_topic(topic)
    if queues is not None and any(queues < _larger(it) for it in found.values()):
        hidden = await _hidden(admin, topic, queues, found)
        ask(
            f"{hidden} messages of {topic} would be out of reach until its queues come back",
            options,
        )
    if options.dry_run:
        raise OnlySaid(f"{topic} would be changed on {', '.join(found)}")
    await admin.topics.alter(
        topic,
        queues=queues,
        perm=perm,
        order=options.order,
        attributes=attributes,
        cluster=options.cluster,
    )
    now = await admin.topics.get(topic, cluster=options.cluster)
    known = (await admin.brokers.cluster()).brokers
    for broker, before in found.items():
        where, config = known[broker].master, now[broker]
        output.line(f"{topic}: {_shown(config)} on {broker} ({where}), {_shown(before)} before")
    return 0


def _shown(config: TopicConfig) -> str:
    kind = config.attributes.get(MESSAGE_TYPE)
    parts = [f"{_larger(config)} queues", perm_text(config.perm), *([kind] if kind else [])]
    return " ".join([*parts, *(["in order"] if config.order else [])])


async def rm(admin: Admin, options: argparse.Namespace) -> int:
    """Delete a topic, everywhere or on one broker, once its name is typed again."""
    topic, broker = options.topic, options.broker
    there = await admin.topics.offsets(topic)
    here = [at for it, at in there.items() if broker in (None, it.broker_name)]
    if not here:
        known = ", ".join(sorted({it.broker_name for it in there}))
        raise NotFound(f"{topic} is not on {broker}, but on {known}")
    held = sum(it.max_offset - it.min_offset for it in here)
    groups = await admin.topics.groups(topic)
    readers = f", read by {', '.join(groups[:5])}" if groups else ""
    where = f" on {broker}" if broker else ""
    ask(f"{topic} with {held} messages{where}{readers} will be gone", options, topic)
    if broker is None:
        await admin.topics.delete(topic)
    else:
        await admin.topics.delete_on(topic, broker)
    output.line(f"{topic}: deleted{where}, with {held} messages")
    return 0


def _larger(config: TopicConfig) -> int:
    return max(config.read_queues, config.write_queues)


async def _hidden(admin: Admin, topic: str, queues: int, found: Mapping[str, TopicConfig]) -> int:
    """Count the messages of the queues that go."""
    return sum(
        at.max_offset - at.min_offset
        for queue, at in (await admin.topics.offsets(topic)).items()
        if queue.broker_name in found and queue.queue_id >= queues
    )
