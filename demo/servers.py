"""A name server and a broker of our own, as processes on free ports."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from roquet import sync
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_S = 30.0
STOP_S = 20.0
BROKER = "demo"


@dataclasses.dataclass(frozen=True, slots=True)
class Servers:
    """Where they are."""

    name_servers: str
    broker_pid: int


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[Servers]:
    """Run both for the length of a block; their logs and data go to `folder`."""
    name_port, broker_port = free_port(), free_port()
    address = f"127.0.0.1:{name_port}"
    properties = folder / "broker.properties"
    properties.write_text(
        f"brokerName={BROKER}\nlistenPort={broker_port}\nbindAddress=127.0.0.1\n"
        f"namesrvAddr={address}\nstorePathRootDir={folder / 'store'}\n"
        # A sender that does nothing else on a machine that does much else is not overload.
        "brokerFastFailureEnable=false\nmappedFileSizeCommitLog=268435456\n"
        "diskMaxUsedSpaceRatio=95\n"
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            running_process(folder / "namesrv.log", "namesrv", "--listen-port", str(name_port))
        )
        until_open(name_port)
        broker = stack.enter_context(
            running_process(folder / "broker.log", "broker", "-c", str(properties))
        )
        until_open(broker_port)
        with sync.connect(address) as mq:
            until_registered(mq)
        yield Servers(address, broker.pid)


@contextlib.contextmanager
def running_process(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `roquet` with arguments while the block lasts; what it prints goes to `log`."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "roquet", *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HOME": str(log.parent)},
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until_registered(mq: sync.MQ) -> None:
    """Wait until the name server knows a broker: it serves a moment before. Raises TimeoutError."""
    end = time.monotonic() + START_S
    while not mq.admin().brokers.cluster().brokers:
        if time.monotonic() > end:
            raise TimeoutError("no broker has registered; see the logs")
        time.sleep(0.05)


def until_open(port: int) -> None:
    """Wait until somebody listens on a port of this machine. Raises TimeoutError."""
    end = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            if time.monotonic() > end:
                raise TimeoutError(f"nobody listens on port {port}; see the logs") from None
            time.sleep(0.05)
        else:
            return
