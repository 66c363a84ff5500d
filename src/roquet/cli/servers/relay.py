"""`roquet relay`: settings, log, boot line, exit code."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from roquet.base import log as logs
from roquet.base.clock import SystemClock
from roquet.base.errors import UsageError
from roquet.cli.exits import EXIT_CONFIGURATION
from roquet.cli.servers.serve import Flags, begin_of, fail, guarded, say
from roquet.service.process import runtime

if TYPE_CHECKING:
    import argparse
    import asyncio


def relay(options: argparse.Namespace) -> int:
    """Run a relay to its end."""
    from roquet.cli.servers.relay_demo import run_demo  # noqa: PLC0415
    from roquet.relay.app import build  # noqa: PLC0415
    from roquet.relay.config import load_config  # noqa: PLC0415

    try:
        config = load_config(options.config, os.environ, _flags(options.set))
        logs.configure(options.log_level, options.log_style)
        built = build(config, SystemClock())
    except UsageError as error:
        return fail(error, EXIT_CONFIGURATION)
    if options.explain:
        sys.stdout.write(built.explain() + "\n")
        return 0

    async def serve(stop: asyncio.Event) -> int:
        if options.demo:
            return await run_demo(config, say, stop)
        async with built.app:
            inbound = "" if built.listener is None else f", inbound links on {built.listener.port}"
            say(f"The Relay boot success. {config.workers} workers{inbound}")
            say(f"page, health and metrics: http://{config.bind_address}:{built.http.port}/")
            runtime.settle()
            await stop.wait()
        return 0

    return guarded(lambda: runtime.run(serve))


def _flags(pairs: list[str]) -> Flags:
    flags: Flags = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {begin_of(pair)}: it should look like reconnect_ms=3000")
        flags[key.strip()] = value
    return flags
