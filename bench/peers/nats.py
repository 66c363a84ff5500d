"""NATS JetStream: one server, one stream in files without replicas."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from typing import TYPE_CHECKING

from bench.peers.server import Peer, spawn
from roquet.testing.java import cache_folder, free_port

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "v2.15.2"
MODULE = "github.com/nats-io/nats-server/v2"


def fetch() -> Path:
    """Return the server's program, built from the Go module when it is not there yet."""
    folder = cache_folder() / f"nats-server-{VERSION}"
    program = folder / "nats-server"
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            raise RuntimeError("there is no go to build nats-server")
        environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-mod=mod"}
        subprocess.run([go, "install", f"{MODULE}@{VERSION}"], check=True, env=environment)
    return program


def launch(folder: Path) -> Peer:
    """Start the server with its defaults."""
    folder.mkdir(parents=True)
    port = free_port(random.Random())
    where = ["--addr", "127.0.0.1", "--port", str(port), "--store_dir", str(folder / "store")]
    process = spawn([str(fetch()), "--jetstream", *where], folder, port)
    return Peer("nats", f"127.0.0.1:{port}", process)


def start(folder: Path, topic: str, loadgen: Path) -> Peer:
    """Start the server, and make the stream that the loads use."""
    peer = launch(folder)
    command = [str(loadgen), "create", peer.address, topic, "--wire", "nats", "--secs", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        peer.stop()
        raise RuntimeError(f"the stream was not made: {done.stderr}")
    return peer
