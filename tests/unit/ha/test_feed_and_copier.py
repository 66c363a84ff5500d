"""The two sides as stories: what is said, in which order, and what ends a connection."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from roquet.ha.copier import Copier, CopierRules
from roquet.ha.feed import Feed, FeedRules
from roquet.ha.frames import BODY_MAX, HEADER, REPORT, PeerFault

FILE = 1000
RULES = FeedRules(
    batch=32, heartbeat_ms=5_000, housekeeping_ms=20_000, file_bytes=FILE, bytes_per_second=0
)
VECTORS = Path(__file__).parents[2] / "vectors" / "ha_frames.jsonl.gz"


def report(*offsets: int) -> bytes:
    return b"".join(map(REPORT.pack, offsets))


def fed(first: int, begin: int = 0, end: int = 2_500, rules: FeedRules = RULES) -> Feed:
    feed = Feed(rules, 0)
    feed.receive(report(first), 0, begin, end)
    return feed


def test_nothing_is_sent_before_the_first_report() -> None:
    feed = Feed(RULES, 0)
    assert feed.due(100, 0) is None
    assert feed.heartbeat(100_000) is None
    assert not feed.receive(report(40)[:7], 0, 0, 100)
    assert feed.due(100, 0) is None
    assert feed.receive(report(40)[7:], 0, 0, 100)
    assert feed.due(100, 0) == (40, 32)


def test_an_empty_slave_begins_with_the_last_file() -> None:
    assert fed(0).position == 2_000
    assert fed(0, end=0).position == 0
    assert fed(0, begin=2_000, end=2_000).position == 2_000
    assert fed(1).position == 1
    assert fed(2_500).position == 2_500


def test_pieces_heartbeats_and_acknowledgements() -> None:
    feed = fed(2_400)
    assert feed.due(2_500, 10) == (2_400, 32)
    assert HEADER.unpack(feed.header(32, 10)) == (2_400, 32)
    assert HEADER.unpack(feed.header(20, 10)) == (2_432, 20), "a piece may be shorter"
    assert feed.due(2_455, 10) == (2_452, 3)
    assert feed.due(2_452, 10) is None
    assert feed.heartbeat(5_009) is None
    beat = feed.heartbeat(5_010)
    assert beat is not None
    assert HEADER.unpack(beat) == (2_452, 0)
    assert feed.heartbeat(5_011) is None
    assert feed.receive(report(2_400, 2_432, 2_452), 6_000, 0, 2_500)
    assert feed.acked == 2_452


@pytest.mark.parametrize(
    ("first", "then", "why"),
    [
        (-1, None, "negative"),
        (2**63 - 1, None, "ends at 2500"),
        (2_501, None, "ends at 2500"),
        (99, None, "begins at 100"),
        (200, -5, "negative"),
        (200, 199, "goes back"),
        (200, 201, "unsent"),
        (200, 2**63 - 1, "unsent"),
    ],
)
def test_an_impossible_report_ends_the_connection(first: int, then: int | None, why: str) -> None:
    """#1155, B17: a slave's word releases answers, so it is believed only where it can be true."""
    feed = Feed(RULES, 0)
    data = report(first) if then is None else report(first, then)
    with pytest.raises(PeerFault, match=why):
        feed.receive(data, 0, 100, 2_500)
    assert feed.acked in (None, first)


@pytest.mark.parametrize("stray", range(1, 8))
def test_stray_bytes_end_the_connection(stray: int) -> None:
    """#1155: reports that are out of step are never read as offsets."""
    feed = fed(2_400)
    feed.header(32, 0)
    with pytest.raises(PeerFault, match=r"unsent|goes back|negative"):
        feed.receive(bytes(stray) + report(2_432) * 2, 0, 0, 2_500)
    assert feed.acked == 2_400
    left = fed(2_400)
    left.receive(bytes(stray), 1_000, 0, 2_500)
    left.check(6_000)
    with pytest.raises(PeerFault, match="no report"):
        left.check(6_001)


def test_a_silent_slave_is_left_since_the_last_read() -> None:
    feed = fed(2_400)
    feed.header(32, 19_000)
    feed.check(20_000)
    with pytest.raises(PeerFault, match="20001 ms"):
        feed.check(20_001)


def test_a_rate_holds_in_each_second() -> None:
    rules = FeedRules(batch=32, file_bytes=FILE, bytes_per_second=50)
    feed = fed(2_000, rules=rules)
    assert feed.due(2_500, 10_000) == (2_000, 32)
    feed.header(32, 10_000)
    assert feed.due(2_500, 10_999) == (2_032, 18)
    feed.header(18, 10_999)
    assert feed.due(2_500, 10_999) is None
    assert feed.due(2_500, 11_000) == (2_050, 32)


