"""Brokers and name servers, as RocketMQ's tool shows and changes them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import NotFound, RoquetError, Unreachable, UsageError
from roquet.cli import output
from roquet.cli.exits import EXIT_LEFT_OUT
from roquet.cli.mqadmin.shared import addresses_in, java_time, number, repeated, targets, truth

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from roquet.admin import Admin
    from roquet.protocol.bodies.replication import HaStatusBody

_HOUR_MS = 3_600_000


async def cluster_list(admin: Admin, options: argparse.Namespace) -> int:
    """List clusters and brokers, with -m their totals; with -i again and again."""
    return await repeated(options.interval, 1, lambda: _clusters(admin, options))


async def _clusters(admin: Admin, options: argparse.Namespace) -> int:
    known = (await admin.brokers.cluster()).brokers
    if options.clusterName is not None and not any(
        it.cluster == options.clusterName for it in known.values()
    ):
        raise NotFound(f"there is no cluster {options.clusterName[:80]!r}")
    rows = [
        (data.cluster, name, place, address)
        for name, data in sorted(known.items())
        for place, address in sorted(data.addresses.items())
        if options.clusterName in (None, data.cluster)
    ]
    head = _TOTALS_HEAD if options.moreStats else _RATES_HEAD
    output.line(head)
    silent = False
    for cluster, name, place, address in sorted(rows):
        try:
            found = await admin.brokers.runtime(address)
        except RoquetError as error:
            silent = True
            output.error(str(error))
            found = {}
        if options.moreStats:
            output.line(_totals(cluster, name, found))
        else:
            output.line(_rates((cluster, name, place, address), found))
    return EXIT_LEFT_OUT if silent else 0


_TOTALS = "{:<16}  {:<32} {:>14} {:>14} {:>14} {:>14}"
_TOTALS_HEAD = _TOTALS.format(
    "#Cluster Name",
    "#Broker Name",
    "#InTotalYest",
    "#OutTotalYest",
    "#InTotalToday",
    "#OutTotalToday",
)
_RATES = (
    "{:<22}  {:<22}  {:<4}  {:<22} {:<16}  {:>16}  {:>30}  {:<22}  {:>11}  {:<12}  {:<8}  {:>10}"
)
_RATES_HEAD = _RATES.format(
    "#Cluster Name",
    "#Broker Name",
    "#BID",
    "#Addr",
    "#Version",
    "#InTPS(LOAD)",
    "#OutTPS(LOAD)",
    "#Timer(Progress)",
    "#PCWait(ms)",
    "#Hour",
    "#SPACE",
    "#ACTIVATED",
)


def _totals(cluster: str, name: str, found: Mapping[str, str]) -> str:
    def count(key: str) -> int:
        return int(found.get(key) or 0)

    sums = [
        count(f"msg{way}Total{late}") - count(f"msg{way}Total{early}")
        for late, early in (
            ("TodayMorning", "YesterdayMorning"),
            ("TodayNow", "TodayMorning"),
        )
        for way in ("Put", "Get")
    ]
    return _TOTALS.format(cluster, name, *sums)


def _rates(place: tuple[str, str, int, str], found: Mapping[str, str]) -> str:
    def first(key: str) -> float:
        return float((found.get(key) or "0").split()[0])

    def load(lane: str) -> str:
        size = found.get(f"{lane}ThreadPoolQueueSize", "")
        return f"{size},{found.get(f'{lane}ThreadPoolQueueHeadWaitTimeMills', '')}ms"

    earliest = int(found.get("earliestMessageTimeStamp") or 0)
    hours = (SystemClock().now_ms() - earliest) / _HOUR_MS if earliest > 0 else 0.0
    timer = (
        f"{int(first('timerReadBehind'))}-{int(first('timerOffsetBehind'))}"
        f"({int(first('timerCongestNum')) / 10_000:.1f}w, {first('timerEnqueueTps'):.1f},"
        f" {first('timerDequeueTps'):.1f})"
    )
    return _RATES.format(
        *place,
        found.get("brokerVersionDesc", ""),
        f"{first('putTps'):9.2f}({load('send')})",
        f"{first('getTransferredTps'):9.2f}({load('pull')}|{load('ack')})",
        timer,
        found.get("pageCacheLockTimeMills", ""),
        f"{hours:.2f}",
        f"{first('commitLogDiskRatio'):.4f}",
        found.get("brokerActive", "false"),
    ).rstrip()


async def broker_status(admin: Admin, options: argparse.Namespace) -> int:
    """Print what brokers say of themselves."""
    for address in (await targets(admin, options)).values():
        for key, value in sorted((await admin.brokers.runtime(address)).items()):
            named = f"{address:<24} " if options.clusterName else ""
            output.line(f"{named}{key:<32}: {output.plain(value)}")
    return 0


async def get_broker_config(admin: Admin, options: argparse.Namespace) -> int:
    """Print the settings of brokers."""
    for address in (await targets(admin, options)).values():
        settings(address, await admin.brokers.config(address))
    return 0


def settings(address: str, found: Mapping[str, str]) -> None:
    """Print settings as the tool does."""
    output.line(f"============{address}============")
    for key, value in sorted(found.items()):
        output.line(f"{key:<50}=  {output.plain(value)}")
    output.line("")


async def update_broker_config(admin: Admin, options: argparse.Namespace) -> int:
    """Change one setting of brokers; with -a and -c of slaves, too."""
    everyone = options.updateAllBroker is not None and options.brokerAddr is None
    chosen = (await targets(admin, options)).values()
    for address in await addresses_in(admin, options.clusterName) if everyone else chosen:
        await admin.brokers.set_config(address, {options.key.strip(): options.value.strip()})
        output.line(f"update broker config success, {address}")
    return 0


async def clean_expired_cq(admin: Admin, options: argparse.Namespace) -> int:
    """Have queue files without messages deleted."""
    for address in await _all_or_named(admin, options):
        await admin.brokers.clean_queues(address)
    output.line("success")
    return 0


async def clean_unused_topic(admin: Admin, options: argparse.Namespace) -> int:
    """Have queues of topics that are gone deleted."""
    for address in await _all_or_named(admin, options):
        await admin.brokers.clean_topics(address)
    output.line("success")
    return 0


async def delete_expired_commit_log(admin: Admin, options: argparse.Namespace) -> int:
    """Have expired files of the log deleted."""
    for address in await _all_or_named(admin, options):
        await admin.brokers.delete_expired(address)
    output.line("success")
    return 0


async def _all_or_named(admin: Admin, options: argparse.Namespace) -> list[str]:
    if options.brokerAddr is None and options.cluster is None:
        known = (await admin.brokers.cluster()).brokers.values()
        return [it.master for it in known if it.master is not None]
    return list((await targets(admin, options)).values())


async def get_namesrv_config(admin: Admin, options: argparse.Namespace) -> int:
    """Print the settings of name servers."""
    del options
    for address, found in (await admin.name_servers.config()).items():
        settings(address, found)
    return 0


async def update_namesrv_config(admin: Admin, options: argparse.Namespace) -> int:
    """Change one setting of every name server."""
    await admin.name_servers.set_config({options.key.strip(): options.value.strip()})
    where = ", ".join(admin.name_servers.addresses)
    output.line(f"update name server config success![{where}]")
    output.line(f"{options.key.strip()} : {options.value.strip()}")
    return 0


async def update_kv_config(admin: Admin, options: argparse.Namespace) -> int:
    """Write a value of the name servers' table."""
    await admin.name_servers.put(options.namespace, options.key, options.value)
    output.line("create or update kv config to namespace success.")
    return 0


