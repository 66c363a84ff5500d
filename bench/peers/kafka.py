"""Kafka: one node that is broker and controller (KRaft), with the heap its scripts give it."""

from __future__ import annotations

import random
import shutil
import socket
import struct
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from bench.peers.server import START_LIMIT_S, Peer, spawn
from roquet.testing.java import cache_folder, free_port

VERSION = "4.1.1"
JVM = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
METADATA = (3, 4)


def fetch() -> Path:
    """Return the folder of the jars, fetched when they are not there yet."""
    pom = Path(__file__).with_name("pom.xml")
    return fetch_jars(pom, f"kafka-{VERSION}", f"kafka_2.13-{VERSION}.jar")


def fetch_jars(pom: Path, name: str, last: str) -> Path:
    """Return the folder `name` of what a pom needs at run time; complete when `last` is there.

    Raises RuntimeError where there is no Maven.
    """
    folder = cache_folder() / name
    if not (folder / last).exists():
        maven = shutil.which("mvn")
        if maven is None:
            raise RuntimeError(f"there is no mvn to fetch {name}")
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        command = [maven, "-q", "-B", "-f", str(pom), *copy, "-DincludeScope=runtime"]
        subprocess.run(command, check=True)
    return folder


def start(folder: Path, topic: str, queues: int) -> Peer:
    """Start the node with its defaults, and make the topic that the loads use."""
    folder.mkdir(parents=True)
    chance = random.Random()
    port, control = free_port(chance), free_port(chance)
    config = folder / "server.properties"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{control}",
        "log.dirs": str(folder / "logs"),
        "num.partitions": str(queues),
        "offsets.topic.replication.factor": "1",
    }
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = ["java", *JVM, "-cp", f"{fetch()}/*"]
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    if cluster.startswith("-"):
        cluster = f"A{cluster[1:]}"
    made = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)]
    subprocess.run(made, check=True, capture_output=True)
    process = spawn([*java, "kafka.Kafka", str(config)], folder, port)
    peer = Peer("kafka", f"127.0.0.1:{port}", process)
    try:
        _make_topic(port, topic)
    except BaseException:
        peer.stop()
        raise
    return peer


def _make_topic(port: int, topic: str) -> None:
    """Ask for a topic until all its partitions have a leader: asking makes it."""
    client, name = b"bench", topic.encode()
    body = struct.pack(">hhih", *METADATA, 1, len(client)) + client
    body += struct.pack(">ih", 1, len(name)) + name + b"\x01"
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.settimeout(10)
            connection.sendall(struct.pack(">i", len(body)) + body)
            stream = connection.makefile("rb")
            (size,) = struct.unpack(">i", stream.read(4))
            answer = stream.read(size)
        # The topic's entry: its error, its name, whether it is internal, its partitions.
        at = answer.find(struct.pack(">h", len(name)) + name)
        (code,) = struct.unpack_from(">h", answer, at - 2)
        if at > 0 and code == 0:
            (count,) = struct.unpack_from(">i", answer, at + 2 + len(name) + 1)
            if count > 0:
                time.sleep(1)
                return
        time.sleep(0.2)
    raise TimeoutError("Kafka did not make the topic")
