"""A broker in a process of its own, for tests that kill it."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import RoquetError
from roquet.remoting.client import Client
from roquet.testing.cluster import TINY, pull_command, send_command
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from roquet.protocol.command import Command

BOOTED = b"boot success"
START_S = 240.0
CALL_S = 20.0


class ProcessError(RoquetError):
    """The broker's process did not come up."""


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """A connection to the process."""

    client: Client
    address: str

    async def call(self, command: Command) -> Command:
        """Ask the broker."""
        return await self.client.call(self.address, command, CALL_S)

    async def send(
        self, topic: str, body: bytes = b"hello", queue_id: int = 0, properties: str = ""
    ) -> Command:
        """Send one message."""
        return await self.call(send_command(topic, body, queue_id, properties))

    async def pull(self, topic: str, offset: int = 0, /, **fields: str) -> Command:
        """Pull with an inline `*` subscription, without waiting."""
        return await self.call(pull_command(topic, offset, **fields))


class BrokerProcess:
    """The process, its folder and its settings; `changes` have Java's names."""

    def __init__(
        self,
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        module: str = "roquet",
        **changes: str,
    ) -> None:
        """Write the property file.

        `env` replaces the environment of the process, `module` is run with `broker -c FILE`.
        """
        port = free_port(random.Random(time.monotonic_ns()))  # noqa: S311
        self.address = f"127.0.0.1:{port}"
        self.folder = folder
        self.store = folder / "store"
        self._output = folder / "broker.out"
        self._env = env
        self._module = module
        self.process: subprocess.Popen[bytes] | None = None
        settings = {
            **TINY,
            "brokerName": "broker-a",
            "listenPort": str(port),
            "storePathRootDir": str(self.store),
            **changes,
        }
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (folder / "broker.conf").write_text("".join(lines))

    @property
    def output(self) -> str:
        """What the process has printed since its last start."""
        return self._output.read_text(errors="replace")

    def start(self) -> None:
        """Start the process and return at once."""
        command = [sys.executable, "-m", self._module, "broker", "-c"]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(  # noqa: S603
                [*command, str(self.folder / "broker.conf")],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._env,
            )

    async def booted(self, clock: SystemClock) -> None:
        """Wait for the boot line. Raises ProcessError with what was printed instead."""
        assert self.process is not None
        end = time.monotonic() + START_S
        while BOOTED not in self._output.read_bytes():
            if self.process.poll() is not None or time.monotonic() > end:
                raise ProcessError(f"the broker did not start:\n{self.output[-2000:]}")
            await clock.sleep(0.02)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncGenerator[Caller]:
        """Talk to the process, which is started if it does not run."""
        clock = SystemClock()
        if self.process is None:
            self.start()
            await self.booted(clock)
        client = Client(clock=clock)
        await client.start()
        try:
            yield Caller(client, self.address)
        finally:
            await client.stop()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> int | None:
        """End the process and wait until it is gone; return its exit code."""
        process, self.process = self.process, None
        if process is None:
            return None
        process.send_signal(how)
        return process.wait(START_S)