async def delete_kv_config(admin: Admin, options: argparse.Namespace) -> int:
    """Delete a value of the name servers' table."""
    await admin.name_servers.delete(options.namespace, options.key)
    output.line("delete kv config from namespace success.")
    return 0


async def wipe_write_perm(admin: Admin, options: argparse.Namespace) -> int:
    """Have producers leave a broker."""
    count = await admin.brokers.drain(options.brokerName)
    for address in admin.name_servers.addresses:
        output.line(
            f"wipe write perm of broker[{options.brokerName}] in name server[{address}] OK, {count}"
        )
    return 0


async def add_write_perm(admin: Admin, options: argparse.Namespace) -> int:
    """Have producers come back to a broker."""
    count = await admin.brokers.undrain(options.brokerName)
    for address in admin.name_servers.addresses:
        output.line(
            f"add write perm of broker[{options.brokerName}] in name server[{address}] OK, {count}"
        )
    return 0


async def producer(admin: Admin, options: argparse.Namespace) -> int:
    """Print every producer that is connected to a broker."""
    for group, found in sorted((await admin.brokers.producers(options.broker.strip())).items()):
        if not found:
            output.line(f"producer group ({group}) instances are empty")
        for it in found:
            output.line(
                f"producer group ({output.plain(group)}) instance :"
                f" clientId={output.plain(it.client_id)},remoteIP={it.remote_ip},"
                f" language={it.language}, version={it.version},"
                f" lastUpdateTimestamp={it.last_update}"
            )
    return 0


