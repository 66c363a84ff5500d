"""Static topics, as RocketMQ's tool makes and moves them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.admin.rocketmq import static_plans
from roquet.base.clock import SystemClock
from roquet.base.errors import NotFound, UsageError
from roquet.cli import output
from roquet.cli.mqadmin.shared import number, truth
from roquet.protocol.bodies.rocketmq.static_topics import CREATE, StaticPlan
from roquet.protocol.names import check_topic

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from roquet.admin import Admin
    from roquet.protocol.bodies.rocketmq.static_topics import StaticTopic

_FILE_MAX = 16 * 1024 * 1024
_QUEUES_MAX = 65_535


async def update(admin: Admin, options: argparse.Namespace) -> int:
    """Make a static topic, or give it more queues; with -mf as a file says."""
    topic, force = _topic(options), truth(options.forceReplace, default=False)
    if options.mapFile is not None:
        await admin.static_topics.create(_read(options.mapFile, topic), force=force)
        return 0
    total = number(options.totalQueueNum.strip(), "-qn", 0)
    if not 1 <= total <= _QUEUES_MAX:
        raise UsageError(f"-qn {total} is not within 1 and {_QUEUES_MAX}")
    targets = await _targets(admin, options)
    there = await admin.static_topics.get(topic)
    now_ms = SystemClock().now_ms()
    plan = static_plans.extended(topic, total, targets, there, now_ms)
    _written(topic, there, now_ms)
    output.line(f"The new mapping data is written to file {_save(plan, 'after')}")
    await admin.static_topics.create(plan, force=force)
    return 0


async def remap(admin: Admin, options: argparse.Namespace) -> int:
    """Move the queues of a static topic to brokers; with -mf as a file says."""
    topic, force = _topic(options), truth(options.forceReplace, default=False)
    if options.mapFile is not None:
        await admin.static_topics.move(_read(options.mapFile, topic), force=force)
        return 0
    targets = await _targets(admin, options)
    there = await admin.static_topics.get(topic)
    if not there:
        raise NotFound(f"no broker has the topic {topic}")
    plan = static_plans.remapped(topic, targets, there, SystemClock().now_ms())
    _written(topic, there, 0)
    # RocketMQ's tool calls both old; the names of the files tell.
    output.line(f"The old mapping data is written to file {_save(plan, 'after')}")
    await admin.static_topics.move(plan, force=force)
    return 0


def _topic(options: argparse.Namespace) -> str:
    topic: str = options.topic.strip()
    wrong = check_topic(topic)
    if wrong is not None:
        raise UsageError(f"-t: {wrong}")
    return topic


async def _targets(admin: Admin, options: argparse.Namespace) -> list[str]:
    """Return the names of brokers that `-b` or `-c` has, each with a master.

    Raises NotFound for one that is none.
    """
    if options.brokers is not None:
        named = [it.strip() for it in options.brokers.split(",") if it.strip()]
        if not named:
            raise UsageError("-b has no name of a broker")
        known = await admin.brokers.masters()
        missing = [it[:80] for it in named if it not in known]
        if missing:
            raise NotFound(f"no master of {', '.join(missing)}; there are {', '.join(known)}")
        return named
    found: list[str] = []
    for cluster in options.clusters.split(","):
        if cluster.strip():
            found += await admin.brokers.masters(cluster=cluster.strip())
    if not found:
        raise UsageError("-c has no name of a cluster")
    return found


def _written(topic: str, there: Mapping[str, StaticTopic], now_ms: int) -> None:
    epoch = static_plans.check(topic, there)[0] if there else now_ms
    plan = StaticPlan(topic=topic, kind=CREATE, epoch=epoch, brokers=there)
    output.line(f"The old mapping data is written to file {_save(plan, 'before')}")


def _save(plan: StaticPlan, when: str) -> Path:
    """Write a plan where RocketMQ's tool writes it. Raises UsageError when it cannot be."""
    file = Path(tempfile.gettempdir()) / f"{plan.topic}-{plan.epoch}.{when}"
    try:
        # The folder is one that everybody may write to: no link is followed.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(file, flags, 0o600), "wb") as opened:
            opened.write(plan.encode())
    except OSError as error:
        raise UsageError(f"nothing is changed: {file} cannot be written: {error}") from error
    return file


def _read(name: str, topic: str) -> StaticPlan:
    """Read a plan that either tool has written. Raises UsageError."""
    path = Path(name.strip())
    try:
        if path.stat().st_size > _FILE_MAX:
            raise UsageError(f"-mf {str(path)[:200]!r} is longer than {_FILE_MAX} bytes")
        plan = StaticPlan.decode(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"-mf {str(path)[:200]!r} cannot be read: {error}") from error
    if plan.topic != topic or not plan.brokers:
        raise UsageError(f"-mf {str(path)[:200]!r} has no mapping of {topic}")
    strange = (plan.into | plan.out_of) - set(plan.brokers)
    if strange:
        raise UsageError(f"-mf: {', '.join(sorted(strange))[:200]} is without a mapping")
    static_plans.check(topic, plan.brokers)
    static_plans.queues_of(plan.brokers)
    return plan
