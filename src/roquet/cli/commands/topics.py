"""`roquet topic …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin.topics import unknown_topic
from roquet.cli import output
from roquet.cli.commands.asking import ask
from roquet.model.topic import TopicConfig, perm_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from roquet.admin import Admin


async def ls(admin: Admin, options: argparse.Namespace) -> int:
    """List topics."""
    names = await admin.topics.names(system=options.everything)
    output.listed(("topic",), [(name,) for name in names], options.output)
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
    output.listed(head, rows, options.output, {"topic": topic})
    return 0


async def create(admin: Admin, options: argparse.Namespace) -> int:
    """Create a topic."""
    attributes = {} if options.type is None else {"message.type": options.type}
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
    found = await admin.topics.get(topic, cluster=options.cluster)
    if not found:
        raise unknown_topic(topic)
    if any(queues < _larger(it) for it in found.values()):
        hidden = await _hidden(admin, topic, queues, found)
        ask(
            f"{hidden} messages of {topic} would be out of reach until its queues come back",
            agreed=options.yes,
        )
    await admin.topics.alter(topic, queues=queues, cluster=options.cluster)
    known = (await admin.brokers.cluster()).brokers
    for broker, config in found.items():
        where = known[broker].master
        output.line(f"{topic}: {queues} queues on {broker} ({where}), {_larger(config)} before")
    return 0


async def rm(admin: Admin, options: argparse.Namespace) -> int:
    """Delete a topic, once its name is typed again."""
    topic = options.topic
    held = sum(it.max_offset - it.min_offset for it in (await admin.topics.offsets(topic)).values())
    groups = await admin.topics.groups(topic)
    readers = f", read by {', '.join(groups[:5])}" if groups else ""
    ask(f"{topic} with {held} messages{readers} will be gone", agreed=options.yes, word=topic)
    await admin.topics.delete(topic)
    output.line(f"{topic}: deleted, with {held} messages")
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
