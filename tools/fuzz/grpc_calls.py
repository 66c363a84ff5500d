"""Every method of gRPC with drawn fields, and bad HTTP/2, against a process of its own.

`python -m tools.fuzz.grpc_calls --seconds 60 [--seed s] [--mode cluster|local]`

Requests are drawn over the message definitions: each field is left out, empty, huge, negative, or
taken from what a client of the topic would say, receipt handles of its own messages included; some
are then changed as bytes. Metadata is drawn as well. Beside that connections of HTTP/2 are begun
and broken in ten ways. A finding is: an answer that nobody expected to give (`internal server
error` and nothing else), a status of gRPC that no rule names, a call without an answer, a process
that ends, an error in its log, and more than 64 MiB of memory above what it had when it was warm.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import random
import shutil
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped]  # has no types

from roquet.proxy import messages as pb
from tools.attack.grpc_client import Failed, GrpcClient
from tools.faults.crash import say
from tools.faults.proxy.world import GROUP, TOPIC, World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RSS_MAX = 64 << 20
WARM_CALLS = 400
CALL_S = 30.0
DEPTH_MAX = 6
UNEXPECTED = "internal server error"
STATUSES = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        # An answer that came behind the end of the client's patience.
        grpc.StatusCode.CANCELLED,
    }
)
TEXTS = (
    "",
    " ",
    "\0",
    "a\nb",
    "x" * 65_535,
    "\U0001f600" * 300,
    "%RETRY%g",
    "%DLQ%g",
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "TBW102",
    "CID_RMQ_SYS_x",
    "0 1 2 3 4 5 6 7 8",
    "0 99999999999999999999 60000 0 0 one 0 0 0",
    "-1 -1 -1 -1 -1 one -1 -1 -1",
    "F" * 32 + "one",
    "7" * 32 + "x" * 300,
    "*",
    "a || b",
    "a = 1 AND (b BETWEEN 1 AND 2)",
    "((((((((",
    "\x01\x02",
)
NUMBERS = (0, 1, -1, 2, 3, 7, 127, 4096, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**32 - 1)
METADATA = (
    ("authorization", "MQv2-HMAC-SHA1"),
    ("authorization", "x" * 3000),
    ("authorization", "MQv2-HMAC-SHA1 Credential=, Signature=zz, ="),
    ("x-mq-date-time", ""),
    ("x-mq-client-version", "9" * 500),
    ("x-mq-language", "\x7f"),
    ("x-mq-channel-id", "0"),
    ("x-mq-namespace", "n" * 2000),
    ("grpc-previous-rpc-attempts", "1"),
    ("x-bin", b"\xff\x00"),
)
IDENTITIES = ("", "  ", "fuzz", "c" * 1024, "c" * 1025)


class Draws:
    """Draws messages."""

    def __init__(self, rng: random.Random) -> None:
        """Draw by a generator; `handles` are of messages that were received."""
        self.rng = rng
        self.handles: list[str] = []

    def fill(self, message: Any, depth: int = 0) -> None:
        """Set some of the fields of a message."""
        rng = self.rng
        for field in message.DESCRIPTOR.fields:
            if rng.random() < 0.25 or (depth > DEPTH_MAX and field.message_type is not None):
                continue
            if field.is_repeated:
                self._repeat(message, field, depth)
            elif field.message_type is not None:
                getattr(message, field.name).SetInParent()
                self.fill(getattr(message, field.name), depth + 1)
            else:
                self._put(functools.partial(setattr, message, field.name), field)

    def _repeat(self, message: Any, field: Any, depth: int) -> None:
        rng, target = self.rng, getattr(message, field.name)
        count = rng.choice((0, 1, 1, 2, 3, 40 if depth else 300))
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for _ in range(count):
                target[self.text(field.name)] = self.text(field.name)
            return
        for _ in range(count):
            if field.message_type is None:
                self._put(target.append, field)
            else:
                self.fill(target.add(), depth + 1)

    def _put(self, put: Callable[[Any], None], field: Any) -> None:
        kinds = (field.CPPTYPE_STRING, field.CPPTYPE_BOOL, field.CPPTYPE_ENUM)
        value: Any
        if field.cpp_type == kinds[0]:
            value = self.text(field.name)
            if field.type == field.TYPE_BYTES:
                value = value.encode() * self.rng.choice((1, 1, 80))
        elif field.cpp_type == kinds[1]:
            value = self.rng.random() < 0.5
        elif field.cpp_type == kinds[2]:
            value = self.rng.choice((0, 1, 2, 3, 4, 5, 9, -1, 2**31 - 1))
        elif field.cpp_type in {field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE}:
            value = self.rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
        else:
            value = self.rng.choice(NUMBERS)
        # A number may not fit into its field.
        with contextlib.suppress(ValueError):
            put(value)

    def text(self, name: str) -> str:
        """Return a text for a field of this name."""
        rng = self.rng
        if rng.random() < 0.6:
            if name == "name":
                return rng.choice((TOPIC, TOPIC, GROUP, "one", "two"))
            if "handle" in name and self.handles:
                handle = rng.choice(self.handles)
                if rng.random() < 0.5:
                    parts = handle.split(" ")
                    parts[rng.randrange(len(parts))] = rng.choice(("0", "-1", "", "9" * 25, "two"))
                    handle = " ".join(parts)[: rng.choice((len(handle), 9, 500))]
                return handle
            if name in {"message_id", "transaction_id", "recall_handle"}:
                return f"01{rng.getrandbits(128):032X}"
        return rng.choice(TEXTS)

    def data(self, message: Any) -> bytes:
        """Return the bytes of a message, some of them changed."""
        data = bytearray(message.SerializeToString())
        chance = self.rng.random()
        if chance < 0.1 and data:
            for _ in range(self.rng.randrange(1, 8)):
                data[self.rng.randrange(len(data))] = self.rng.randrange(256)
        elif chance < 0.15:
            data = data[: self.rng.randrange(len(data) + 1)]
        elif chance < 0.2:
            # Unknown fields, groups, and messages within messages without end.
            data += self.rng.choice((b"\x9a\x06\x01x" * 500, b"\xf3\x7f" * 90, b"\x0a\x80" * 300))
        return bytes(data)


def one_call(client: GrpcClient, channel: Any, draws: Draws, name: str) -> str:
    """Make one drawn call; return what came. Raises Finding as AssertionError."""
    rng = draws.rng
    request_type, answer_type = pb.methods()[name]
    request = request_type()
    draws.fill(request)
    data = draws.data(request)
    metadata = [("x-mq-client-id", rng.choice(IDENTITIES)), *rng.sample(METADATA, rng.randrange(3))]
    if rng.random() < 0.7:
        metadata = list(client.metadata)
    path, wait_s = f"/{pb.SERVICE}/{name}", CALL_S
    if name in {"ReceiveMessage", "PullMessage", "Telemetry"}:
        wait_s = rng.choice((0.05, 0.3))
    try:
        if name == "Telemetry":
            parts = channel.stream_stream(path)(iter([data]), timeout=wait_s, metadata=metadata)
            answers = list(parts)
        else:
            call = channel.unary_stream(path)(data, timeout=wait_s, metadata=metadata)
            answers = list(call)
    except grpc.RpcError as error:
        status: Any = error.code()
        details = str(error.details())
        if details == "Invalid metadata":
            return "not sent"  # grpcio looks at it first
        if status is grpc.StatusCode.INTERNAL and "protobuf" in details:
            return "no protobuf"
        waits = wait_s == CALL_S and status is grpc.StatusCode.DEADLINE_EXCEEDED
        assert status in STATUSES, f"{name}: {status.name} {details[:200]}"
        assert not waits, f"{name}: no answer"
        return str(status.name)
    said = ""
    for part in answers:
        answer = answer_type.FromString(part)
        if "status" in answer.DESCRIPTOR.fields_by_name and answer.HasField("status"):
            said = str(answer.status.code)
            assert answer.status.message != UNEXPECTED, f"{name}: {request!s:.600}"
        entries = getattr(answer, "entries", ())
        assert all(entry.status.message != UNEXPECTED for entry in entries), f"{name}: {request}"
    return said


# --- HTTP/2 ----------------------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04\x00" + bytes(4)
DATA, HEADERS, RESET, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 8, 9


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    """Return a frame."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + struct.pack(">I", stream) + payload


