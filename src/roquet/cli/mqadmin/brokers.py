"""Brokers and name servers, as RocketMQ's tool shows and changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import NotFound, RoquetError
from roquet.cli import output
from roquet.cli.exits import EXIT_LEFT_OUT
from roquet.cli.mqadmin.shared import targets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from roquet.admin import Admin

_HOUR_MS = 3_600_000


async def cluster_list(admin: Admin, options: argparse.Namespace) -> int:
    """List clusters and brokers, with -m their totals."""
    known = (await admin.brokers.cluster()).brokers
    if options.clusterName is not None and not any(
        it.cluster == options.clusterName for it in known.values()
    ):
        raise NotFound(f"there is no cluster {options.clusterName[:80]!r}")
    rows = [
        (data.cluster, name, number, address)
        for name, data in sorted(known.items())
        for number, address in sorted(data.addresses.items())
        if options.clusterName in (None, data.cluster)
    ]
    head = _TOTALS_HEAD if options.moreStats else _RATES_HEAD
    output.line(head)
    silent = False
    for cluster, name, number, address in sorted(rows):
        try:
            found = await admin.brokers.runtime(address)
        except RoquetError as error:
            silent = True
            output.error(str(error))
            found = {}
        if options.moreStats:
            output.line(_totals(cluster, name, found))
        else:
            output.line(_rates((cluster, name, number, address), found))
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
    """Change one setting of brokers."""
    for address in (await targets(admin, options)).values():
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
