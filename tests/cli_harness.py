"""What tests of the command line share: commands and servers as processes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.testing.cluster import TINY

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import IO

SOURCES = Path(__file__).parents[1] / "src"
WAIT_S = 60
"""What a command may take, and a server until its next line: a busy machine is slow."""


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a user without settings of ours."""
    kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(SOURCES)}


def roquet(home: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "roquet", *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
        env=environment(home),
    )


class Running:
    """A server process and what it has printed."""

    def __init__(self, home: Path, *arguments: str, packages: Path | None = None) -> None:
        """`packages`: a folder of them that may print."""
        self.errors = home / "errors"
        env = environment(home)
        if packages is not None:
            env |= {"PYTHONPATH": f"{SOURCES}:{packages}", "PYTHONUNBUFFERED": "1"}
        with self.errors.open("ab") as errors:
            self._start(env, errors, arguments)

    def _start(self, env: dict[str, str], errors: IO[bytes], arguments: tuple[str, ...]) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "roquet", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,  # what select sees is all there is
            env=env,
        )

    def line(self) -> str:
        assert self.child.stdout is not None
        ready, _, _ = select.select([self.child.stdout], [], [], WAIT_S)
        assert ready, "it says nothing"
        return self.child.stdout.readline().decode().rstrip("\n")

    def lines_until(self, text: str) -> list[str]:
        found = [self.line()]
        while text not in found[-1]:
            found.append(self.line())
        return found

    def stop(self) -> int:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        code = self.child.wait(WAIT_S)
        assert self.child.stdout is not None
        self.child.stdout.close()
        return code


@contextlib.contextmanager
def dev_server(
    home: Path, *arguments: str, packages: Path | None = None
) -> Generator[tuple[str, Running]]:
    """Run `roquet dev` for a block; the name server's address is what it prints."""
    running = Running(
        home, "dev", "--port", "0", "--namesrv-port", "0", *arguments, packages=packages
    )
    try:
        lines = running.lines_until("Ctrl-C")
        (address,) = [line.split()[2] for line in lines if line.startswith("  name server ")]
        yield address, running
    finally:
        assert running.stop() == 0


@contextlib.contextmanager
def cluster_of(home: Path, **more: str) -> Generator[str]:
    """Run a name server and a small broker with `more` settings; give the name server's address.

    The broker's file is `broker.conf` in `home`.
    """
    started = [Running(home, "namesrv", "-s", "listenPort=0")]
    try:
        booted = started[0].lines_until("boot success")[-1]
        address = booted.split("address ")[1].split(",")[0].strip()
        settings = {
            **TINY,
            "listenPort": "0",
            "haListenPort": "0",
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": address,
            "storePathRootDir": str(home / "store"),
            **more,
        }
        file = home / "broker.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        started.append(Running(home, "broker", "-c", str(file)))
        started[1].lines_until("boot success")
        yield address
    finally:
        assert [one.stop() for one in reversed(started)] == [0] * len(started)


def with_users(password: str) -> dict[str, str]:
    """Return the settings of a broker that asks for users of 5.x; `root` is one."""
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps({"username": "root", "password": password}),
    }
