"""Clients of other brokers beside ours: environments, servers, and one round of each's cases."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import roquet
from bench.peers import kafka, nats
from bench.peers.server import Peer, spawn
from roquet.testing.java import cache_folder, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TOPIC = "Bench"
QUEUES = 4
LIMIT_S = 280.0
ROOT = Path(__file__).resolve().parents[3]
_JOINING_S = 4.0
"""How long a new group of a gRPC client takes until it asks for messages."""


@dataclasses.dataclass(frozen=True)
class Client:
    """One client, the file of its pins, its cases and how its server is started."""

    name: str
    pins: str
    program: str
    cases: tuple[str, ...]
    start: Callable[[Path], Peer]
    prepare: tuple[str, ...] = ()
    """What is run once before the rounds."""


def start_kafka(folder: Path) -> Peer:
    """Start Kafka with the topic."""
    return kafka.start(folder, TOPIC, QUEUES)


def start_roquet(folder: Path) -> Peer:
    """Start our broker with its gRPC port and the topic."""
    folder.mkdir(parents=True)
    chance = random.Random()
    namesrv, port, grpc = free_port(chance), free_port(chance), free_port(chance)
    where = ["--namesrv-port", str(namesrv), "--port", str(port), "--grpc-port", str(grpc)]
    command = [sys.executable, "-m", "roquet", "dev", "--no-console", "--proxy", *where]
    process = spawn([*command, "--data", str(folder / "data")], folder, grpc)
    peer = Peer(f"rmq://127.0.0.1:{namesrv}", f"127.0.0.1:{grpc}", process)
    with roquet.sync.connect(peer.kind) as mq:
        mq.admin().topics.create(TOPIC, QUEUES, attributes={"message.type": "NORMAL"})
    return peer


CLIENTS = (
    Client(
        "aiokafka 0.14.0",
        "bench-aiokafka.txt",
        "aiokafka_client.py",
        ("submit", "send", "push", "pull"),
        start_kafka,
        prepare=("warm",),
    ),
    Client(
        "nats-py 2.16.0",
        "bench-nats.txt",
        "nats_client.py",
        ("submit", "send", "push", "pull"),
        nats.launch,
        prepare=("create",),
    ),
    Client(
        "rocketmq-python-client 5.1.2",
        "grpc-client.txt",
        "grpc_client.py",
        ("sync submit", "sync send", "sync push"),
        start_roquet,
    ),
)


def environment(pins: str) -> Path:
    """Return the Python of an environment with these pins, made when it is not there yet."""
    path = ROOT / "requirements" / pins
    content = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"{path.stem}-{content}"
    if not folder.exists():
        # Environments name their own folder, so it is removed again when something fails.
        try:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
            uv = str(Path(sys.executable).with_name("uv"))
            install = [uv, "pip", "install", "-q", "--python", str(folder / "bin" / "python")]
            subprocess.run([*install, "--require-hashes", "-r", str(path)], check=True)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return folder / "bin" / "python"


def measured(count: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return microseconds of CPU a message by client and case, one figure a round."""
    found: dict[str, dict[str, list[float]]] = {}
    for client in CLIENTS:
        with _running(client) as run:
            for case in client.prepare:
                run([case], 1)
            if "pull" in client.cases:
                run(["submit"], count + count // 4)  # messages to read
            figures: dict[str, list[float]] = {case: [] for case in client.cases}
            for _ in range(rounds):
                for case in client.cases:
                    figures[case].append(run([case], count))
            found[client.name] = figures
            print(
                client.name, {case: round(statistics.median(it), 1) for case, it in figures.items()}
            )
    return found


@contextlib.contextmanager
def _running(client: Client) -> Iterator[Callable[[Sequence[str], int], float]]:
    python = environment(client.pins)
    program = Path(__file__).with_name(client.program)
    with tempfile.TemporaryDirectory(prefix="roquet-bench-peer-") as folder:
        peer = client.start(Path(folder) / "server")

        def run(cases: Sequence[str], count: int) -> float:
            command = [str(python), str(program), peer.address, TOPIC, str(count), *cases]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                try:
                    line = process.stdout.readline()
                    if line.strip() == "ready":
                        _feed(peer.kind, count // 8)
                        line = process.stdout.readline()
                    process.wait(LIMIT_S)
                except BaseException:
                    process.kill()
                    raise
            if process.returncode or not line:
                raise RuntimeError(f"{client.name}: {cases} ended with {process.returncode}")
            figure: float = json.loads(line)[cases[0]]
            return figure

        try:
            yield run
        finally:
            peer.stop()


def _feed(url: str, count: int) -> None:
    """Send what a consumer waits for, once it has had time to join."""
    time.sleep(_JOINING_S)
    with roquet.sync.connect(url) as mq, mq.producer() as producer:
        for _ in range(count):
            producer.submit(TOPIC, b"x" * 1024)
        producer.flush()
