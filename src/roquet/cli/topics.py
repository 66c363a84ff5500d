"""`roquet topic …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import Refused, UsageError
from roquet.cli import output
from roquet.cli.admin import Admin
from roquet.model.topic import perm_text
from roquet.protocol.codes import ResponseCode
from roquet.protocol.names import check_topic, is_dlq, is_retry, is_system_topic

if TYPE_CHECKING:
    from roquet.model.route import BrokerData


def create(namesrv: str, topic: str, queues: int, cluster: str | None) -> int:
    """Create a topic on every master of a cluster, or of all."""
    wrong = check_topic(topic)
    if wrong is not None:
        raise UsageError(wrong)
    with Admin(namesrv) as admin:
        masters = _masters(admin, cluster)
        for broker in masters:
            admin.create_topic(str(broker.master), topic, queues)
            output.line(f"{topic}: {queues} queues on {broker.broker_name} ({broker.master})")
    return 0


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
