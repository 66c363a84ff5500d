"""The programs of the official clients of gRPC, and what they need.

They lie in `tests/interop/grpc_clients`; what they need is pinned there and in
`requirements/grpc-client.txt`, and kept beside the RocketMQ jars: it is fetched and built once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.testing.java import REPOSITORY, cache_folder, java_command
from roquet.testing.java_classes import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CLIENTS = REPOSITORY / "tests" / "interop" / "grpc_clients"
REQUIREMENTS = REPOSITORY / "requirements" / "grpc-client.txt"
FETCH_S = 280.0
RUST_S = 1500.0
"""What building the Rust client with its 250 crates may take; it is built once."""


def _run(command: Sequence[str], folder: Path, limit_s: float = FETCH_S) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=limit_s
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def _fetched(name: str, pins: Sequence[Path], fetch: Callable[[Path], None]) -> Path:
    """Return a folder of the cache that `fetch` has filled once for these pins."""
    content = hashlib.sha256(b"".join(path.read_bytes() for path in pins)).hexdigest()[:12]
    folder = cache_folder() / f"grpc-{name}-{content}"
    if not folder.exists():
        draft = folder.with_name(f"{folder.name}.{os.getpid()}")
        draft.mkdir(parents=True)
        fetch(draft)
        try:
            draft.rename(folder)
        except OSError:
            # Another run was first.
            shutil.rmtree(draft)
    return folder


def python_command(folder: Path, endpoint: str) -> list[str]:
    """Return the command of the Python client."""

    def fetch(draft: Path) -> None:
        python = str(draft / "bin" / "python")
        _run([sys.executable, "-m", "venv", "--without-pip", str(draft)], folder)
        uv = str(Path(sys.executable).with_name("uv"))
        pins = ["--require-hashes", "-r", str(REQUIREMENTS)]
        _run([uv, "pip", "install", "-q", "--python", python, *pins], folder)

    found = _fetched("python", [REQUIREMENTS], fetch)
    return [str(found / "bin" / "python"), str(CLIENTS / "python_peer.py"), endpoint]


def java_peer_command(folder: Path, endpoint: str) -> list[str]:
    """Return the command of the Java client."""
    pom = CLIENTS / "pom.xml"

    def fetch(draft: Path) -> None:
        maven = shutil.which("mvn")
        assert maven is not None, "there is no mvn to fetch the Java client"
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={draft}"]
        _run([maven, "-q", "-B", "-f", str(pom), *copy], folder)

    found = _fetched("java", [pom], fetch)
    classes = compiled([CLIENTS / "GrpcPeer.java"], found, cache_folder())
    command = java_command(found, folder, "GrpcPeer", heap="256m", classes=classes)
    command[1:1] = [f"-Dendpoint={endpoint}"]
    return command


def node_command(folder: Path, endpoint: str) -> list[str]:
    """Return the command of the Node.js client."""
    pins = [CLIENTS / "package.json", CLIENTS / "package-lock.json"]

    def fetch(draft: Path) -> None:
        npm = shutil.which("npm")
        assert npm is not None, "there is no npm to fetch the Node.js client"
        for path in pins:
            shutil.copy(path, draft)
        _run([npm, "ci", "--silent", "--ignore-scripts"], draft)

    found = _fetched("node", pins, fetch)
    program = folder / "node_peer.js"
    shutil.copy(CLIENTS / "node_peer.js", program)
    (folder / "node_modules").symlink_to(found / "node_modules")
    return ["node", str(program), endpoint]


def go_command(_: Path, endpoint: str) -> list[str]:
    """Return the command of the Go client; its modules come by their hashes in go.sum."""
    sources, build = CLIENTS / "go", ["go", "build", "-mod=readonly", "-o"]

    def fetch(draft: Path) -> None:
        _run([*build, str(draft / "peer"), "."], sources)

    return [str(_fetched("go", sorted(sources.iterdir()), fetch) / "peer"), endpoint]


def rust_command(_: Path, endpoint: str) -> list[str]:
    """Return the command of the Rust client; its crates come by their hashes in Cargo.lock."""
    sources = CLIENTS / "rust"
    pins = [sources / name for name in ("Cargo.toml", "Cargo.lock", "main.rs")]

    def fetch(draft: Path) -> None:
        cargo = shutil.which("cargo")
        assert cargo is not None, "there is no cargo to build the Rust client"
        target = draft / "target"
        build = [cargo, "build", "--quiet", "--locked", "--target-dir", str(target)]
        _run(build, sources, RUST_S)
        shutil.move(target / "debug" / "peer", draft / "peer")
        shutil.rmtree(target)

    return [str(_fetched("rust", pins, fetch) / "peer"), endpoint]


COMMANDS: Mapping[str, Callable[[Path, str], list[str]]] = {
    "python": python_command,
    "java": java_peer_command,
    "node": node_command,
    "go": go_command,
    "rust": rust_command,
}
