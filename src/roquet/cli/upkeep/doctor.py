"""`roquet doctor`: whether this machine is ready for a broker, and what to change if not."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import os
import platform
import resource
import shutil
import socket
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.auth.keeping.store import NAME, AuthFile
from roquet.base.clock import SystemClock
from roquet.base.errors import Refused, RoquetError
from roquet.cli.output import json_line, line, table
from roquet.protocol.codes import ResponseCode
from roquet.remoting.connections.native import threads_here
from roquet.service.process.listening import cannot_listen
from roquet.store.marks import diverged
from roquet.store.marks.format import StoreFormat
from roquet.store.upkeep.repair import refuse_if_used

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from roquet.broker.config import BrokerConfig
    from roquet.client.sync import Admin

OPEN_FILES_MIN = 65_536
MAPS_MIN = 65_530
FREE_PERCENT_MIN = 15
_GIBIBYTE = 1 << 30
_TABLES_ROOM = 16 << 20
"""Bytes that must be free for a start over a store that has its log already."""
_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
_NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs")
_EPOCH_2024_S = 1_704_067_200
_SAME_WORDS = "mend it: a start ends with the same words"


class Verdict(enum.StrEnum):
    """How a look ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """One thing looked at: what is there, and what to do about it."""

    verdict: Verdict
    about: str
    found: str
    helps: str = ""


def run_doctor(options: argparse.Namespace) -> int:
    """Print every look; 1 when something stands in the way of a start.

    Raises UsageError for settings that a start refuses.
    """
    looks = list(_looks(options))
    if options.as_json:
        for it in looks:
            json_line(dataclasses.asdict(it))
    else:
        table(["", "about", "found"], [[it.verdict, it.about, it.found] for it in looks])
        for it in looks:
            if it.helps:
                line(f"→ {it.about}: {it.helps}")
    return 1 if any(it.verdict is Verdict.FAIL for it in looks) else 0


def _looks(options: argparse.Namespace) -> Iterator[Look]:
    from roquet.broker.config import load_config  # noqa: PLC0415
    from roquet.cli.servers.serve import settings_of  # noqa: PLC0415

    flags = {"namesrv-addr": options.namesrv_addr, **settings_of(options.set)}
    config, report = load_config(options.config, os.environ, flags)
    for text in report.lines():
        yield Look(Verdict.WARN, "settings", text)
    yield from examine(config)


def examine(config: BrokerConfig) -> Iterator[Look]:
    """Look at everything that has stopped a broker before."""
    yield _versions()
    yield _threads(config.server.io_threads)
    yield _open_files()
    yield _maps()
    yield _clock()
    yield from _disk(config)
    yield from _copy(config)
    yield from _start(config)
    yield from _ports(config)
    yield _advertised(config)
    yield from _name_servers(config)


def _start(config: BrokerConfig) -> Iterator[Look]:
    """Do what a start does before it binds a port: build all parts, read all files."""
    from roquet.broker.app import build  # noqa: PLC0415
    from roquet.broker.wiring.base import make_accounts  # noqa: PLC0415
    from roquet.remoting.tls import ServerTls, client_tls  # noqa: PLC0415

    clock = SystemClock()
    folder = config.store.folder

    def certificates() -> str:
        tls = ServerTls(config.tls, clock)
        asyncio.run(tls.start())
        own = client_tls(config.tls.options(), clock)
        if own is not None:
            own.context()
        return f"ports: {'TLS' if tls.is_on else 'plain'}, own calls: {'TLS' if own else 'plain'}"

    def accounts() -> str:
        files = make_accounts(config, clock)
        if files is None:
            return "none: aclEnable is false"
        asyncio.run(files.start())
        return f"{len(files.table.accounts)} in {files.main}"

    def tables() -> str:
        StoreFormat(folder, "").check()
        refuse_if_used(folder)
        broker.metadata.load()
        return "can be read"

    try:
        broker = build(config)
    except (RoquetError, OSError) as error:
        yield Look(Verdict.FAIL, "parts", str(error), _SAME_WORDS)
        return
    yield Look(Verdict.OK, "parts", "fit together")
    yield _tried("TLS", certificates)
    yield _tried("accounts", accounts)
    yield _users(config)
    yield _tried("tables", tables)


def _users(config: BrokerConfig) -> Look:
    """Read users and policies of 5.x, as a start does; name those that it would not see."""
    about = "users"
    if not config.auth.enabled:
        return Look(Verdict.OK, about, "none: authenticationEnabled is false")
    file = AuthFile(config.store.config_folder / NAME)
    try:
        found = file.load()
    except (RoquetError, OSError) as error:
        return Look(Verdict.FAIL, about, str(error), _SAME_WORDS)
    if found is None and file.unread is not None:
        text = f"{file.unread} has users of RocketMQ that cannot be read here"
        return Look(Verdict.WARN, about, text, "bring them by roquet auth import, before it ends")
    return Look(Verdict.OK, about, f"{0 if found is None else len(found.users)} in {file.path}")


