"""The threads that copy a log, with the test at the other end."""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import json
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from roquet._native import LogLink, Store, feed_log, follow_log, log_limit
from roquet.ha.frames import HEADER, REPORT
from roquet.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE = 1 << 20
VECTORS = Path(__file__).parents[2] / "vectors" / "ha_frames.jsonl.gz"
FEED: dict[str, Any] = {
    "tls": None,
    "handshake_ms": 60_000,
    "batch": 32_768,
    "heartbeat_ms": 60_000,
    "housekeeping_ms": 120_000,
    "bytes_per_second": 0,
    "linger_ms": 1,
}
"""No heartbeat comes into a story unless it is told."""


@contextlib.contextmanager
def opened(root: Path, **more: str | int | bool) -> Iterator[Store]:
    config: dict[str, str | int | bool] = {
        "storePathRootDir": str(root),
        "mappedFileSizeCommitLog": FILE,
        "mappedFileSizeConsumeQueue": 20_000,
        "maxHashSlotNum": 500,
        "maxIndexNum": 2_000,
        **more,
    }
    store = Store.open(config)
    store.start()
    try:
        yield store
    finally:
        store.close()


def fill(store: Store, count: int, size: int = 1_000) -> None:
    for number in range(count):
        status = store.put("T", 0, b"%d:" % number + bytes(size), b"")[0]
        assert status == PutStatus.PUT_OK


class Peer:
    """The other end of a thread's connection."""

    def __init__(self, start: Callable[[int], LogLink]) -> None:
        theirs, self.socket = socket.socketpair()
        self.socket.settimeout(60)
        self.link = start(theirs.detach())
        self.log = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.stop()
        self.link.join()
        assert self.link.take()[2] is not None
        self.socket.close()

    def report(self, *offsets: int) -> None:
        self.socket.sendall(b"".join(map(REPORT.pack, offsets)))

    def news(self) -> tuple[bytes, int, tuple[str, str] | None]:
        """Wait for news and take it."""
        assert select.select([self.link.event_fd()], [], [], 60)[0], "no news came"
        return self.link.take()

    def heard(self, size: int) -> bytes:
        """Wait until the thread has handed over so many bytes, and return them."""
        data = b""
        while len(data) < size:
            said, _, end = self.news()
            assert end is None, end
            data += said
        return data

    def begin(self, *offsets: int) -> None:
        """Report, and have the slave fed from the first of the offsets on."""
        self.report(*offsets)
        self.link.begin(max(0, offsets[0]), self.heard(REPORT.size * len(offsets)))

    def end(self) -> tuple[str, str]:
        """Wait for the end and return how it was."""
        while (end := self.news()[2]) is None:
            pass
        self.link.join()
        return end

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            assert piece, "the stream has ended"
            data += piece
        return data

    def frame(self) -> tuple[int, bytes]:
        offset, size = HEADER.unpack(self.exactly(HEADER.size))
        return offset, self.exactly(size)

    def copied(self, start: int, end: int) -> bytes:
        """Take frames from `start` to `end`, which follow one another; return the bytes."""
        data = b""
        while start + len(data) < end:
            offset, piece = self.frame()
            assert offset == start + len(data)
            assert 0 < len(piece) <= FEED["batch"]
            assert offset // FILE == (offset + len(piece) - 1) // FILE, "of one file"
            data += piece
        return data


def feeding(store: Store, **more: int | bool | bytes) -> Peer:
    """Return a slave that a thread feeds, and tells of each of its acknowledgements."""

    def link(fd: int) -> LogLink:
        made = feed_log(store, fd, **{**FEED, **more})
        made.tell_acks(loud=True, counts=False)
        return made

    return Peer(link)


def following(store: Store, heartbeat_ms: int = 60_000, housekeeping_ms: int = 120_000) -> Peer:
    peer = Peer(
        lambda fd: follow_log(
            store,
            fd,
            tls=None,
            handshake_ms=60_000,
            heartbeat_ms=heartbeat_ms,
            housekeeping_ms=housekeeping_ms,
        )
    )
    peer.link.begin(0, b"")
    return peer


