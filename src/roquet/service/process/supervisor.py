"""What a supervisor such as systemd is told: ready, alive, stopping (sd_notify(3))."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from typing import TYPE_CHECKING

from roquet.service.lifecycle import App, Part, Timer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.base.clock import Clock

log = logging.getLogger(__name__)


class Supervisor:
    """Tells the supervisor of this process, if there is one. A service: starts last, stops first.

    SIGHUP, by which supervisors ask for a reload, ends nothing: certificates and accounts are read
    again by themselves.
    """

    def __init__(self, env: Mapping[str, str], pid: int) -> None:
        """Read the variables that systemd sets; tell nothing yet."""
        self._address = env.get("NOTIFY_SOCKET", "")
        micros = env.get("WATCHDOG_USEC", "")
        is_ours = env.get("WATCHDOG_PID", str(pid)) == str(pid)
        asked = is_ours and self._address and micros.isascii() and micros.isdigit()
        self.alive_every_s = int(micros) / 2_000_000 if asked else 0.0
        """How often `alive` has to be called: half of what the watchdog allows; 0: never."""

    async def start(self) -> None:
        """Say that the process serves."""
        # Only the main thread can take signals; a server in another one has no supervisor.
        with contextlib.suppress(RuntimeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)
        self._tell("READY=1")

    async def stop(self) -> None:
        """Say that the process stops."""
        self._tell("STOPPING=1")
        with contextlib.suppress(RuntimeError, ValueError):
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)

    async def alive(self) -> None:
        """Say that the event loop turns: the action of a timer."""
        self._tell("WATCHDOG=1")

    def _reload(self) -> None:
        log.info("SIGHUP: certificates and accounts that have changed are in force within 500 ms")
        self._tell("READY=1")

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        # An `@` stands for the zero byte of an address without a file.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as plain:
                plain.setblocking(False)
                plain.sendto(text.encode(), address)
        except OSError as error:
            log.warning("the supervisor was not told %s: %s", text, error)


def supervised(env: Mapping[str, str], clock: Clock) -> App:
    """Return what to enter while a server serves."""
    supervisor = Supervisor(env, os.getpid())
    every_s = supervisor.alive_every_s
    timers = (Timer("tell the watchdog", supervisor.alive, every_s, every_s),) if every_s else ()
    return App([Part("supervisor", supervisor, timers=timers)], clock)
