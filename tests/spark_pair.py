"""A master and a slave as processes, for reads of Spark that go on when the master is killed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from typing import TYPE_CHECKING, Any

from demo.servers import running_process, until_open

from roquet import sync
from roquet.base.errors import RoquetError
from roquet.client import Message, MessageQueue
from roquet.model.topic import TopicConfig
from roquet.spark.cluster.metadata import Metadata
from roquet.spark.options import Wire
from roquet.testing.java import free_port

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Generator
    from pathlib import Path


BROKER = "pair"
QUEUES = 2
ROWS = 400
WAIT_S = 120.0


@dataclasses.dataclass
class Pair:
    """A name server, a master and its slave as processes."""

    folder: Path
    stack: contextlib.ExitStack
    names: str = ""
    ports: tuple[int, int] = (0, 0)
    ha_ports: tuple[int, int] = (0, 0)
    master: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        name_port = free_port()
        self.names = f"127.0.0.1:{name_port}"
        log = self.folder / "namesrv.log"
        self.stack.enter_context(running_process(log, "namesrv", "--listen-port", str(name_port)))
        until_open(name_port)
        self.ports = (free_port(), free_port())
        self.ha_ports = (free_port(), free_port())
        self.start_master()
        own = f"brokerRole=SLAVE\nbrokerId=1\nhaListenPort={self.ha_ports[1]}\n"
        own += "slaveReadEnable=true\n"
        self._server("slave", self.ports[1], own)

    def start_master(self) -> None:
        own = f"brokerRole=SYNC_MASTER\nhaListenPort={self.ha_ports[0]}\n"
        self.master = self._server("master", self.ports[0], own)

    def kill_master(self) -> None:
        assert self.master is not None
        self.master.kill()
        self.master.wait()

    def fill(self, topic: str, begin: int) -> None:
        """Send ROWS bodies, and wait until the slave shows all of them."""
        with sync.connect(self.names) as mq:
            config = TopicConfig(name=topic, read_queues=QUEUES, write_queues=QUEUES)
            retried(lambda: mq.admin().topics.put(config))
            with mq.producer("fill") as producer:
                for number in range(QUEUES):
                    queue = MessageQueue(topic, BROKER, number)
                    ids = range(begin + number, begin + ROWS, QUEUES)
                    made = [Message(topic, b"%06d" % n + b"x" * 1000) for n in ids]
                    retried(functools.partial(producer.send_batch, topic, made, queue=queue))
        metadata = Metadata(Wire(name_servers=(self.names,), retries=0))

        def shown() -> None:
            found = metadata.offsets(topic, (f"127.0.0.1:{self.ports[1]}",))
            if sum(it.max_offset for it in found.values()) < begin + ROWS:
                raise RoquetError("the slave lacks messages")

        retried(shown)
        # The route has the slave too, or a reader would not know it.
        retried(lambda: _has_both(metadata, topic))
        metadata.close()

    def _server(self, name: str, port: int, more: str) -> subprocess.Popen[bytes]:
        settings = self.folder / f"{name}.properties"
        settings.write_text(
            f"brokerName={BROKER}\nlistenPort={port}\nbindAddress=127.0.0.1\n"
            f"namesrvAddr={self.names}\nstorePathRootDir={self.folder / name}\n"
            "brokerFastFailureEnable=false\nwaitTimeMillsInSendQueue=60000\n"
            "mappedFileSizeCommitLog=16777216\ndiskMaxUsedSpaceRatio=95\n"
            "registerNameServerPeriod=10000\nslaveSyncInterval=200\n" + more
        )
        log = self.folder / f"{name}-{time.monotonic_ns()}.log"
        started = self.stack.enter_context(running_process(log, "broker", "-c", str(settings)))
        until_open(port)
        return started


def retried(call: Callable[[], Any], within_s: float = WAIT_S) -> None:
    """Call until it raises no RoquetError; raise the one that comes when the time is over."""
    end = time.monotonic() + within_s
    while True:
        try:
            call()
        except RoquetError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def _has_both(metadata: Metadata, topic: str) -> None:
    (broker,) = metadata.route(topic).brokers
    if len(broker.addresses) < 2:
        raise RoquetError("the slave is not registered")


@contextlib.contextmanager
def running_pair(folder: Path) -> Generator[Pair]:
    """Start both and their name server; all end with the block."""
    with contextlib.ExitStack() as stack:
        found = Pair(folder, stack)
        found.start()
        yield found


def numbers(bodies: list[Any]) -> list[int]:
    """Return the numbers of bodies that `fill` sent."""
    return sorted(int(bytes(body)[:6]) for body in bodies)
