"""`roquet topic …`."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

from roquet.base.errors import Refused, UsageError
from roquet.cli import output
from roquet.cli.admin import Admin
from roquet.model.topic import TopicConfig, perm_text
from roquet.protocol.codes import ResponseCode
from roquet.protocol.names import check_topic, is_dlq, is_retry, is_system_topic

if TYPE_CHECKING:
    from roquet.model.route import BrokerData


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """What `alter` is to do."""

    topic: str
    queues: int
    cluster: str | None
    agreed: bool
    """Whether nobody is to be asked."""


def create(namesrv: str, topic: str, queues: int, cluster: str | None) -> int:
    """Create a topic on every master of a cluster, or of all. Raises Refused when it is there."""
    _check(topic)
    with Admin(namesrv) as admin:
        masters = _masters(admin, cluster)
        there = [
            f"{config.write_queues} queues on {broker.broker_name}"
            for broker in masters
            if (config := admin.topic(str(broker.master), topic)) is not None
        ]
        if there:
            raise Refused(
                ResponseCode.TOPIC_EXIST_ALREADY,
                f"there is a topic {topic} ({', '.join(there)}); to change it: roquet topic alter"
                f" {topic} -q {queues}",
            )
        for broker in masters:
            config = TopicConfig(name=topic, read_queues=queues, write_queues=queues)
            admin.put_topic(str(broker.master), config)
            output.line(f"{topic}: {queues} queues on {broker.broker_name} ({broker.master})")
    return 0


def alter(namesrv: str, change: Change) -> int:
    """Change a topic's queues where it is; ask before messages go out of reach."""
    _check(change.topic)
    with Admin(namesrv) as admin:
        found = [
            (broker, config)
            for broker in _masters(admin, change.cluster)
            if (config := admin.topic(str(broker.master), change.topic)) is not None
        ]
        if not found:
            raise admin.no_topic(change.topic)
        hidden = sum(_hidden(admin, broker, config, change) for broker, config in found)
        shrinks = any(change.queues < max(it.read_queues, it.write_queues) for _, it in found)
        if shrinks and not change.agreed:
            _ask(change, hidden)
        for broker, config in found:
            new = dataclasses.replace(config, read_queues=change.queues, write_queues=change.queues)
            admin.put_topic(str(broker.master), new)
            was = max(config.read_queues, config.write_queues)
            output.line(
                f"{change.topic}: {change.queues} queues on {broker.broker_name}"
                f" ({broker.master}), {was} before"
            )
    return 0


def _check(topic: str) -> None:
    wrong = check_topic(topic)
    if wrong is not None:
        raise UsageError(wrong)


def _hidden(admin: Admin, broker: BrokerData, config: TopicConfig, change: Change) -> int:
    """Count the messages of the queues that go."""
    if change.queues >= max(config.read_queues, config.write_queues):
        return 0
    stats = admin.stats(str(broker.master), change.topic)
    return sum(
        offsets.max_offset - offsets.min_offset
        for queue, offsets in stats.offsets.items()
        if queue.queue_id >= change.queues
    )


def _ask(change: Change, hidden: int) -> None:
    """Have a person agree. Raises UsageError when nobody is there to, or does not."""
    loss = f"{hidden} messages of {change.topic} would be out of reach until its queues come back"
    if not (sys.stdin is not None and sys.stdin.isatty()):
        raise UsageError(f"{loss}: --yes does it all the same")
    sys.stderr.write(f"{loss}. Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing is changed")


def _masters(admin: Admin, cluster: str | None) -> list[BrokerData]:
    known = admin.clusters()
    if cluster is not None and cluster not in known.clusters:
        there = ", ".join(sorted(known.clusters)) or "none"
        raise UsageError(f"there is no cluster {cluster}; there are: {there}")
    masters = [
        broker
        for broker in known.brokers.values()
        if broker.master is not None and cluster in (None, broker.cluster)
    ]
    if not masters:
        raise Refused(ResponseCode.QUERY_NOT_FOUND, "no master broker is registered")
    return masters


def ls(namesrv: str, *, everything: bool, as_json: bool) -> int:
    """List topics; those of the system only when asked for."""
    with Admin(namesrv) as admin:
        system = set[str]() if everything else admin.system_topics()
        for topic in sorted(admin.topics()):
            hidden = topic in system or is_system_topic(topic) or is_retry(topic) or is_dlq(topic)
            if everything or not hidden:
                _show_name(topic, as_json=as_json)
    return 0


def _show_name(topic: str, *, as_json: bool) -> None:
    if as_json:
        output.json_line({"topic": topic})
    else:
        output.line(topic)


def describe(namesrv: str, topic: str, *, as_json: bool) -> int:
    """Show a topic's queues with their offsets."""
    rows: list[tuple[str, str, str, int, int, int, int]] = []
    with Admin(namesrv) as admin:
        route = admin.route(topic)
        perms = {queues.broker_name: queues.perm for queues in route.queues}
        for broker in sorted(route.brokers, key=lambda one: one.broker_name):
            if broker.master is None:
                continue
            stats = admin.stats(broker.master, topic)
            perm = perm_text(perms.get(broker.broker_name, 0))
            for queue, offsets in sorted(stats.offsets.items()):
                counts = (offsets.min_offset, offsets.max_offset)
                held = offsets.max_offset - offsets.min_offset
                where = (broker.broker_name, broker.master, perm)
                rows.append((*where, queue.queue_id, *counts, held))
    head = ("broker", "address", "perm", "queue", "min", "max", "messages")
    if as_json:
        for row in rows:
            output.json_line({"topic": topic, **dict(zip(head, row, strict=True))})
    else:
        output.table(head, rows)
    return 0
