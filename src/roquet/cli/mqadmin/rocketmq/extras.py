"""Containers, limits of cold reads and RocksDB of RocketMQ's brokers, as its tool has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin import RocksDbTable
from roquet.admin.rocketmq.extras import CHECK_FAILED
from roquet.base.clock import SystemClock
from roquet.base.errors import NotFound, UsageError
from roquet.cli import output
from roquet.cli.exits import EXIT_REFUSED
from roquet.cli.mqadmin.shared import java_time, moment, number, pretty, targets
from roquet.protocol.bodies import fields
from roquet.protocol.fastjson_reader import is_object

if TYPE_CHECKING:
    import argparse

    from roquet.admin import Admin
    from roquet.protocol.bodies.fields import Json

_DAY_MS = 86_400_000
_CHECKED_DAYS = 30


async def add_broker(admin: Admin, options: argparse.Namespace) -> int:
    """Have a container start a broker."""
    container = options.brokerContainerAddr.strip()
    await admin.rocketmq.start_broker(container, options.brokerConfigPath.strip())
    output.line(f"add broker to {container} success")
    return 0


async def remove_broker(admin: Admin, options: argparse.Namespace) -> int:
    """Have a container stop a broker."""
    container, parts = options.brokerContainerAddr.strip(), options.brokerIdentity.split(":")
    if len(parts) != 3:
        raise UsageError(f"-b {options.brokerIdentity[:80]!r} should be cluster:broker:id")
    cluster, broker, place = (it.strip() for it in parts)
    await admin.rocketmq.stop_broker(container, cluster, broker, number(place, "-b", 0))
    output.line(f"remove broker from {container} success")
    return 0


async def get_cold_reads(admin: Admin, options: argparse.Namespace) -> int:
    """Print limits and counters of cold reads."""
    for address, title in (await _titled(admin, options)).items():
        found = await admin.rocketmq.cold_reads(address)
        output.line(title)
        if found is None:
            output.line(f"Broker[{address}] has no cold ctr table !")
        else:
            output.line(pretty(with_times(found)))
    return 0


async def _titled(admin: Admin, options: argparse.Namespace) -> dict[str, str]:
    """Return the addresses that `-b` or `-c` names, each with its headline."""
    if options.brokerAddr is not None:
        chosen = (await targets(admin, options)).values()
        return {address: f" ============{address}============" for address in chosen}
    titles: dict[str, str] = {}
    masters = await targets(admin, options)
    known = (await admin.brokers.cluster()).brokers
    for name, master in masters.items():
        titles[master] = f" ============Master: {master}============"
        for _, slave in sorted(known[name].addresses.items()):
            if slave != master:
                titles[slave] = f" ============My Master: {master}=====Slave: {slave}============"
    return titles


def with_times(found: Json) -> Json:
    """Return cold reads with times in place of milliseconds, fit for a terminal."""
    rows = fields.obj(found, "runtimeTable")
    timed = found | {"runtimeTable": {name: _row(fields.obj(rows, name)) for name in rows}}
    return fields.as_object(_plain(timed), "cold reads")


def _plain(value: object) -> object:
    """Return a value of JSON without texts that a terminal would obey."""
    if is_object(value):
        return {output.plain(name): _plain(it) for name, it in value.items()}
    return output.plain(value) if isinstance(value, str) else value


def _row(source: Json) -> Json:
    row = dict(source)
    for name in ("lastColdRead", "create"):
        at = fields.i64(row, f"{name}TimeMills")
        row.pop(f"{name}TimeMills", None)
        row[f"{name}TimeFormat"] = java_time(at, millis=False)
    return row


async def update_cold_reads(admin: Admin, options: argparse.Namespace) -> int:
    """Set the limit of a group's cold reads."""
    group, limit = options.consumerGroup.strip(), number(options.threshold.strip(), "-v", 0)
    for address in (await targets(admin, options)).values():
        await admin.rocketmq.limit_cold_reads(address, {group: limit})
        output.line(f"updateColdDataFlowCtrGroupConfig success, {address}")
    return 0


async def remove_cold_reads(admin: Admin, options: argparse.Namespace) -> int:
    """Take the limit of a group's cold reads away."""
    for address in (await targets(admin, options)).values():
        await admin.rocketmq.unlimit_cold_reads(address, options.consumerGroup.strip())
        output.line(f"remove broker cold read threshold success, {address}")
    return 0


async def set_read_ahead(admin: Admin, options: argparse.Namespace) -> int:
    """Have the kernel read ahead in files of the log, or not."""
    mode = options.commitLogReadAheadMode.strip()
    if mode not in ("0", "1"):
        raise UsageError(f"-m {mode[:40]!r} is neither 0, the default, nor 1, random reads")
    for address, title in (await _titled(admin, options)).items():
        said = await admin.rocketmq.set_read_ahead(address, random=mode == "1")
        output.line(title)
        shown = "null" if said is None else output.plain(said)
        output.line(f"commitLog set readAhead mode rstStr{shown}")
    return 0


async def switch_timer_engine(admin: Admin, options: argparse.Namespace) -> int:
    """Have timer messages kept in RocksDB, or in files."""
    engine = options.engineType.strip()
    if engine not in ("R", "F"):
        raise UsageError(f"-e {engine[:40]!r} is neither R, RocksDB, nor F, files")
    named = "ROCKSDB_TIMELINE" if engine == "R" else "FILE_TIME_WHEEL"
    for address in (await targets(admin, options)).values():
        await admin.rocketmq.switch_timer_engine(address, rocksdb=engine == "R")
        output.line(f"switchTimerEngine to {named} success, {address}")
    return 0


async def check_queues(admin: Admin, options: argparse.Namespace) -> int:
    """Have the brokers of a cluster compare queues in RocksDB with those in files."""
    since = SystemClock().now_ms() - _CHECKED_DAYS * _DAY_MS
    since, topic = moment(options.checkFrom, "-cf", since), (options.topic or "").strip()
    code = 0
    for name, address in (await targets(admin, options)).items():
        status, said = await admin.rocketmq.check_rocksdb_queues(address, topic, since)
        if status == CHECK_FAILED:
            told = output.plain(str(said))
            output.line(f"{name} check error, please check log... errInfo: {told}")
            code = EXIT_REFUSED
        else:
            output.line(f"{name} check doing, please wait and get the result from log...")
    return code


async def export_rocksdb(admin: Admin, options: argparse.Namespace) -> int:
    """Have brokers write tables from RocksDB to the JSON files of their configuration."""
    tables = _tables(options.configType)
    for flag, given in (("-p", options.configPath), ("-e", options.exportFile)):
        if given is not None:
            raise UsageError(f"{flag}: files of RocksDB are not read here; give -c or -b")
    if options.jsonEnable is not None:
        raise UsageError("-j belongs to -p, and files of RocksDB are not read here")
    whom = "call broker" if options.brokerAddr is not None else "call all brokers in cluster"
    chosen = await targets(admin, options)
    output.line(f"Use [rpc mode] {whom} to export to json file")
    for address in chosen.values():
        await admin.rocketmq.export_rocksdb(address, tables)
    output.line("broker export done.")
    return 0


def _tables(text: str | None) -> list[RocksDbTable]:
    if text is None:
        return list(RocksDbTable)
    known = {it.lower(): it for it in RocksDbTable}
    wanted = [it.strip().lower() for it in text.split(";") if it.strip()]
    if not wanted or not set(wanted) <= set(known):
        raise NotFound(f"-t {text[:80]!r} should be of {', '.join(RocksDbTable)}")
    return [known[it] for it in wanted]