def frame(offset: int, body: bytes) -> bytes:
    return HEADER.pack(offset, len(body)) + body


def test_a_slave_appends_whatever_the_cuts() -> None:
    stream = frame(100, b"abcdefgh") + frame(108, b"") + frame(108, b"ij") + frame(110, b"k" * 40)
    for cut in range(1, 30):
        copier = Copier(CopierRules(), 100, 0)
        got = b""
        for at in range(0, len(stream), cut):
            for offset, piece in copier.receive(stream[at : at + cut], 1):
                assert offset == 100 + len(got)
                got += piece
        assert got == b"abcdefghij" + b"k" * 40
        assert copier.end == 150


def test_an_empty_slave_begins_where_the_master_says() -> None:
    copier = Copier(CopierRules(), 0, 0)
    assert list(copier.receive(frame(3_000, b""), 0)) == []
    assert copier.end == 0
    assert list(copier.receive(frame(3_000, b"xy"), 0)) == [(3_000, b"xy")]
    with pytest.raises(PeerFault, match="the log here ends at 3002"):
        list(copier.receive(frame(3_001, b"z"), 0))


@pytest.mark.parametrize(
    ("offset", "size", "why"),
    [
        (101, 0, "ends at 100"),
        (99, 5, "ends at 100"),
        (100, -1, "-1 bytes"),
        (100, -(2**31), "bytes"),
        (100, 2**31 - 1, "bytes"),
        (-100, 4, "negative"),
    ],
)
def test_a_frame_that_does_not_fit_ends_the_connection(offset: int, size: int, why: str) -> None:
    """B17; a heartbeat with another offset as well."""
    copier = Copier(CopierRules(), 100, 0)
    with pytest.raises(PeerFault, match=why):
        list(copier.receive(HEADER.pack(offset, size), 0))
    assert copier.end == 100


def test_piece_is_as_long_as_the_limit_and_no_longer() -> None:
    copier = Copier(CopierRules(), 100, 0)
    assert list(copier.receive(HEADER.pack(100, BODY_MAX) + b"ab", 0)) == [(100, b"ab")]
    copier = Copier(CopierRules(), 100, 0)
    with pytest.raises(PeerFault, match=f"{BODY_MAX + 1} bytes"):
        list(copier.receive(HEADER.pack(100, BODY_MAX + 1), 0))


def test_reports_follow_growth_and_the_clock() -> None:
    copier = Copier(CopierRules(heartbeat_ms=5_000, housekeeping_ms=20_000), 100, 0)
    assert copier.report(100, 0) == report(100), "at once: the master waits for it"
    assert copier.report(100, 4_999) is None
    assert copier.report(100, 5_000) == report(100)
    list(copier.receive(frame(100, b"ab"), 6_000))
    assert copier.report(102, 6_000) == report(102)
    assert copier.report(101, 12_000) == report(102), "never back"
    copier.check(26_000)
    with pytest.raises(PeerFault, match="20001 ms"):
        copier.check(26_001)


def recorded() -> dict[int, list[tuple[str, bytes]]]:
    found: dict[int, list[tuple[str, bytes]]] = {}
    with gzip.open(VECTORS, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            if row["ha"] == "default" and row["dir"] in {"s2m", "m2s"} and "hex" in row:
                said = found.setdefault(row["conn"], [])
                said.append((row["dir"], bytes.fromhex(row["hex"])))
    return found


def test_what_java_brokers_said_is_understood() -> None:
    """Both sides of ours follow each recorded connection, and say the same in the same place."""
    connections = recorded()
    assert len(connections) >= 6
    moved = 0
    for said in connections.values():
        first = next(data for who, data in said if who == "s2m")
        start = REPORT.unpack(first[:8])[0]
        headers = [HEADER.unpack_from(data) for who, data in said if who == "m2s"]
        end = max([start, *(offset + size for offset, size in headers)])
        feed = Feed(FeedRules(file_bytes=65_536), 0)
        copier = Copier(CopierRules(), start, 0)
        for who, data in said:
            if who == "s2m":
                feed.receive(data, 0, 0, end)
                continue
            offset, size = HEADER.unpack_from(data)
            assert feed.position == offset
            if size:
                due = feed.due(end, 0)
                assert due is not None
                assert due[1] >= size, "longer than our batch"
            assert feed.header(size, 0) == data[:12]
            pieces = list(copier.receive(data, 0))
            assert b"".join(piece for _, piece in pieces) == data[12:]
            moved += size
        assert copier.end in (end, start)
    assert moved > 200_000
