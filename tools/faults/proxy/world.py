"""A name server, two brokers and `roquet proxy` before them, each a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.testing.java import free_port
from tools.attack.grpc_client import OK, Failed, GrpcClient
from tools.attack.raw import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC, GROUP = "ProxyKills", "proxy_killers"
BROKERS = ("one", "two")
MAKE_TOPIC, MAKE_GROUP = 17, 200
PATIENCE_S = 180.0
SMALL = {
    "brokerIP1": "127.0.0.1",
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": "120000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "flushDiskType": "SYNC_FLUSH",
}


class Finding(Exception):  # noqa: N818  (what is found is no error of the programme)
    """A promise does not hold."""


@dataclasses.dataclass
class Server:
    """One process, killed and started again with the same command."""

    name: str
    folder: Path
    port: int
    arguments: tuple[str, ...]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it takes connections. Raises Finding."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{self.name}.out").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "roquet", *self.arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, "HOME": str(self.folder)},
            )

        def listens() -> bool:
            with contextlib.suppress(OSError), RawClient(f"127.0.0.1:{self.port}"):
                return True
            return False

        until(f"{self.name} listens", listens)

    def kill(self) -> None:
        """End it with SIGKILL. Raises Finding when it has ended by itself."""
        process, self.process = self.process, None
        if process is None:
            return
        if process.poll() is not None:
            raise Finding(f"{self.name} has ended by itself, exit {process.returncode}")
        process.kill()
        process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None, "it runs"
        self.process.send_signal(number)

    def rss(self) -> int:
        """Return its resident bytes."""
        assert self.process is not None, "it runs"
        text = Path(f"/proc/{self.process.pid}/statm").read_text()
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def until(what: str, is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait for a state. Raises Finding when it does not come."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if is_so():
            return
        time.sleep(0.05)
    raise Finding(f"not within {patience_s:g} s: {what}")


class World:
    """The servers."""

    def __init__(self, folder: Path) -> None:
        """Draw ports; nothing is started."""
        self.folder = folder
        ports = [free_port(random.SystemRandom()) for _ in range(4)]
        names = f"127.0.0.1:{ports[0]}"
        home = folder / "namesrv"
        self.namesrv = Server("namesrv", home, ports[0], ("namesrv", "-p", str(home / "conf")))
        self.brokers = [self._broker(name, ports[1 + at], names) for at, name in enumerate(BROKERS)]
        arguments = ("proxy", "-n", names, "--grpc-port", str(ports[3]))
        self.proxy = Server("proxy", folder / "proxy", ports[3], arguments)
        self.endpoint = f"127.0.0.1:{ports[3]}"
        home.mkdir(parents=True)
        conf = home / "namesrv.properties"
        conf.write_text(f"listenPort={ports[0]}\n")
        self.namesrv.arguments = ("namesrv", "-c", str(conf))

    def _broker(self, name: str, port: int, names: str) -> Server:
        home = self.folder / name
        home.mkdir(parents=True)
        settings = {
            "brokerName": name,
            "listenPort": str(port),
            "namesrvAddr": names,
            "storePathRootDir": str(home / "store"),
            **SMALL,
        }
        conf = home / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return Server(name, home, port, ("broker", "-c", str(conf)))

    @property
    def servers(self) -> list[Server]:
        """All of them, in the order of their start."""
        return [self.namesrv, *self.brokers, self.proxy]

    def with_pulls(self, mode: str) -> Server:
        """Return who serves gRPC, its calls for pulls on: the first broker itself when `local`."""
        target = self.proxy
        if mode == "local":
            target = self.brokers[0]
            target.arguments += ("--proxy", "--grpc-port", str(self.proxy.port))
        file = self.folder / "rmq-proxy.json"
        file.write_text('{"enableGrpcPull": true}')
        target.arguments += ("--proxy-config", str(file))
        return target

    def start(self, *, with_proxy: bool = True) -> None:
        """Start everything, make the topic and its group."""
        for server in self.servers:
            if with_proxy or server is not self.proxy:
                server.start()
        self.make(TOPIC, GROUP)
        until("the proxy knows the topic", self._is_served)

    def make(self, topic: str, group: str) -> None:
        """Make a topic and a group at both brokers."""
        for broker in self.brokers:
            with RawClient(f"127.0.0.1:{broker.port}") as client:
                fields = {"topic": topic, "readQueueNums": "2", "writeQueueNums": "2"}
                fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
                fields |= {"order": "false", "defaultTopic": "TBW102"}
                fields |= {"attributes": "+message.type=NORMAL"}
                answer = client.call(MAKE_TOPIC, fields)
                assert answer.code == 0, answer.remark
                body = b'{"groupName":"%s","consumeEnable":true,"retryMaxTimes":10000}'
                answer = client.call(MAKE_GROUP, {}, body % group.encode())
                assert answer.code == 0, answer.remark

    def _is_served(self) -> bool:
        with contextlib.suppress(Failed), GrpcClient(self.endpoint) as client:
            # Once for each queue, so that both brokers are known.
            return all(client.send(TOPIC, [b"warm"]).status.code == OK for _ in range(4))
        return False

    def stop(self) -> None:
        """End everything."""
        for server in self.servers:
            with contextlib.suppress(Finding):
                if server.process is not None:
                    with contextlib.suppress(ProcessLookupError):
                        server.process.send_signal(signal.SIGCONT)
                server.kill()
