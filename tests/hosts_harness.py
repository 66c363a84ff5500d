"""Hosts of a test's own: network namespaces on one bridge, and links between them that are cut.

Needs root and iproute2. A cut in one direction is a route into nowhere at the sender, so that what
the other one sends still arrives; both directions are two of them.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def ip(*words: str) -> None:
    """Run one command of iproute2."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


def until(what: str, reached: Callable[[], object], within_s: float = 60.0) -> None:
    """Wait for something that other processes do."""
    end = time.monotonic() + within_s
    while not reached():
        assert time.monotonic() < end, f"not within {within_s:g} s: {what}"
        time.sleep(0.05)


@dataclasses.dataclass
class Program:
    """A process on a host, and the file of what it says."""

    child: subprocess.Popen[bytes]
    said: Path

    def says(self, text: str) -> bool:
        """Tell whether it has said something."""
        return text in self.said.read_text()

    def end(self) -> int:
        """Stop it in good order."""
        self.child.terminate()
        return self.child.wait(30)


class Hosts:
    """Hosts with addresses ADDRESS.2, .3 … on one bridge, whose own address is ADDRESS.1."""

    def __init__(self, *names: str) -> None:
        mark = secrets.token_hex(2)
        third = secrets.randbelow(250) + 1
        self._bridge = f"rq{mark}"
        self._net = f"10.{77 + third % 20}.{third}"
        self._spaces = {name: f"rq{mark}-{name}" for name in names}
        self.addresses = {name: f"{self._net}.{at}" for at, name in enumerate(names, 2)}
        self.own = f"{self._net}.1"
        self._programs: list[Program] = []

    def __enter__(self) -> Self:
        ip("link", "add", self._bridge, "type", "bridge")
        ip("addr", "add", f"{self.own}/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")
        for at, (name, space) in enumerate(self._spaces.items()):
            outer, inner = f"{self._bridge}o{at}", f"{self._bridge}i{at}"
            ip("netns", "add", space)
            ip("link", "add", outer, "type", "veth", "peer", "name", inner)
            ip("link", "set", outer, "master", self._bridge, "up")
            ip("link", "set", inner, "netns", space)
            ip("-n", space, "addr", "add", f"{self.addresses[name]}/24", "dev", inner)
            ip("-n", space, "link", "set", inner, "up")
            ip("-n", space, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs:
            program.child.kill()
            program.child.wait()
        for space in self._spaces.values():
            subprocess.run(["ip", "netns", "del", space], check=False)
        subprocess.run(["ip", "link", "del", self._bridge], check=False)

    def run(self, host: str, folder: Path, *words: str) -> Program:
        """Run Python with these words on a host."""
        folder.mkdir(parents=True, exist_ok=True)
        said = folder / f"{host}-{len(self._programs)}.log"
        with said.open("wb") as out:
            child = subprocess.Popen(
                ["ip", "netns", "exec", self._spaces[host], sys.executable, *words],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._programs.append(Program(child, said))
        return self._programs[-1]

    def cut(self, sender: str, receiver: str) -> None:
        """Let nothing that `sender` sends reach `receiver` any more."""
        ip("-n", self._spaces[sender], "route", "add", "blackhole", self.addresses[receiver])

    def heal(self, sender: str, receiver: str) -> None:
        """Undo a cut."""
        ip("-n", self._spaces[sender], "route", "del", "blackhole", self.addresses[receiver])

    def cut_both(self, one: str, other: str) -> None:
        """Cut both directions."""
        self.cut(one, other)
        self.cut(other, one)
