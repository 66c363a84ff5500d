"""Tables, settings and figures of a cluster, written to files as RocketMQ's tool writes them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import Refused, UsageError
from roquet.cli import output
from roquet.cli.mqadmin.shared import java_bool, pretty, targets
from roquet.model.topic import READ_WRITE
from roquet.protocol import names
from roquet.protocol.bodies.groups import group_json
from roquet.protocol.bodies.topics import topic_json
from roquet.protocol.versions import V5_5_0, describe

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from roquet.admin import Admin
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.topic import TopicConfig
    from roquet.protocol.bodies.stats import BrokerStatsItem

FOLDER = "/tmp/rocketmq/export"  # noqa: S108  (where RocketMQ's tool writes them)
_SETTINGS = (
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
)
_TPS = ("NormalInTps", "NormalOutTps", "TransInTps", "ScheduleInTps")
_DAY = ("normalOneDayInNum", "normalOneDayOutNum", "transOneDayInNum", "scheduleOneDayInNum")


async def export_metadata(admin: Admin, options: argparse.Namespace) -> int:
    """Write topics and groups of a broker, or of a cluster's masters together."""
    if options.brokerAddr is not None and not (options.topic or options.subscriptionGroup):
        raise UsageError("-b needs -t or -g: topics or groups")
    topics: dict[str, TopicConfig] = {}
    groups: dict[str, SubscriptionGroupConfig] = {}
    for broker, address in (await targets(admin, options)).items():
        mine = await _topics(admin, address, special=options.specialTopic)
        for name, topic in mine.items():
            topics[name] = _joined_topic(topics.get(name), topic)
        for name, group in (await _groups(admin, broker)).items():
            groups[name] = _joined_group(groups.get(name), group)
    found: dict[str, object] = {"exportTime": SystemClock().now_ms()}
    if not options.subscriptionGroup or options.topic:
        found["topicConfigTable"] = {name: topic_json(it) for name, it in sorted(topics.items())}
    if not options.topic:
        table = {name: group_json(it) for name, it in sorted(groups.items())}
        found["subscriptionGroupTable"] = table
    name = "metadata.json"
    if options.topic:
        name = "topic.json"
    elif options.subscriptionGroup:
        name = "subscriptionGroup.json"
    return _written(options.filePath, name, found)


async def export_configs(admin: Admin, options: argparse.Namespace) -> int:
    """Write which servers there are, and the settings of masters that matter for a move."""
    known = (await admin.brokers.cluster()).brokers
    settings: dict[str, object] = {}
    slaves = 0
    for name, address in (await targets(admin, options)).items():
        found = await admin.brokers.config(address)
        settings[name] = {key: found[key] for key in _SETTINGS if key in found}
        slaves += len(known[name].addresses) - 1
    scale = {
        "masterBrokerSize": len(settings),
        "namesrvSize": len(admin.name_servers.addresses),
        "slaveBrokerSize": slaves,
    }
    report = {"brokerConfigs": settings, "clusterScale": scale}
    return _written(options.filePath, "configs.json", report)


async def export_metrics(admin: Admin, options: argparse.Namespace) -> int:
    """Write rates, totals of a day, sizes and versions of each master, and their sums."""
    reports: dict[str, object] = {}
    tps = {f"total{name}": 0.0 for name in _TPS}
    days = dict.fromkeys(_DAY, 0)
    for name, address in (await targets(admin, options)).items():
        runtime, settings = (
            await admin.brokers.runtime(address),
            await admin.brokers.config(address),
        )
        groups = await _groups(admin, name)
        half = await _statistics(admin, address, names.TRANS_HALF_TOPIC)
        delayed = await _statistics(admin, address, names.SCHEDULE_TOPIC)
        rates = dict(
            zip(
                _TPS,
                (
                    _first(runtime, "putTps"),
                    _first(runtime, "getTransferredTps"),
                    half["statsMinute"].tps if half else 0.0,
                    delayed["statsMinute"].tps if delayed else 0.0,
                ),
                strict=True,
            )
        )
        counts = (_yesterday(runtime, "Put"), _yesterday(runtime, "Get"), day(half), day(delayed))
        totals = dict(zip(_DAY, counts, strict=True))
        for key, rate in rates.items():
            tps[f"total{key}"] += rate
        for key, count in totals.items():
            days[key] += count
        reports[name] = {
            "runtimeEnv": {
                "cpuNum": settings.get("clientCallbackExecutorThreads"),
                "totalMemKBytes": runtime.get("totalMemKBytes"),
            },
            "runtimeQuota": {
                "diskRatio": {
                    key: runtime.get(key) for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")
                },
                "groupSize": len(groups),
                "messageAverageSize": runtime.get("putMessageAverageSize"),
                "oneDayNum": totals,
                "topicSize": len(await _topics(admin, address, special=False)),
                "tps": {key[0].lower() + key[1:]: rate for key, rate in rates.items()},
            },
            "runtimeVersion": {
                "clientInfo": sorted(await _clients(admin, groups)),
                "rocketmqVersion": describe(V5_5_0),
            },
        }
    total = {"totalOneDayNum": days, "totalTps": tps}
    report = {"evaluateReport": reports, "totalData": total}
    return _written(options.filePath, "metrics.json", report)


