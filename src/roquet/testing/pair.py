"""A master and a slave as processes, each of either make, and what must hold of their files.

The name server is ours: it answers what both makes ask. Logs are compared byte for byte, with both
brokers stopped; what one side has beyond must be an unused file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import time
from typing import TYPE_CHECKING, Literal, Self

from roquet.base.errors import RoquetError
from roquet.protocol.bodies.replication import HaStatusBody
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.blocking import BlockingConnection
from roquet.testing.java import (
    BrokerPlan,
    Process,
    fetch_jars,
    free_port,
    java_broker,
    roquet_process,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping
    from pathlib import Path

Make = Literal["java", "ours"]
Side = Literal["master", "slave"]

NAME = "pair"
SOON = {
    "haReconnectInterval": "200",
    "slaveSyncInterval": "500",
    "registerNameServerPeriod": "10000",
    "brokerFastFailureEnable": "false",
    "waitTimeMillsInSendQueue": "60000",
    "diskMaxUsedSpaceRatio": "95",
}
"""Ours looks for its master more often than a product would; Java's intervals are fixed."""


class PairError(RoquetError):
    """The pair did not do in time what it should."""


def certificate(folder: Path) -> tuple[str, str]:
    """Make a self-signed certificate, its own authority; return its file and its key's."""
    folder.mkdir(parents=True, exist_ok=True)
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=pair", "-keyout", key, "-out", cert]
    subprocess.run(command, check=True, capture_output=True, timeout=60)  # noqa: S603  (our own)
    return cert, key


def over_tls(folder: Path) -> dict[str, str]:
    """Return the settings of a broker that copies over TLS, and trusts its own certificate."""
    cert, key = certificate(folder)
    return {
        "haTlsEnable": "true",
        "haTlsCertFile": cert,
        "haTlsKeyFile": key,
        "haTlsTrustFile": cert,
    }


def wait_until(what: str, reached: Callable[[], object], within_s: float = 90.0) -> None:
    """Wait for something that other processes do. Raises PairError."""
    end = time.monotonic() + within_s
    while not reached():
        if time.monotonic() > end:
            raise PairError(f"not within {within_s:g} s: {what}")
        time.sleep(0.05)


@dataclasses.dataclass
class Pair:
    """Two brokers with one name, and the name server."""

    folder: Path
    master_make: Make
    slave_make: Make
    chance: random.Random
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    running: dict[Side, Process] = dataclasses.field(default_factory=dict["Side", "Process"])

    def __post_init__(self) -> None:
        """Choose ports and write nothing yet."""
        port = free_port(self.chance)
        self.namesrv = f"127.0.0.1:{port}"
        flags = ("namesrv", "--listen-port", str(port))
        self._name_server = roquet_process("pair-namesrv", self.folder / "namesrv", *flags)
        common = {"mappedFileSizeCommitLog": str(1 << 20), **SOON, **self.settings}
        self.plans: dict[Side, BrokerPlan] = {
            "master": BrokerPlan(
                NAME, free_port(self.chance), self.namesrv, self.folder / "master", common
            ),
            "slave": BrokerPlan(
                NAME,
                free_port(self.chance),
                self.namesrv,
                self.folder / "slave",
                {
                    **common,
                    "brokerId": "1",
                    "brokerRole": "SLAVE",
                    "slaveReadEnable": "true",
                },
            ),
        }

    def __enter__(self) -> Self:
        self._name_server.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            process.kill()
        self._name_server.kill()

    def make_of(self, side: Side) -> Make:
        """Return who made a side."""
        return self.master_make if side == "master" else self.slave_make

    def start(self, side: Side) -> None:
        """Start a broker and wait for its boot line."""
        plan, folder = self.plans[side], self.folder / f"{side}-run"
        if self.make_of(side) == "java":
            process = java_broker(fetch_jars(), folder, plan)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            process = roquet_process(f"our-{side}", folder, "broker", "-c", str(plan.write(folder)))
        # A JVM may take minutes on a machine that does other things as well.
        self.running[side] = process.start(timeout_s=240.0)

    def stop(self, side: Side) -> int:
        """End a broker in good order and return its exit code."""
        return self.running.pop(side).stop()

    def kill(self, side: Side) -> None:
        """End a broker with SIGKILL."""
        self.running.pop(side).kill()

    def promote(self) -> None:
        """Start the slave's store as a master, at the slave's address, once both have gone."""
        old = self.plans["slave"]
        roles = {"brokerId": "0", "brokerRole": "ASYNC_MASTER"}
        self.plans["slave"] = dataclasses.replace(old, extra={**old.extra, **roles})
        self.start("slave")

    def call(self, side: Side, command: Command) -> Command:
        """Ask a broker. Raises Unreachable and OutcomeUnknown."""
        with BlockingConnection(self.plans[side].address) as connection:
            return connection.call(command, 20.0)

    def status(self, side: Side) -> HaStatusBody | None:
        """Return what a broker says of the pair; None when it cannot be asked."""
        with contextlib.suppress(RoquetError, ValueError):
            answer = self.call(side, Command(RequestCode.GET_BROKER_HA_STATUS))
            if answer.code == ResponseCode.SUCCESS:
                return HaStatusBody.decode(answer.body)
        return None

    def is_equal(self) -> bool:
        """Tell whether the slave has acknowledged all that the master has."""
        status = self.status("master")
        if status is None or not status.slaves:
            return False
        return max(one.acked for one in status.slaves) == status.max_offset > 0

    def catch_up(self) -> None:
        """Wait until the slave has everything. Raises PairError."""
        try:
            wait_until("the slave has everything", self.is_equal)
        except PairError as error:
            raise PairError(f"{error}; master {self.status('master')}") from error


def compare_logs(master: Path, slave: Path) -> int:
    """Compare the logs of two stopped brokers; return the bytes that are the same.

    A slave may lack the master's older files. Raises PairError with the first difference.
    """
    files = [_files(store) for store in (master, slave)]
    common = sorted(files[0].keys() & files[1].keys())
    if not common:
        raise PairError(f"no file in common: {sorted(files[0])}, {sorted(files[1])}")
    for name in sorted(files[0].keys() ^ files[1].keys()):
        older = name < common[0] and name in files[0]
        path = files[0].get(name) or files[1][name]
        if not older and any(path.read_bytes()):
            raise PairError(f"{path} holds data that the other side has not")
    for name in common:
        ours, theirs = (side[name].read_bytes() for side in files)
        if ours != theirs:
            both = enumerate(zip(ours, theirs, strict=True))
            at = next(index for index, (one, other) in both if one != other)
            raise PairError(f"{name} differs from byte {at} on")
    return sum(files[0][name].stat().st_size for name in common)


def _files(store: Path) -> dict[str, Path]:
    return {path.name: path for path in sorted((store / "commitlog").iterdir())}
