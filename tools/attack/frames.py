"""Send hostile frames to every port of a broker and a name server: nothing may come of it.

`python -m tools.attack.frames --frames 5000 [--seed n]`. Each port of each process gets so many:
lengths that lie, headers that are no JSON or the wrong JSON, fields that are missing, huge,
negative or of the wrong type, bodies that are compressed bombs, deep or random, requests that stop
half-way, whole requests of every code, and pops, acknowledgements and their like with a few odd
fields among plausible ones (`pop_fields`). A finding is a process that ends, a traceback in its
output, a good request that has no answer, or memory that grows by more than 64 MiB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from tools.attack import pop_fields
from tools.attack.kills import free_ports, show
from tools.attack.raw import RawClient, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = pop_fields.TOPIC
POP_SHARE = 0.3
"""Of well-formed requests: those of POP with plausible fields."""
GROWTH_MAX = 64 << 20
WARM_SHARE = 5
"""Memory is compared with that after this part of the frames: tables have their first size then."""
ANSWER_S = 30.0
CODES = (
    *range(10, 50), *range(100, 130), *range(200, 240), *range(300, 365), 370, 400, 401, 402, 500,
    *range(513, 520), 900, 901, 902, 903, 904, 1500, 2018, 3000, 3005, *range(200_050, 200_080),
    -1, 0, 2**31 - 1,
)  # fmt: skip
FIELDS = (
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "m", "topic", "queueId", "queueOffset",
    "consumerGroup", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis", "offset",
    "subscription", "subVersion", "expressionType", "group", "timestamp", "clientID", "isForce",
    "producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback", "msgId",
    "brokerName", "brokerAddr", "clusterName", "haServerAddr", "brokerId", "bodyCrc32", "perm",
    "readQueueNums", "writeQueueNums", "topicFilterType", "order", "defaultTopic", "attributes",
    "namespace", "key", "value", "begin", "end", "maxNum", "originMsgId", "delayLevel",
)  # fmt: skip
VALUES = (
    "", "0", "-1", "1_0", "NaN", "1e9", str(2**31), str(2**63), str(-(2**63)), "9" * 4000, "true",
    "null", "\0" * 50, "\n", "../../etc/passwd", "%RETRY%x", "%DLQ%x", TOPIC,
    "SCHEDULE_TOPIC_XXXX", "TBW102", "a" * 300, "\u00e4\u4e2d\U0001f600", "{}", "[[1]]",
    "127.0.0.1:1", "*", "(((", "x=1 AND",
)  # fmt: skip


MESSAGE = {
    "producerGroup": "p",
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "0",
    "properties": "UNIQ_KEY\x01u\x02",
    "reconsumeTimes": "0",
}
"""A send that makes the topic, so that there is something to pop."""


def hostile(rng: random.Random) -> bytes:
    """Draw one frame."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 400))
    if kind == 1:
        sizes = (0, 1, 3, 4, -1, -(2**31), 2**31 - 1, 2**24, 2**28, rng.randrange(2**31))
        return struct.pack(">ii", rng.choice(sizes), rng.choice(sizes)) + rng.randbytes(40)
    body = draw_body(rng)
    if kind == 2:
        head = rng.choice(
            (b"", b"null", b"[]", b"{", b"[" * 5000, b'{"code":"x"}', b'{"code":NaN}')
        )
        return struct.pack(">ii", 4 + len(head) + len(body), len(head)) + head + body
    if kind == 3:
        # A binary header of noise behind a right length.
        head = struct.pack(">hBhiiI", rng.choice(CODES) & 0x7FFF, 0, 0, 1, 0, rng.randrange(2**32))
        head += rng.randbytes(rng.randrange(60))
        return struct.pack(">iI", 4 + len(head) + len(body), 1 << 24 | len(head)) + head + body
    frame = request(rng, body)
    return frame[: rng.randrange(len(frame))] if kind == 4 else frame