def block(*more: tuple[bytes, bytes]) -> bytes:
    """Return headers of a call, each short enough for one byte of length."""
    rows = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/" + pb.SERVICE.encode() + b"/SendMessage"),
        (b"content-type", b"application/grpc"),
        (b"x-mq-client-id", b"raw"),
        *more,
    )
    made = (b"\x00" + bytes([len(k)]) + k + bytes([len(v)]) + v for k, v in rows)
    return b"".join(made)


def attack(port: int, rng: random.Random) -> str:
    """Begin a connection and break it in a drawn way."""
    streams = range(1, 2 * rng.randrange(1, 2000), 2)
    reset = struct.pack(">I", 8)
    kinds: dict[str, Callable[[], bytes]] = {
        "rapid reset": lambda: b"".join(
            frame(HEADERS, n, block(), 4) + frame(RESET, n, reset) for n in streams
        ),
        "continuation flood": lambda: (
            frame(HEADERS, 1, block(), 0) + frame(CONTINUATION, 1, b"\x00\x01a\x01b") * 5000
        ),
        "settings flood": lambda: frame(SETTINGS, 0) * 5000,
        "ping flood": lambda: frame(PING, 0, bytes(8)) * 5000,
        "header bomb": lambda: frame(
            HEADERS, 1, block() + b"\x40\x01a\x7e" + b"v" * 126 + b"\xbe" * 8000, 4
        ),
        "empty data": lambda: frame(HEADERS, 1, block(), 4) + frame(DATA, 1) * 5000,
        "empty streams": lambda: b"".join(frame(HEADERS, n, block(), 5) for n in streams),
        "window overflow": lambda: frame(WINDOW, 0, b"\x7f\xff\xff\xff") * 3,
        "torn message": lambda: (
            frame(HEADERS, 1, block(), 4) + frame(DATA, 1, b"\x00\x7f\xff\xff\xff" + b"x" * 900)
        ),
        "noise": lambda: rng.randbytes(rng.randrange(1, 5000)),
        "noisy frames": lambda: b"".join(
            frame(rng.randrange(12), rng.randrange(5), rng.randbytes(40), rng.randrange(256))
            for _ in range(rng.randrange(1, 200))
        ),
    }
    name = rng.choice(list(kinds))
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5.0) as link:
        link.settimeout(rng.choice((0.01, 0.5)))
        link.sendall(PREFACE + kinds[name]())
        while link.recv(1 << 16):
            pass
    return name


