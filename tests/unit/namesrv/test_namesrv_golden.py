"""Everything that Java 5.5.0 was recorded asking a name server is answered as its own did."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from namesrv_harness import Asker, looped, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAMES = Path(__file__).parents[2] / "vectors" / "namesrv_frames.jsonl.gz"


def exchanges() -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (connection, request frame, Java's answer) in the order they happened."""
    with gzip.open(FRAMES, "rt") as lines:
        frames = [json.loads(line) for line in lines]
    for index, frame in enumerate(frames):
        if frame["dir"] != "c2s":
            continue
        answer = next(
            later
            for later in frames[index:]
            if later["dir"] == "s2c"
            and later["conn"] == frame["conn"]
            and later["opaque"] == frame["opaque"]
        )
        yield frame["conn"], bytes.fromhex(frame["hex"]), bytes.fromhex(answer["hex"])


def split(frame: bytes) -> tuple[dict[str, Any], bytes]:
    header_length = struct.unpack(">i", frame[4:8])[0] & 0xFFFFFF
    return json.loads(frame[8 : 8 + header_length]), frame[8 + header_length :]


async def raw_answer(asker: Asker, frame: bytes) -> bytes:
    asker.writer.write(frame)
    length = await asker.reader.readexactly(4)
    return length + await asker.reader.readexactly(struct.unpack(">i", length)[0])


@looped
async def test_recorded_requests_are_answered_as_java_did(tmp_path: Path) -> None:
    asked = 0
    async with serving(tmp_path) as served:
        askers: dict[int, Asker] = {}
        for connection, request, expected in exchanges():
            if connection not in askers:
                askers[connection] = await served.connect()
            answer = await raw_answer(askers[connection], request)
            assert split(answer) == split(expected), request
            asked += 1
    assert asked == 94