async def reset_master_flush_offset(admin: Admin, options: argparse.Namespace) -> int:
    """Have a slave believe that its master is durable up to an offset."""
    if options.brokerAddr is None or options.offset is None:
        raise UsageError("give -b and -o")
    offset = number(options.offset, "-o", 0)
    await admin.brokers.set_master_flushed(options.brokerAddr.strip(), offset)
    output.line(f"reset master flush offset to {offset} success")
    return 0


_LAG = "{:<64}  {:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20}  {}"


async def broker_consume_stats(admin: Admin, options: argparse.Namespace) -> int:
    """Print how far every group of a broker is in each of its queues."""
    level = number(options.level, "-l", 0)
    limit_s = number(options.timeoutMillis, "-t", 50_000) / 1000
    ordered = truth(options.order, default=False)
    try:
        async with asyncio.timeout(limit_s):
            found = await admin.brokers.consume_stats(options.brokerAddr.strip(), ordered=ordered)
    except TimeoutError:
        raise Unreachable(f"no answer within {limit_s:g} s, see -t") from None
    head = ("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
    output.line(_LAG.format(*head, "#Diff", "#LastTime"))
    for group, topics in found.groups:
        for queue, at in sorted((queue, at) for it in topics for queue, at in it.offsets.items()):
            diff = at.broker_offset - at.consumer_offset
            if diff < level or at.last_timestamp <= 0:
                continue
            last = java_time(at.last_timestamp, millis=False)
            place = (queue.topic[:64], group, queue.broker_name[:32], queue.queue_id)
            output.line(_LAG.format(*place, at.broker_offset, at.consumer_offset, diff, last))
    output.line(f"\nDiff Total: {found.total_diff}")
    return 0


async def ha_status(admin: Admin, options: argparse.Namespace) -> int:
    """Print how far slaves have copied, or a slave its master; with -i again and again."""
    return await repeated(options.interval, 3, lambda: _replication(admin, options))


async def _replication(admin: Admin, options: argparse.Namespace) -> int:
    for address in (await targets(admin, options)).values():
        _ha(address, await admin.brokers.ha_status(address))
    return 0


def _ha(address: str, found: HaStatusBody) -> None:
    if not found.is_master:
        follow = found.follow
        output.line(f"\n#MasterAddr\t{follow.master_address or 'null'}")
        output.line(f"#CommitLogMaxOffset\t{follow.max_offset}")
        output.line(f"#TransferSpeed(KB/s)\t{follow.bytes_per_second / 1024:.2f}")
        output.line(f"#LastReadTime\t{java_time(follow.last_read_ms, millis=True)}")
        output.line(f"#LastWriteTime\t{java_time(follow.last_write_ms, millis=True)}")
        output.line(f"#MasterFlushOffset\t{follow.master_flush_offset}")
        return
    output.line(f"\n#MasterAddr\t{address}\n#MasterCommitLogMaxOffset\t{found.max_offset}")
    output.line(f"#SlaveNum\t{len(found.slaves)}\n#InSyncSlaveNum\t{found.in_sync}")
    output.line(
        f"{'#SlaveAddr':<32}  {'#SlaveAckOffset':<16} {'#Diff':>16} {'#TransferSpeed(KB/s)':>16}"
        f" {'#Status':>16} {'#TransferFromWhere':>16}"
    )
    for it in found.slaves:
        state = "OK" if it.in_sync else "Fall Behind"
        output.line(
            f"{it.address:<32}  {it.acked:<16} {it.behind:>16} {it.bytes_per_second / 1024:>16.2f}"
            f" {state:>16} {it.position:>16}"
        )
