"""Make the descriptor set of RocketMQ's gRPC messages: `python -m tools.grpc_messages`.

The definitions are those of a package of the registry, pinned by hash in
`requirements/grpc-messages.txt`; they are not kept in the repository. Nothing of the package is
run: each generated module holds its file's descriptor as one bytes literal, which is cut out.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINS = ROOT / "requirements" / "grpc-messages.txt"
TARGET = ROOT / "src" / "roquet" / "proxy" / "messages.binpb"
MODULES = ("definition_pb2", "service_pb2")
FETCH_S = 280.0


def descriptor_in(source: str) -> bytes:
    """Return the serialized descriptor in a generated module. Raises ValueError."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "AddSerializedFile"
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, bytes)
        ):
            return node.args[0].value
    raise ValueError("the module holds no descriptor")


def as_set(files: list[bytes]) -> bytes:
    """Return a FileDescriptorSet: field 1, once for each file."""
    return b"".join(b"\x0a" + _varint(len(file)) + file for file in files)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def main() -> None:
    """Fetch the package, write the descriptor set."""
    with tempfile.TemporaryDirectory(prefix="roquet-grpc-") as folder:
        uv = str(Path(sys.executable).with_name("uv"))
        pins = ["--no-deps", "--require-hashes", "-r", str(PINS)]
        python = ["--python", sys.executable]
        command = [uv, "pip", "install", "-q", *python, "--target", folder, *pins]
        subprocess.run(command, check=True, timeout=FETCH_S)
        generated = Path(folder) / "rocketmq" / "grpc_protocol"
        files = [descriptor_in((generated / f"{name}.py").read_text()) for name in MODULES]
    draft = TARGET.with_suffix(".new")
    draft.write_bytes(as_set(files))
    draft.replace(TARGET)


if __name__ == "__main__":
    main()
