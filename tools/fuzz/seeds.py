"""Inputs for the fuzz targets of the core to begin with: what Java wrote, and what is made by hand.

The vectors are described in `tests/vectors/README.md`; what stands in front of the bytes of some
targets, their source says.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

VECTORS = Path(__file__).parents[2] / "tests" / "vectors"
NOTE = 0x526F_7175_6574_0002
EACH_MAX = 60
"""Seeds of a target at most."""


def seeds() -> dict[str, list[bytes]]:
    """Return the inputs by target."""
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for target, seed in (*frames(), *replication(), *files(), *bodies()):
        if len(found[target]) < EACH_MAX:
            found[target].append(seed)
    return found


def lines(name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a recording."""
    with gzip.open(VECTORS / name, "rt") as file:
        yield from map(json.loads, file)


def frames() -> Iterator[tuple[str, bytes]]:
    """Yield frames and what is in them."""
    seen: defaultdict[tuple[str, int], int] = defaultdict(int)
    for row in lines("broker_frames.jsonl.gz"):
        kind = (row["kind"], row["code"])
        seen[kind] += 1
        if seen[kind] > 4:
            continue
        frame = bytes.fromhex(row["hex"])
        size = int.from_bytes(frame[5:8], "big")
        header, body = frame[8 : 8 + size], frame[8 + size :]
        yield "frame", frame
        yield "header_json", header
        yield "relay", frame
        if kind == ("request", 320):
            yield "batch", body
        if row["dir"] == "c2s":
            yield from (
                ("ingest", bytes([mode, step]) + frame) for mode in (0, 3) for step in (0, 40)
            )
        properties = (json.loads(header).get("extFields") or {}).get("i", "")
        if properties:
            yield "properties", properties.encode()
    ext = b"\0\1a\0\0\0\1g\0\1b\0\0\0\1T"
    yield (
        "header_binary",
        struct.pack(">hBhiii", 310, 0, 513, 7, 0, 2) + b"ok" + struct.pack(">i", len(ext)) + ext,
    )


def replication() -> Iterator[tuple[str, bytes]]:
    """Yield what master and slave said on each connection."""
    said: defaultdict[tuple[int, str], bytes] = defaultdict(bytes)
    for row in lines("ha_frames.jsonl.gz"):
        if row["ha"] == "default" and row.get("hex"):
            said[row["conn"], row["dir"]] += bytes.fromhex(row["hex"])
    for (_, way), data in said.items():
        start = int.from_bytes(data[:8], "big")
        if way == "m2s":
            yield "copier", b"\x0b" + (2 * start).to_bytes(8, "big") + data[:8000]
            yield "copier", b"\x01" + bytes(8) + data[:2000]
        else:
            end = (1 << 30).to_bytes(8, "big")
            yield "feed", b"\x07" + end + data[:2000]


def files() -> Iterator[tuple[str, bytes]]:
    """Yield parts of a store, and edits of one."""
    log = next((VECTORS / "store" / "clean" / "commitlog").iterdir()).read_bytes()
    at = 0
    while (size := int.from_bytes(log[at : at + 4], "big")) > 0 and at + size <= len(log):
        yield "record", log[at : at + min(size, 4000)]
        at += size
    checkpoint = (VECTORS / "store" / "clean" / "checkpoint").read_bytes()[:128]
    yield "checkpoint", checkpoint
    row = struct.pack(">qq", NOTE, 1) + struct.pack(">q", 4) + b"Gone" + struct.pack(">q", 4096)
    yield "note", row
    time = 1_700_000_000_000
    header = struct.pack(">qqqqii", time, time + 9000, 0, 300, 2, 4)
    slots = struct.pack(">iiii", 3, 0, 0, 0)
    entries = bytes(20) + b"".join(
        struct.pack(">iqii", 4 * number, 100 * number, number, number - 1) for number in (1, 2, 3)
    )
    full = struct.pack(">qqqqii", time, time + 9000, 0, 300, 2**31 - 1, 4)
    for mode in range(4):
        front = bytes([mode]) + (800).to_bytes(8, "big")
        yield "index", front + (header + slots + entries).ljust(216, b"\0")
        yield "index", front + (full + slots + entries).ljust(216, b"\0")
        yield "index", front + 2 * (header + slots + entries).ljust(216, b"\0")
    for mode in range(4):
        yield "store", bytes([mode])
        for which in range(24):
            yield "store", bytes([mode, which, 2 + which % 6, 0, 17 * which % 256, 255, 0])


def bodies() -> Iterator[tuple[str, bytes]]:
    """Yield compressed bodies of every kind."""
    plain = b"a body that says it again and again, " * 40
    packed = {0: zlib.compress(plain), 3: zlib.compress(plain)}
    for kind, codec in ((1, "lz4"), (2, "zstd")):
        packed[kind] = pa.Codec(codec).compress(plain, asbytes=True)
    for kind, data in packed.items():
        yield "decompress", bytes([kind]) + data