# --- a run -----------------------------------------------------------------------------------


def run(folder: Path, mode: str, seconds: float, rng: random.Random) -> str:
    """Fuzz for so long. Raises AssertionError for a finding."""
    world = World(folder)
    target = world.with_pulls(mode)
    seen: collections.Counter[str] = collections.Counter()
    names, draws = sorted(pb.methods()), Draws(rng)
    try:
        world.start(with_proxy=mode == "cluster")
        channel = grpc.insecure_channel(world.endpoint)
        with GrpcClient(world.endpoint, "fuzz") as client:
            warm, end, count = 0, time.monotonic() + seconds, 0
            while time.monotonic() < end or count < WARM_CALLS:
                if count % 50 == 0:
                    _collect(client, draws)
                if count == WARM_CALLS:
                    warm = target.rss()
                name = rng.choice(names)
                seen[f"{name} {one_call(client, channel, draws, name)}"] += 1
                if rng.random() < 0.1:
                    seen[attack(world.proxy.port, rng)] += 1
                count += 1
                process = target.process
                assert process is not None, "it was started"
                assert process.poll() is None, "it has ended"
            channel.close()
            assert client.send(TOPIC, [b"after"]).status.code == 20000, "it serves as before"
        more = target.rss() - warm
        text = (target.folder / f"{target.name}.out").read_text(errors="replace")
        assert "Traceback" not in text, text[text.index("Traceback") - 300 :][:3000]
        assert more <= RSS_MAX, f"{more >> 20} MiB more"
    finally:
        world.stop()
    for name, times in sorted(seen.items()):
        say(f"  {name}: {times}")
    return (
        f"{count} calls, {sum(seen.values()) - count} attacks: nothing found, {more >> 10} KiB more"
    )


def _collect(client: GrpcClient, draws: Draws) -> None:
    """Have handles of real messages."""
    with contextlib.suppress(Failed):
        client.send(TOPIC, [b"handle"])
        _, found = client.receive(TOPIC, GROUP, wait_ms=5000)
        handles = [each.system_properties.receipt_handle for each in found]
        draws.handles = [*draws.handles, *handles][-64:]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and say what was found; 0 for nothing."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz.grpc_calls", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="0 draws one")
    parser.add_argument("--mode", choices=("cluster", "local"), default="cluster")
    given = parser.parse_args(arguments)
    seed = given.seed or random.SystemRandom().randrange(1, 2**32)
    say(f"seed {seed}")
    folder = Path(tempfile.mkdtemp(prefix="roquet-fuzz-grpc-"))
    try:
        say(run(folder, given.mode, given.seconds, random.Random(seed)))
    except AssertionError as finding:
        say(f"FAILED: {finding}\nkept: {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