def _tried(about: str, look: Callable[[], str]) -> Look:
    try:
        return Look(Verdict.OK, about, look())
    except (RoquetError, OSError) as error:
        return Look(Verdict.FAIL, about, str(error), _SAME_WORDS)


def _versions() -> Look:
    try:
        loop = f"uvloop {metadata.version('uvloop')}"
    except metadata.PackageNotFoundError:
        loop = "asyncio's own loop"
    found = f"Python {platform.python_version()}, {loop}"
    if loop.startswith("uvloop"):
        return Look(Verdict.OK, "versions", found)
    return Look(Verdict.WARN, "versions", found, "pip install uvloop: it needs half the CPU")


def _threads(wanted: int) -> Look:
    about, loop = "connections", "one event loop serves them"
    cores = os.cpu_count() or 1
    if not wanted:
        return Look(Verdict.OK, about, loop)
    if threads_here(wanted) < wanted:
        return Look(Verdict.WARN, about, f"{loop}: no epoll here", "ioThreads=0 says so as well")
    found = f"threads for them: {wanted}, cores: {cores}"
    if wanted <= cores:
        return Look(Verdict.OK, about, found)
    return Look(Verdict.WARN, about, found, f"ioThreads={cores}: more take turns on the cores")


def _open_files() -> Look:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES_MIN:
        return Look(Verdict.OK, "open files", f"up to {hard}")
    helps = f"LimitNOFILE={OPEN_FILES_MIN} in the systemd unit, or ulimit -n {OPEN_FILES_MIN}"
    return Look(Verdict.WARN, "open files", f"up to {hard}", helps)


def _maps() -> Look:
    path = Path("/proc/sys/vm/max_map_count")
    if not path.exists():
        return Look(Verdict.OK, "memory maps", "no limit known here")
    count = int(path.read_text())
    if count >= MAPS_MIN:
        return Look(Verdict.OK, "memory maps", f"up to {count}")
    helps = f"sysctl -w vm.max_map_count={MAPS_MIN}"
    return Look(Verdict.WARN, "memory maps", f"up to {count}", helps)


def _clock() -> Look:
    now_s = time.clock_gettime(time.CLOCK_REALTIME)
    shown = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now_s))
    if now_s < _EPOCH_2024_S:
        return Look(Verdict.FAIL, "clock", shown, "it is years behind: set it, and run NTP")
    return Look(Verdict.OK, "clock", shown)


def _disk(config: BrokerConfig) -> Iterator[Look]:
    folder = config.store.folder
    place = _existing(folder)
    if not os.access(place, os.W_OK):
        user = os.geteuid()
        yield Look(
            Verdict.FAIL,
            "store",
            f"{place} is not writable",
            f"chown it to user {user}, or choose another storePathRootDir",
        )
        return
    usage = shutil.disk_usage(place)
    free = 100 * usage.free // usage.total
    found = f"{folder}: {usage.free / _GIBIBYTE:.1f} GiB free, {free} %"
    file_bytes = config.store.commit_log_file_bytes
    logs = (config.store.commit_log or f"{folder}/commitlog").split(",")
    has_log = any(any(Path(it.strip()).glob("*")) for it in logs)
    if usage.free < (_TABLES_ROOM if has_log else 2 * file_bytes):
        needed = f"a broker begins with two log files, {2 * file_bytes / _GIBIBYTE:.1f} GiB"
        helps = "a start writes tables and queues: free some space" if has_log else needed
        yield Look(Verdict.FAIL, "disk", found, helps)
    elif has_log and usage.free < file_bytes:
        helps = f"no room for the next log file, {file_bytes / _GIBIBYTE:.1f} GiB: sends end then"
        yield Look(Verdict.WARN, "disk", found, helps)
    elif free < FREE_PERCENT_MIN:
        helps = "old files are deleted early from 75 % on, sends refused from 90 % on"
        yield Look(Verdict.WARN, "disk", found, helps)
    else:
        yield Look(Verdict.OK, "disk", found)
    kind = _file_system(place)
    if kind in _MEMORY_FILE_SYSTEMS:
        yield Look(Verdict.WARN, "file system", kind, "messages are gone after a restart")
    elif kind in _NETWORK_FILE_SYSTEMS:
        yield Look(Verdict.WARN, "file system", kind, "locks and syncs may lie: use a local disk")
    else:
        yield Look(Verdict.OK, "file system", kind)