def request(rng: random.Random, body: bytes, odd_header: float = 0.03) -> bytes:
    """Draw a frame that is well formed around fields that are not; some have an odd header."""
    if rng.random() < POP_SHARE:
        code, fields, body = pop_fields.drawn(rng)
        opaque, flag = rng.choice((1, -1, 2**31 - 1)), rng.choice((0, 0, 0, 0, 2))
        common = {"code": code, "language": "JAVA", "version": 513}
        return encode({**common, "opaque": opaque, "flag": flag, "extFields": fields}, body)
    names = rng.sample(FIELDS, rng.randrange(0, len(FIELDS)))
    ext: dict[str, object] = {name: rng.choice(VALUES) for name in names}
    if rng.random() < 3 * odd_header:
        ext[rng.choice(FIELDS)] = rng.choice((None, 5, [], {"a": "b"}, True, 1.5))
    header: dict[str, object] = {
        "code": rng.choice(CODES),
        "language": "JAVA",
        "version": 513,
        "opaque": rng.choice((1, -1, 2**31 - 1)),
        "flag": rng.choice((0, 0, 0, 0, 1, 2)),
        "extFields": ext,
    }
    if rng.random() < odd_header:
        header[rng.choice(tuple(header))] = rng.choice((2**31, -1, "x", None, [], 1.5, True))
    return encode(header, body)


BOMB = zlib.compress(bytes(1 << 22))


def draw_body(rng: random.Random) -> bytes:
    """Draw a body."""
    return rng.choice((
        lambda: b"",
        lambda: rng.randbytes(rng.randrange(300)),
        lambda: b"{" * 2000,
        lambda: b'{"a":' * 400,
        lambda: b'{"consumerDataSet":[{"groupName":1}],"producerDataSet":{}}',
        lambda: json.dumps({"mqSet": [{"topic": TOPIC, "queueId": 2**40}] * 50}).encode(),
        lambda: json.dumps({"topicConfigTable": {"x" * 300: {"readQueueNums": -1}}}).encode(),
        lambda: BOMB,
        lambda: struct.pack(">i", -5) + rng.randbytes(80),
        lambda: bytes(1 << 16),
    ))()  # fmt: skip


def http(rng: random.Random) -> bytes:
    """Draw something for a port that speaks HTTP."""
    return rng.choice((
        lambda: b"GET /metrics HTTP/1.1\r\n" + b"x: y\r\n" * rng.randrange(5000) + b"\r\n",
        lambda: b"GET " + b"/a" * rng.randrange(40_000) + b" HTTP/1.1\r\n\r\n",
        lambda: b"POST / HTTP/1.1\r\ncontent-length: -5\r\n\r\n" + rng.randbytes(50),
        lambda: b"GET /metrics HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nffffffff\r\n",
        lambda: hostile(rng),
    ))()  # fmt: skip


def replica(rng: random.Random) -> bytes:
    """Draw what a false slave could say: offsets of 8 bytes, good, bad and torn."""
    offsets = (0, -1, 1, 2**63 - 1, -(2**63), rng.randrange(1 << 20), rng.randrange(2**63))
    said = struct.pack(">q", rng.choice(offsets)) * rng.randrange(1, 300)
    return said[: len(said) - rng.choice((0, 0, 3))] if rng.random() < 0.8 else hostile(rng)


DRAWN = {"metrics": http, "replication": replica}
"""What a port that speaks something else than frames of RocketMQ is sent."""


