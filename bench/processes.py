"""The brokers under measurement as processes: started, asked, weighed, stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING, Self

from bench import weights
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.headers.admin import CreateTopicRequest
from roquet.protocol.headers.message import SendMessageRequest
from roquet.remoting.blocking import BlockingConnection
from roquet.testing import java

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.access import Access

START_LIMIT_S = 180.0
_LAG = re.compile(r'loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)')
_LAG_MAX = re.compile(r"^\w*loop_lag_max_seconds ([0-9.e+-]+)$", re.MULTILINE)
OURS = {"roquet": (), "loop": ("ioThreads=0",)}
"""Brokers of ours, and what differs from the defaults."""
JAVA_MAIN = {
    "namesrv": "org.apache.rocketmq.namesrv.NamesrvStartup",
    "broker": "org.apache.rocketmq.broker.BrokerStartup",
}


@dataclasses.dataclass(slots=True)
class Broker:
    """One broker process with its name server; `kind` is `java` or one of `OURS`."""

    kind: str
    flush: str
    folder: Path
    port: int
    namesrv: subprocess.Popen[bytes]
    process: subprocess.Popen[bytes]
    metrics_port: int = 0
    exec_s: float = 0.0
    """When its process began (`time.monotonic`); the name server served by then."""
    access: Access | None = None

    def connect(self) -> BlockingConnection:
        """Connect for questions, in plain; signed when the broker wants that."""
        signed = None if self.access is None else self.access.signed()
        return BlockingConnection(self.address, sign=signed)

    def loop_lag(self) -> dict[str, float]:
        """Return the counts of the loop-lag histogram by upper bound, and `max`; Java has none."""
        if not self.metrics_port:
            return {}
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text: str = answer.read().decode()
        found = {bound: float(count) for bound, count in _LAG.findall(text)}
        worst = _LAG_MAX.search(text)
        found["max"] = float(worst[1]) if worst else 0.0
        return found

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        """User plus system seconds so far."""
        return weights.cpu_s(self.process.pid)

    def memory_mib(self) -> dict[str, float]:
        """Resident memory: whole, and without mapped file pages."""
        return weights.memory_mib(self.process.pid)

    def runtime_info(self) -> dict[str, str]:
        """Ask for GET_BROKER_RUNTIME_INFO."""
        with self.connect() as connection:
            reply = connection.call(Command(RequestCode.GET_BROKER_RUNTIME_INFO), timeout=10)
        table: dict[str, str] = json.loads(reply.body)["table"]
        return table

    def settle(self, limit_s: float = 60) -> None:
        """Wait until everything stored is dispatched: CPU counts until then."""
        end = time.monotonic() + limit_s
        while int(self.runtime_info().get("dispatchBehindBytes", 0)) > 0:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.kind} did not dispatch within {limit_s} s")
            time.sleep(0.05)

    def create_topic(self, topic: str, queues: int = 4, attributes: str | None = None) -> None:
        """Create or update a topic."""
        header = CreateTopicRequest(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
            attributes=attributes,
        )
        with self.connect() as connection:
            reply = connection.call(
                Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=header.encode()), timeout=10
            )
        if reply.code != 0:
            raise RuntimeError(f"{self.kind}: {reply.code} {reply.remark}")

    def stop(self) -> None:
        """End both processes, the broker first and in good order."""
        for process in (self.process, self.namesrv):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            if process.poll() is None:
                process.kill()
                process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def send_once(broker: Broker, topic: str) -> bool:
    """Send one message; return whether it was stored."""
    header = SendMessageRequest(
        producer_group="bench",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=int(time.time() * 1000),
        flag=0,
    )
    with broker.connect() as connection:
        request = Command(
            RequestCode.SEND_MESSAGE_V2, ext=header.encode(short=True), body=b"x" * 1024
        )
        return connection.call(request, timeout=5).code == 0


def wait_for_send(broker: Broker, topic: str) -> None:
    """Try to send until a message is stored. Raises TimeoutError after a minute."""
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end:
        if send_once(broker, topic):
            return
        time.sleep(0.01)
    raise TimeoutError(f"{broker.kind} took no message within {START_LIMIT_S:.0f} s")


def start(
    kind: str, flush: str, folder: Path, extra: Sequence[str] = (), access: Access | None = None
) -> Broker:
    """Start a name server and a broker with their default configuration; wait until it serves."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random()
    namesrv_port, port = java.free_port(chance), java.free_port(chance)
    metrics_port = java.free_port(chance) if kind in OURS else 0
    # The one difference from the defaults: somebody must be able to ask how late the loop is.
    watched = [f"metricsPromExporterPort={metrics_port}", "metricsExporterType=PROM"]
    (folder / "namesrv.conf").write_text(
        f"listenPort={namesrv_port}\nkvConfigPath={folder}/kvConfig.json\n"
    )
    (folder / "broker.conf").write_text(
        "\n".join(
            [
                f"brokerName=bench-{kind}",
                "brokerClusterName=bench",
                "brokerIP1=127.0.0.1",
                f"listenPort={port}",
                f"namesrvAddr=127.0.0.1:{namesrv_port}",
                f"storePathRootDir={folder}/store",
                f"storePathCommitLog={folder}/store/commitlog",
                f"flushDiskType={'SYNC_FLUSH' if flush == 'sync' else 'ASYNC_FLUSH'}",
                *(watched if metrics_port else []),
                *OURS.get(kind, ()),
                *extra,
                *(access.config(kind, folder) if access else []),
                "",
            ]
        )
    )
    namesrv = _spawn(kind, "namesrv", folder)
    _wait_for(namesrv, namesrv_port, folder / "namesrv.log")
    exec_s = time.monotonic()
    process = _spawn(kind, "broker", folder)
    broker = Broker(kind, flush, folder, port, namesrv, process, metrics_port, exec_s, access)
    try:
        _wait_for(process, port, folder / "broker.log")
    except RuntimeError:
        broker.stop()
        raise
    return broker


def _spawn(kind: str, role: str, folder: Path) -> subprocess.Popen[bytes]:
    config = str(folder / f"{role}.conf")
    if kind == "java":
        heap = "-Xmx2g" if role == "broker" else "-Xmx256m"
        classes = f"{java.fetch_jars()}/*"
        command = ["java", heap, "-cp", classes, JAVA_MAIN[role], "-c", config]
    else:
        command = [sys.executable, "-m", "roquet", role, "-c", config]
    log = (folder / f"{role}.log").open("ab")
    # An installed program has its bytecode, whatever the one who measures has set.
    unwanted = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    inherited = {name: value for name, value in os.environ.items() if name not in unwanted}
    return subprocess.Popen(
        command,
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
        env={**inherited, "ROCKETMQ_HOME": str(folder), "HOME": str(folder)},
    )


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.005)
    process.kill()
    process.wait()
    raise RuntimeError(f"a process did not start:\n{log.read_text()[-2000:]}")