def log_of(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def test_a_slave_is_asked_about_and_then_fed(tmp_path: Path) -> None:
    with opened(tmp_path) as store, feeding(store) as peer:
        # More than two files.
        fill(store, 250, 10_000)
        peer.link.say(b"first ")
        peer.link.say(b"words")
        assert peer.exactly(11) == b"first words"
        peer.report(0)
        assert peer.news() == (REPORT.pack(0), 0, None)
        assert not select.select([peer.socket], [], [], 0)[0], "nobody has decided yet"
        peer.link.say(b"last")
        peer.link.begin(0, REPORT.pack(0))
        assert peer.exactly(4) == b"last"
        end = log_limit(store)
        assert peer.copied(0, end) == log_of(tmp_path)[:end]
        assert peer.link.view()[1:3] == (end, end)
        peer.report(FILE, end)
        while peer.link.view()[0] < end:
            peer.news()
        fill(store, 1)
        offset, piece = peer.frame()
        assert (offset, offset + len(piece)) == (end, log_limit(store))


@pytest.mark.parametrize(
    ("reports", "why"),
    [
        ([-1], "reports a negative offset, -1"),
        ([0, -5], "reports a negative offset, -5"),
        ([0, 2**63 - 1], "acknowledges 9223372036854775807, of which {end} and more is unsent"),
        ([0, 600, 599], "goes back from 600 to 599"),
    ],
)
def test_an_impossible_report_ends_the_connection(
    tmp_path: Path, reports: list[int], why: str
) -> None:
    """#1155, B17: a slave's word releases answers, so it is believed only where it can be true."""
    with opened(tmp_path) as store, feeding(store) as peer:
        fill(store, 1)
        end = log_limit(store)
        peer.begin(reports[0])
        if len(reports) > 1:
            peer.copied(0, end)
            peer.report(*reports[1:])
        assert peer.end() == ("fault", why.format(end=end))
        assert peer.link.view()[0] <= 600
        assert peer.socket.recv(1) == b""


@pytest.mark.parametrize("stray", [1, 7])
def test_stray_bytes_end_the_connection(tmp_path: Path, stray: int) -> None:
    with opened(tmp_path) as store, feeding(store, heartbeat_ms=100) as peer:
        peer.begin(0)
        peer.socket.sendall(bytes(stray))
        assert peer.end() == ("fault", f"wrote {stray} bytes, which is no report")


def test_heartbeats_and_the_silence_that_ends_all(tmp_path: Path) -> None:
    with opened(tmp_path) as store, feeding(store, heartbeat_ms=50, housekeeping_ms=3_000) as peer:
        peer.begin(0)
        assert [peer.frame() for _ in range(2)] == [(0, b"")] * 2
        kind, why = peer.end()
        assert (kind, why[:20]) == ("fault", "has said nothing for")
    with (
        opened(tmp_path / "slave") as store,
        following(store, heartbeat_ms=50, housekeeping_ms=3_000) as peer,
    ):
        assert peer.exactly(24) == bytes(24), "at once, and again and again"
        kind, why = peer.end()
        assert (kind, why[:20]) == ("fault", "has said nothing for")


def test_a_rate_holds(tmp_path: Path) -> None:
    with opened(tmp_path) as store, feeding(store, bytes_per_second=40_000) as peer:
        fill(store, 100)
        peer.report(0)
        report = peer.heard(REPORT.size)
        begun = time.monotonic()
        peer.link.begin(0, report)
        peer.copied(0, 100_000)
        # It may begin at the end of a second, and finish early in the third that follows.
        assert time.monotonic() - begun > 1


def test_the_master_keeps_the_bytes_no_longer(tmp_path: Path) -> None:
    with opened(tmp_path) as store, feeding(store) as peer:
        fill(store, 300, 10_000)
        store.flush()
        while store.dispatch_behind():
            time.sleep(0.001)
        assert store.delete_expired(2**62) > 0
        peer.begin(1)
        kind, why = peer.end()
        assert kind == "fault"
        assert "not kept any more" in why


@pytest.mark.parametrize("sync", [False, True])
def test_a_slave_appends_and_reports_whatever_the_cuts(tmp_path: Path, sync: bool) -> None:
    with opened(tmp_path / "master") as master:
        fill(master, 60)
        end = log_limit(master)
    data = log_of(tmp_path / "master")[:end]
    flush = "SYNC_FLUSH" if sync else "ASYNC_FLUSH"
    with opened(tmp_path / "slave", flushDiskType=flush) as store, following(store) as peer:
        assert peer.exactly(8) == REPORT.pack(0)
        stream = b""
        for at in range(0, end, 777):
            piece = data[at : at + 777]
            stream += HEADER.pack(at, len(piece)) + piece + HEADER.pack(at + len(piece), 0)
        for at in range(0, len(stream), 1_001):
            peer.socket.sendall(stream[at : at + 1_001])
        told = [0]
        while told[-1] < end:
            told.append(REPORT.unpack(peer.exactly(8))[0])
            assert not sync or store.flushed_offset() >= told[-1]
        assert told == sorted(set(told))
        assert peer.link.view()[:3] == (end, end, end)
    assert log_of(tmp_path / "slave")[:end] == data


@pytest.mark.parametrize(
    ("offset", "size", "why"),
    [
        (101, 0, "sends offset 101, the log here ends at {end}"),
        (99, 5, "sends offset 99, the log here ends at {end}"),
        (0, -1, "announces a piece of -1 bytes"),
        (0, 2**31 - 1, "announces a piece of 2147483647 bytes"),
        (-100, 4, "sends a negative offset, -100"),
    ],
)
def test_a_frame_that_does_not_fit_ends_the_connection(
    tmp_path: Path, offset: int, size: int, why: str
) -> None:
    """B17; a heartbeat with another offset as well."""
    with opened(tmp_path) as store:
        fill(store, 1)
        end = log_limit(store)
        with following(store) as peer:
            peer.socket.sendall(HEADER.pack(offset, size))
            assert peer.end() == ("fault", why.format(end=end))
            assert store.max_physical_offset() == end


def test_what_is_no_log_is_not_written(tmp_path: Path) -> None:
    with opened(tmp_path) as store, following(store) as peer:
        peer.socket.sendall(HEADER.pack(0, 100) + b"x" * 100)
        kind, why = peer.end()
        assert kind == "store"
        assert "no record" in why
        assert store.max_physical_offset() == 0


@pytest.mark.parametrize("cut", [40_000, 500])
def test_a_damaged_record_is_not_acknowledged_and_copied_again(tmp_path: Path, cut: int) -> None:
    with opened(tmp_path / "master") as master:
        fill(master, 20)
        end = log_limit(master)
    good = log_of(tmp_path / "master")[:end]
    bad = good[:5_000] + bytes([good[5_000] ^ 1]) + good[5_001:]
    with opened(tmp_path / "slave") as store:
        for data, wanted in ((bad, None), (good, end)):
            begin = store.max_physical_offset()
            with following(store) as peer:
                frames = [data[at : at + cut] for at in range(begin, end, cut)]
                with contextlib.suppress(OSError):
                    for number, piece in enumerate(frames):
                        peer.socket.sendall(HEADER.pack(begin + number * cut, len(piece)) + piece)
                told = 0
                if wanted is None:
                    kind, why = peer.end()
                    assert (kind, "damaged" in why) == ("store", True), why
                    assert store.max_physical_offset() <= 5_000, "no half of it is left"
                    assert store.stats()["refused_copies"] == 1
                while wanted is not None and told < wanted:
                    (told,) = REPORT.unpack(peer.exactly(REPORT.size))
        assert log_of(tmp_path / "slave")[:end] == good


def test_the_peer_goes_and_the_owner_stops(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for start in (feeding, following):
            with start(store) as peer:
                peer.socket.shutdown(socket.SHUT_RDWR)
                assert peer.end()[0] == "lost"
            with start(store) as peer:
                peer.link.stop()
                assert peer.end() == ("stopped", "")
                while peer.socket.recv(64):
                    pass


def test_bytes_move_while_python_holds_its_lock(tmp_path: Path) -> None:
    """`PyDLL` keeps the lock during the call: whoever needed it could not write."""
    libc = ctypes.PyDLL(None)
    with opened(tmp_path) as store, feeding(store) as peer:
        fill(store, 10)
        peer.report(0)
        report = peer.heard(REPORT.size)
        polled = ctypes.create_string_buffer(
            struct.pack("ihh", peer.socket.fileno(), select.POLLIN, 0)
        )
        peer.link.begin(0, report)
        assert libc.poll(polled, 1, 60_000) == 1
        peer.copied(0, log_limit(store))


FORKS = """
import os, pathlib, socket, sys
from roquet._native import Store, follow_log
def threads():
    tasks = pathlib.Path("/proc/self/task")
    return [(task / "comm").read_text().strip() for task in tasks.iterdir()]
assert not any(name.startswith("ha-") for name in threads()), threads()
store = Store.open({"storePathRootDir": sys.argv[1], "mappedFileSizeCommitLog": 1 << 20})
store.start()
theirs, ours = socket.socketpair()
link = follow_log(
    store, theirs.detach(), tls=None, handshake_ms=1, heartbeat_ms=50, housekeeping_ms=60000
)
link.begin(0, b"")
ours.recv(8)
assert "ha-follow" in threads(), threads()
child = os.fork()
if child == 0:
    link.join()
    del link
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
ours.settimeout(60)
ours.setblocking(False)
try:
    while ours.recv(4096):
        pass
except BlockingIOError:
    ours.settimeout(60)
assert ours.recv(8) == bytes(8), "it still reports"
assert link.take()[2] is None
link.stop()
link.join()
assert "ha-follow" not in threads(), threads()
store.close()
"""


def test_no_thread_before_a_connection_and_none_in_a_forked_child(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_what_java_masters_said_is_copied(tmp_path: Path) -> None:
    """Recorded frames of a Java master make its log, byte for byte."""
    streams: dict[int, list[bytes]] = {}
    with gzip.open(VECTORS, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            if row["ha"] == "default" and row["dir"] == "m2s" and "hex" in row:
                streams.setdefault(row["conn"], []).append(bytes.fromhex(row["hex"]))
    first = HEADER.unpack_from(next(iter(streams.values()))[0])[0]
    data = b""
    with opened(tmp_path, mappedFileSizeCommitLog=65_536) as store:
        # Each connection goes on where the one before ended.
        for frames in streams.values():
            with following(store) as peer:
                peer.socket.sendall(b"".join(frames))
                data += b"".join(frame[HEADER.size :] for frame in frames)
                while REPORT.unpack(peer.exactly(REPORT.size))[0] < first + len(data):
                    pass
    assert log_of(tmp_path)[: len(data)] == data
    assert len(data) > 200_000


def recorded() -> tuple[list[bytes], list[list[int]]]:
    """Return the frames with bytes of a Java master, and the reports of each Java slave."""
    said: dict[int, bytes] = {}
    frames: list[bytes] = []
    with gzip.open(VECTORS, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    for row in rows:
        if row["ha"] != "default" or "hex" not in row:
            continue
        data = bytes.fromhex(row["hex"])
        if row["dir"] == "s2m":
            said[row["conn"]] = said.get(row["conn"], b"") + data
        elif row["dir"] == "m2s" and len(data) > HEADER.size:
            frames.append(data)
    return frames, [[it for (it,) in REPORT.iter_unpack(data)] for data in said.values()]


def copy_recorded(store: Store, frames: list[bytes]) -> None:
    """Make the log of the recorded master."""
    at = HEADER.unpack_from(frames[0])[0]
    with following(store) as peer:
        for data in frames:
            offset, size = HEADER.unpack_from(data)
            if offset == at:
                at += size
                peer.socket.sendall(data)
        while REPORT.unpack(peer.exactly(REPORT.size))[0] < at:
            pass


def test_what_java_slaves_said_is_understood(tmp_path: Path) -> None:
    """Their recorded reports, each once the thread has sent what it acknowledges."""
    frames, slaves = recorded()
    assert len(slaves) >= 6
    with opened(tmp_path, mappedFileSizeCommitLog=65_536) as store:
        copy_recorded(store, frames)
        assert log_limit(store) - store.min_physical_offset() > 200_000
        for offsets in slaves:
            got = offsets[0] or store.min_physical_offset()
            with feeding(store) as peer:
                peer.report(offsets[0])
                peer.link.begin(got, peer.heard(REPORT.size))
                for offset in offsets[1:]:
                    while got < offset:
                        got += len(peer.frame()[1])
                    peer.report(offset)
                while peer.link.view()[0] < offsets[-1]:
                    assert peer.news()[2] is None


def test_link_that_has_ended_answers_and_passes_over_what_it_is_told(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        peer = feeding(store)
        with peer as it:
            it.report(0)
            assert it.heard(8) == REPORT.pack(0)
        link = peer.link
        assert link.event_fd() == -1
        assert (link.take(), link.view()[:3]) == ((b"", 0, ("stopped", "")), (0, 0, 0))
        link.say(b"too late")
        link.begin(0, REPORT.pack(0))
        rules = {key: it for key, it in FEED.items() if key not in {"tls", "handshake_ms"}}
        link.tune(**rules)
        link.finish()
        link.stop()
        link.join()
        assert link.take() == (b"", 0, ("stopped", ""))