def _copy(config: BrokerConfig) -> Iterator[Look]:
    if not config.identity.is_slave:
        return
    folder = config.store.folder
    why = diverged.read(folder)
    if why is None:
        yield Look(Verdict.OK, "copy of the master", "nothing speaks against it")
    else:
        yield Look(Verdict.FAIL, "copy of the master", why, diverged.remedy(folder))


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _file_system(path: Path) -> str:
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    best, kind = "", "unknown"
    where = str(path.resolve())
    for row in mounts.read_text().splitlines():
        _, at, found, *_ = row.split()
        within = where == at or where.startswith(at.rstrip("/") + "/")
        if within and len(at) >= len(best):
            best, kind = at, found
    return kind


def _ports(config: BrokerConfig) -> Iterator[Look]:
    server = config.server
    host = server.bind_address or "127.0.0.1"
    wanted = [("port", server.port, "listenPort"), ("fast port", server.port - 2, "listenPort")]
    if not config.identity.is_slave:
        above = server.port + 1 if server.port else 0
        wanted.append(("port for slaves", server.ha_port or above, "haListenPort"))
    if server.metrics == "PROM":
        wanted.append(("metrics port", server.metrics_port, "metricsPromExporterPort"))
    taken: dict[int, str] = {}
    for about, number, key in wanted:
        if number <= 0:
            continue
        if number in taken:
            helps = f"set {key} to a port of its own"
            found = f"{host}:{number} is the {taken[number]} already"
            yield Look(Verdict.FAIL, about, found, helps)
            continue
        taken[number] = about
        yield _port(about, host, number, key)


def _port(about: str, host: str, number: int, key: str) -> Look:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, number))
        except OSError as error:
            found = str(cannot_listen(f"{host}:{number}", error))
            return Look(Verdict.FAIL, about, found, f"{_SAME_WORDS}; the setting is {key}")
    return Look(Verdict.OK, about, f"{host}:{number} is free")


def _advertised(config: BrokerConfig) -> Look:
    told = config.identity.ip1
    bind = config.server.bind_address
    if told is None or told.startswith("127.") or told == "::1":
        if bind in (None, "127.0.0.1", "::1", "localhost"):
            return Look(
                Verdict.OK, "address for clients", f"{told or '127.0.0.1'}: this machine only"
            )
        helps = "brokerIP1=ADDRESS: clients elsewhere are told this one and cannot reach it"
        return Look(Verdict.WARN, "address for clients", f"{told}", helps)
    with socket.socket() as trial:
        try:
            trial.bind((told, 0))
        except OSError:
            helps = "right behind an address translation, wrong otherwise: check brokerIP1"
            return Look(
                Verdict.WARN, "address for clients", f"{told} is not of this machine", helps
            )
    return Look(Verdict.OK, "address for clients", told)


def _name_servers(config: BrokerConfig) -> Iterator[Look]:
    from roquet.client import sync  # noqa: PLC0415

    given = config.registration.name_servers
    if not given:
        helps = "namesrvAddr=HOST:9876, so that clients find this broker"
        yield Look(Verdict.WARN, "name servers", "none is named", helps)
        return
    for address in str(given).split(";"):
        try:
            with sync.connect(f"rmq://{address}", tls=config.tls.options()) as mq:
                admin = mq.admin()
                known = admin.brokers.cluster().brokers
                brokers = len(known)
                own = known.get(config.identity.name)
                if own is not None:
                    yield from _damage(admin, own.addresses.get(config.identity.broker_id))
        except (RoquetError, OSError) as error:
            helps = f"start it (roquet namesrv), or open the way to {address}"
            if isinstance(error, Refused) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                helps = "it answers, and is no name server: name the one that brokers register with"
            yield Look(Verdict.FAIL, f"name server {address}", str(error), helps)
            continue
        yield Look(Verdict.OK, f"name server {address}", f"answers, knows {brokers} brokers")


def _damage(admin: Admin, address: str | None) -> Iterator[Look]:
    """Ask the broker of this configuration, which runs, what its store had to pass over."""
    if address is None:
        return
    try:
        table = admin.brokers.runtime(address)
    except (RoquetError, OSError) as error:
        helps = "the name server knows the broker, but it does not answer"
        yield Look(Verdict.WARN, "messages", f"{address}: {error}", helps)
        return
    if waits := int(table.get("timerWaits", 0)):
        found = f"due ones had to wait {waits} times for the store, since the start"
        yield Look(Verdict.WARN, "timers", found, "free space on the disk of the commit log")
    reads, conflicts = (int(table.get(key, 0)) for key in ("damagedReads", "queueConflicts"))
    found = f"{reads} passed over, {conflicts} without a place in their queue, since the start"
    if not reads and not conflicts:
        yield Look(Verdict.OK, "messages", found)
        return
    helps = "its log names the last ones; stop it, roquet store check names all"
    yield Look(Verdict.FAIL, "messages", found, helps)
