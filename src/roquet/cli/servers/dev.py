"""`roquet dev`: name server and broker in one process, on loopback, in memory or in a folder."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base import log as logs
from roquet.base.clock import SystemClock
from roquet.base.config import exactly_named
from roquet.base.errors import UsageError
from roquet.cli.servers.serve import guarded, in_the_way, say
from roquet.service.process import runtime

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Generator, Mapping

    from roquet.broker.app import Broker
    from roquet.broker.config import BrokerConfig
    from roquet.cli.servers.proxy import ProxyFlags

MEMORY = Path("/dev/shm")  # noqa: S108  (a folder of our own is made in it)
PREFIX = "roquet-dev-"
ROOM = 256 * 1024 * 1024
"""Bytes that have to be free in memory; else the usual folder for temporary files is taken."""
SIZES = {
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 20_000,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asked for."""

    data: Path | None
    port: int
    namesrv_port: int
    bind: str = "127.0.0.1"
    """Address to listen on."""
    advertise: str | None = None
    """Address that clients are told; `bind` without."""
    health_port: int | None = None
    """Port of /livez, /readyz and /metrics; None: not served."""
    console_port: int | None = None
    """Port of the web console; None: the usual one, or any that is free."""
    has_console: bool = True
    proxy: ProxyFlags | None = None
    """None: no gRPC."""
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """More settings of the broker, by name."""


OWN = {
    "listenPort": "--port",
    "bindAddress": "--bind",
    "brokerIP1": "--advertise",
    "namesrvAddr": "--namesrv-port",
    "storePathRootDir": "--data",
    "storePathCommitLog": "--data",
    "metricsPromExporterPort": "--health-port",
}
"""Settings that a flag of its own sets."""


def check_settings(given: Mapping[str, str]) -> None:
    """Raise UsageError for a setting that has a flag."""
    for java, flag in OWN.items():
        for key in exactly_named(given, (java,)):
            if key == java:
                raise UsageError(f"-s {java}: {flag} sets it")


def run_dev(plan: Plan, log_level: str, log_style: str) -> int:
    """Run both until Ctrl-C. Raises UsageError for a setting that has a flag of its own."""
    check_settings(plan.settings)
    logs.configure(log_level, log_style)
    with _folder(plan.data) as folder:
        return guarded(lambda: runtime.run(lambda stop: _serve(plan, folder, stop)))


async def _serve(plan: Plan, folder: Path, stop: asyncio.Event) -> int:
    from roquet.broker.app import build as build_broker  # noqa: PLC0415  (not for --help)
    from roquet.broker.config import load_config  # noqa: PLC0415
    from roquet.namesrv.app import build as build_namesrv  # noqa: PLC0415
    from roquet.namesrv.config import NamesrvConfig, Settings  # noqa: PLC0415

    namesrv = build_namesrv(
        Settings(
            NamesrvConfig(
                listen_port=plan.namesrv_port,
                bind_address=plan.bind,
                kv_config_path=str(folder / "kvConfig.json"),
                config_store_path=str(folder / "namesrv.properties"),
            )
        ),
        SystemClock(),
    )
    async with in_the_way("--namesrv-port", namesrv.app):
        address = f"127.0.0.1:{namesrv.server.port}"
        flags: dict[str, str | int | bool | None] = {
            "brokerName": "dev",
            "listenPort": plan.port,
            "namesrvAddr": address,
            "storePathRootDir": str(folder / "store"),
            "storePathCommitLog": str(folder / "store" / "commitlog"),
            "autoCreateTopicEnable": True,
            "enablePropertyFilter": True,
            "recallMessageEnable": True,
            "bindAddress": plan.bind,
            "brokerIP1": plan.advertise,
            "metricsExporterType": None if plan.health_port is None else "PROM",
            "metricsPromExporterPort": plan.health_port,
            **(SIZES if plan.data is None else {}),
            **plan.settings,
        }
        config = load_config(None, {}, flags)[0]
        broker = build_broker(config)
        ports = in_the_way("--port", broker.app, health_port=plan.health_port)
        async with ports, _proxy(plan, config, broker) as more:
            before, after = welcome(plan, address, broker.identity.address, folder)
            for line in [*before, *more]:
                say(line)
            async with _console(plan, address):
                for line in after:
                    say(line)
                runtime.settle()
                await stop.wait()
    return 0


def _console(plan: Plan, namesrv: str) -> contextlib.AbstractAsyncContextManager[None]:
    if not plan.has_console:
        return contextlib.nullcontext()
    from roquet.cli.servers.console import dev_console  # noqa: PLC0415  (not for --help)

    return dev_console(namesrv, plan.console_port, say)


@contextlib.asynccontextmanager
async def _proxy(plan: Plan, config: BrokerConfig, broker: Broker) -> AsyncGenerator[list[str]]:
    """Run gRPC where that is asked for; yield what is said."""
    if plan.proxy is None:
        yield []
        return
    from roquet.cli.servers.proxy import beside  # noqa: PLC0415  (needs the extra)

    async with beside(config, plan.proxy)(broker) as lines:
        yield lines


def _reach(bind: str) -> str:
    if ipaddress.ip_address(bind).is_loopback:
        return "on loopback only"
    return f"on {bind}: whoever reaches it may read and write"


def welcome(plan: Plan, namesrv: str, broker: str, folder: Path) -> tuple[list[str], list[str]]:
    """Return what is printed at start, before and after the console's line: at most twelve."""
    where = "" if namesrv.endswith(":9876") else f" -n {namesrv}"
    kept = "kept" if plan.data is not None else "gone when this ends; --data DIR keeps it"
    before = [
        "Roquet for development, " + _reach(plan.bind),
        f"  name server  {namesrv}",
        f"  broker       {broker}",
        f"  data         {folder} ({kept})",
    ]
    return before, [
        "",
        "Try in another terminal:",
        f'  roquet pub hello "hi {{{{count}}}}" -c 10{where}',
        f"  roquet cat hello -e{where}",
        f"  roquet topic get hello{where}",
        "",
        "Ctrl-C stops everything.",
    ]


@contextlib.contextmanager
def _folder(data: Path | None) -> Generator[Path]:
    if data is not None:
        try:
            data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"--data {data}: {error.strerror}, and it has to be a folder"
            ) from error
        yield data.resolve()
        return
    home = _memory()
    _sweep(home)
    made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=home))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _memory() -> Path:
    try:
        if shutil.disk_usage(MEMORY).free >= ROOM and os.access(MEMORY, os.W_OK):
            return MEMORY
    except OSError:
        pass
    return Path(tempfile.gettempdir())


def _sweep(home: Path) -> None:
    """Remove what a dev server that was killed left behind: it occupies memory."""
    for left in home.glob(f"{PREFIX}*-*"):
        pid = left.name.removeprefix(PREFIX).partition("-")[0]
        if not pid.isdigit() or left.is_symlink() or left.stat().st_uid != os.getuid():
            continue
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except (PermissionError, OverflowError):
            continue
