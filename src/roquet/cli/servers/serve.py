"""`roquet namesrv` and `roquet broker`: settings, log, boot line, exit code.

Exit codes are Java's: 255 (-1) unexpected, 254 (-2) configuration, 253 (-3) an address, a slave's
id or the initialization.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import os
import re
import sys
from typing import TYPE_CHECKING

from roquet.base import log as logs
from roquet.base.clock import SystemClock
from roquet.base.config import Report, as_properties
from roquet.base.errors import Corrupt, PortTaken, UsageError
from roquet.cli import output
from roquet.cli.exits import EXIT_CONFIGURATION, EXIT_INITIALIZE, EXIT_UNEXPECTED
from roquet.protocol.hosts import join_address
from roquet.service.process import runtime
from roquet.service.process.supervisor import supervised

if TYPE_CHECKING:
    import argparse
    import asyncio
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from roquet.broker.app import Broker
    from roquet.broker.config import BrokerConfig
    from roquet.cli.servers.proxy import ProxyFlags
    from roquet.service.lifecycle import App

log = logging.getLogger(__name__)

_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_RAISE_IT = "allow the process more file descriptors (LimitNOFILE, ulimit -n)"

Flags = dict[str, "str | int | bool | None"]


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """What the command line said about a server."""

    file: Path | None
    flags: Flags
    show: str | None
    """`all` or `important`: print these settings instead of running."""
    log_level: str
    log_style: str
    log_file: logs.LogFile | None = None


def given(options: argparse.Namespace, more: Flags | None = None) -> Given:
    """Read the flags that every server has, and `more`. Raises UsageError."""
    flags: Flags = {
        "listen-port": options.listen_port,
        "bind-address": options.bind_address,
        **(more or {}),
        **settings_of(options.set),
    }
    file = options.log_file and logs.LogFile(
        options.log_file, options.log_file_mb << 20, options.log_files
    )
    return Given(options.config, flags, options.show, options.log_level, options.log_style, file)


def settings_of(pairs: Sequence[str]) -> Flags:
    """Return the settings of `-s key=value`. Raises UsageError."""
    found: Flags = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {begin_of(pair)}: it should look like listenPort=9876")
        found[key.strip()] = value
    return found


def begin_of(pair: str) -> str:
    """Return what of a `key=value` that is none may be shown: what follows may be a secret."""
    key = re.match(r"[A-Za-z0-9_.-]{0,40}", pair)
    return repr(key[0] if key is not None else "") + ("" if key and key[0] == pair else "...")


def say(line: str) -> None:
    """Print a line that scripts wait for."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except OSError as error:
        # A server does not end because nobody reads what it says.
        output.drop_output()
        log.warning("standard output cannot be written: %s", error.strerror)


def namesrv(given: Given) -> int:
    """Run a name server to its end."""
    from roquet.namesrv.app import build  # noqa: PLC0415
    from roquet.namesrv.config import EVERYWHERE, Settings, load_config  # noqa: PLC0415

    try:
        config, report = load_config(given.file, os.environ, given.flags)
        _start_log(given, report)
    except UsageError as error:
        return fail(error, EXIT_CONFIGURATION)
    if given.show is not None:
        _print(as_properties(config))
        return 0
    if config.host == EVERYWHERE and not config.acl.enabled:
        log.warning("listening on all addresses without authentication")

    async def serve(stop: asyncio.Event) -> int:
        built = build(Settings(config), SystemClock())
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(built.app)
            except Corrupt as error:
                say(f"the name server cannot start: {error}")
                return EXIT_INITIALIZE
            where = join_address(config.host, built.server.port)
            say(f"The Name Server boot success. serializeType=JSON, address {where}")
            runtime.settle()
            async with supervised(os.environ, SystemClock()):
                await stop.wait()
        return 0

    return guarded(lambda: runtime.run(serve))


IMPORTANT = (
    "brokerClusterName",
    "brokerName",
    "brokerId",
    "brokerIP1",
    "brokerIP2",
    "bindAddress",
    "listenPort",
    "haListenPort",
    "namesrvAddr",
    "brokerPermission",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
    "defaultTopicQueueNums",
    "storePathRootDir",
    "storePathCommitLog",
    "flushDiskType",
    "deleteWhen",
    "fileReservedTime",
    "maxMessageSize",
)
"""What `-m` prints, in this order."""


def broker(given: Given, explained: str | None = None, proxy: ProxyFlags | None = None) -> int:
    """Run a broker to its end, or print the tables that `explained` names (see `explain`).

    With `proxy` it serves gRPC as well.
    """
    from roquet.broker.app import explain, serve  # noqa: PLC0415
    from roquet.broker.config import load_config  # noqa: PLC0415

    try:
        config, report = load_config(given.file, os.environ, given.flags)
        if explained is not None:
            sys.stdout.write(explain(config, explained) + "\n")
            return 0
        _start_log(given, report)
        further = None if proxy is None else _beside(config, proxy)
    except UsageError as error:
        # As in Java: wrong addresses and ids count as a failed start.
        about_peers = str(error).startswith(("namesrvAddr", "brokerId", "brokerRole"))
        return fail(error, EXIT_INITIALIZE if about_peers else EXIT_CONFIGURATION)
    if given.show is not None:
        shown = as_properties(config)
        if given.show == "important":
            shown = {key: shown[key] for key in IMPORTANT if key in shown}
        _print(shown)
        return 0
    return guarded(lambda: runtime.run(lambda stop: serve(config, stop, say, further)) & 0xFF)


def _beside(
    config: BrokerConfig, flags: ProxyFlags
) -> Callable[[Broker], AbstractAsyncContextManager[list[str]]]:
    from roquet.cli.servers.proxy import beside  # noqa: PLC0415  (a broker alone has none of it)

    return beside(config, flags)


@contextlib.asynccontextmanager
async def in_the_way(flag: str, app: App, **others: int | None) -> AsyncGenerator[None]:
    """Run an app; a taken port is told with the flag that moves it.

    `others` are the ports that have a flag of their own, by its name.
    """
    try:
        await app.__aenter__()
    except PortTaken as error:
        named = {str(port): f"--{name.replace('_', '-')}" for name, port in others.items()}
        raise UsageError(f"{error}; {named.get(error.port, flag)} takes another") from error
    try:
        yield
    finally:
        await app.__aexit__()


def guarded(run: Callable[[], int]) -> int:
    """Run a server; turn what it raises into Java's exit codes and one line."""
    try:
        return run()
    except UsageError as error:
        return fail(error, EXIT_INITIALIZE)
    except OSError as error:
        log.debug("ended by an error", exc_info=error)
        if error.errno not in _NO_DESCRIPTORS:
            return fail(error, EXIT_UNEXPECTED)
        return fail(UsageError(f"{error.strerror}: {_RAISE_IT}"), EXIT_INITIALIZE)
    except Exception as error:
        log.debug("ended by an error", exc_info=error)
        return fail(error, EXIT_UNEXPECTED)


def fail(error: Exception, code: int) -> int:
    """Say in one line why it ends."""
    text = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
    output.error(text)
    return code


def _start_log(given: Given, report: Report) -> None:
    try:
        logs.configure(given.log_level, given.log_style, file=given.log_file)
    except OSError as error:
        raise UsageError(f"--log-file cannot be written: {error}") from error
    for line in report.lines():
        log.warning(line)


def _print(properties: Mapping[str, str]) -> None:
    for key, value in properties.items():
        sys.stdout.write(f"{key}={value}\n")