async def export_pop_record(admin: Admin, options: argparse.Namespace) -> int:
    """Have brokers move records of pops to files; one that keeps them there does nothing."""
    # As the tool reads it: only the word `false` makes it a dry run.
    dry = (options.dryRun or "").strip().lower() == "false"
    for name, address in (await targets(admin, options)).items():
        if not dry:
            await admin.brokers.move_pop_records(address)
        output.line(
            f"Export broker records, brokerName={name}, brokerAddr={address},"
            f" dryRun={java_bool(dry)}"
        )
    return 0


# --- what is written -----------------------------------------------------------------------------


async def _topics(admin: Admin, address: str, *, special: bool) -> dict[str, TopicConfig]:
    """Return the topics of users on a broker; with `special` those of retries as well."""
    hidden = await admin.topics.system()
    return {
        name: it
        for name, it in (await admin.topics.table(address)).items()
        if name not in hidden
        and not names.is_system_topic(name)
        and (special or not (names.is_retry(name) or names.is_dlq(name)))
        and 0 <= it.perm <= READ_WRITE
    }


async def _groups(admin: Admin, broker: str) -> dict[str, SubscriptionGroupConfig]:
    return {
        name: it
        for name, it in (await admin.groups.table(broker)).items()
        if not names.is_system_group(name) and name not in names.PREDEFINED_GROUPS
    }


def _joined_topic(one: TopicConfig | None, other: TopicConfig) -> TopicConfig:
    """Return a topic of several brokers with the queues of all of them."""
    if one is None:
        return other
    return dataclasses.replace(
        other,
        read_queues=one.read_queues + other.read_queues,
        write_queues=one.write_queues + other.write_queues,
    )


def _joined_group(
    one: SubscriptionGroupConfig | None, other: SubscriptionGroupConfig
) -> SubscriptionGroupConfig:
    if one is None:
        return other
    return dataclasses.replace(other, retry_queues=one.retry_queues + other.retry_queues)


async def _statistics(
    admin: Admin, address: str, topic: str
) -> Mapping[str, BrokerStatsItem] | None:
    """Return what a broker has counted of sends to a topic; None where it counts nothing."""
    try:
        return await admin.brokers.statistics(address, "TOPIC_PUT_NUMS", topic)
    except Refused:
        return None


def day(found: Mapping[str, BrokerStatsItem] | None) -> int:
    """Return the sum of the longest span that has one: a day, an hour or a minute."""
    if found is None:
        return 0
    sums = (found[name].total for name in ("statsDay", "statsHour", "statsMinute"))
    return next((it for it in sums if it), 0)


async def _clients(admin: Admin, groups: Mapping[str, object]) -> set[str]:
    """Return language and version of every consumer that is online."""
    found: set[str] = set()
    for group in groups:
        online = await admin.groups.connection(group)
        if online is not None:
            found |= {f"{it.language}%{describe(it.version)}" for it in online.connections}
    return found


def _first(runtime: Mapping[str, str], key: str) -> float:
    return float((runtime.get(key) or "0").split()[0])


def _yesterday(runtime: Mapping[str, str], way: str) -> int:
    late, early = f"msg{way}TotalTodayMorning", f"msg{way}TotalYesterdayMorning"
    return int(runtime.get(late) or 0) - int(runtime.get(early) or 0)


def _written(folder: str | None, name: str, report: Mapping[str, object]) -> int:
    path = Path((folder or FOLDER).strip()) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pretty(dict(report)))
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(path)[:200]!r} cannot be written: {error}") from error
    output.line(f"export {path} success")
    return 0