class Victim:
    """A server process with its ports."""

    def __init__(self, name: str, folder: Path, ports: dict[str, int], *arguments: str) -> None:
        """`ports`: by what they are for; `arguments`: of the command `roquet`."""
        self.name = name
        self.ports = ports
        self._output = folder / f"{name}.out"
        with self._output.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "roquet", *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "HOME": str(folder)},
            )

    def rss(self) -> int:
        """Bytes of memory it holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def findings(self) -> list[str]:
        """Return what its process and its output show."""
        found: list[str] = []
        if self.process.poll() is not None:
            found.append(f"{self.name} ended with {self.process.returncode}")
        text = self._output.read_text(errors="replace")
        for mark in ("Traceback (most recent call last)", "panicked at"):
            if mark in text:
                at = text.index(mark)
                found.append(f"{self.name}: {text[max(0, at - 300) : at + 1500]}")
        return found


def flood(port: int, frames: int, rng: random.Random, use: str) -> int:
    """Send frames over connections of at most 20 each; return the bytes that were answered."""
    draw = DRAWN.get(use)
    sent = answered = 0
    while sent < frames:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5.0) as it:
            # A frame that ends its connection hides the ones behind it: half are well formed.
            formed = rng.random() < 0.5
            for _ in range(rng.randrange(1, 21)):
                sent += 1
                if draw is not None:
                    it.sendall(draw(rng))
                else:
                    it.sendall(request(rng, draw_body(rng)) if formed else hostile(rng))
            it.settimeout(rng.choice((0.01, 0.05)))
            while part := it.recv(1 << 16):
                answered += len(part)
    return answered


def good(address: str, code: int, ext: dict[str, str], body: bytes = b"") -> None:
    """Ask something right. Raises OSError when nobody answers in time."""
    end = time.monotonic() + ANSWER_S
    while True:
        try:
            with RawClient(address) as client:
                client.call(code, ext, body)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def attack(victims: Sequence[Victim], frames: int, rng: random.Random) -> list[str]:
    """Flood every port of every process; return what was found."""
    findings: list[str] = []
    for victim in victims:
        for use, port in victim.ports.items():
            flood(port, frames // WARM_SHARE, rng, use)
            before = victim.rss() if victim.process.poll() is None else 0
            rest = frames - frames // WARM_SHARE
            answered = flood(port, rest, rng, use)
            asked = victim.ports["listen"]
            try:
                good(f"127.0.0.1:{asked}", 25 if victim.name == "broker" else 206, {})
            except (OSError, ValueError) as error:
                findings.append(f"{victim.name} answers no good request: {error}")
            found = victim.findings()
            if found:
                return findings + found
            grown = victim.rss() - before
            text = f"{frames} frames, {answered} bytes of answers, memory {grown / 2**20:+.1f} MiB"
            show(f"{victim.name} {use}: {text}")
            if grown > GROWTH_MAX:
                findings.append(f"{victim.name} grew by {grown} bytes")
    return findings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and say what was found; 0 when that is nothing."""
    parser = argparse.ArgumentParser(prog="python -m tools.attack.frames", description=__doc__)
    parser.add_argument("--frames", type=int, default=5000, help="for each port")
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    rng = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="roquet-frames-"))
    (namesrv, metrics), (broker, other) = free_ports(), free_ports()
    show(f"seed {seed}")
    conf = folder / "broker.conf"
    conf.write_text(
        f"brokerName={pop_fields.BROKER}\nlistenPort={broker}\nhaListenPort={other}\nbrokerIP1=127.0.0.1\nmetricsExporterType=PROM\n"
        f"metricsPromExporterPort={metrics}\nbrokerRole=ASYNC_MASTER\nnamesrvAddr=127.0.0.1:{namesrv}\n"
        f"storePathRootDir={folder / 'store'}\nmappedFileSizeCommitLog={1 << 24}\n"
    )
    victims = [
        Victim("namesrv", folder, {"listen": namesrv}, "namesrv", "--listen-port", str(namesrv)),
        Victim(
            "broker",
            folder,
            {"listen": broker, "fast": broker - 2, "replication": other, "metrics": metrics},
            *("broker", "-c", str(conf)),
        ),
    ]
    try:
        for victim in victims:
            good(f"127.0.0.1:{victim.ports['listen']}", 206, {})
        good(f"127.0.0.1:{broker}", 10, MESSAGE, b"a message")
        findings = attack(victims, given.frames, rng)
    finally:
        for victim in victims:
            victim.process.kill()
    for finding in findings:
        show(finding)
    show(f"{len(findings)} findings")
    if findings:
        show(f"kept: {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
