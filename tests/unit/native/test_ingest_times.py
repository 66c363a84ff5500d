"""How long answers of the native ingest took: counted by request, response and class."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from ingest_harness import feed, ingest, ingest_and_store, send
from roquet.roquet_native import Ingest, encode_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Kind = tuple[int, int, bool, bool]
"""Request code, response code, whether a pull waited, whether nobody waited for an answer."""


def told(it: Ingest) -> dict[Kind, tuple[list[int], int]]:
    """Return counts by class and microseconds."""
    taken = it.take_answered()
    found = {(code, said, held, away): (counts, us) for code, said, held, away, counts, us in taken}
    assert len(found) == len(taken)
    assert it.take_answered() == []
    return found


def one(took_ms: int) -> tuple[list[int], int]:
    """Return what a single answer is counted as."""
    counts = [0] * (len(Ingest.CLASSES_MS) + 1)
    counts[sum(bound < took_ms for bound in Ingest.CLASSES_MS)] = 1
    return counts, took_ms * 1000


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        select.select([], [], [], 0.01)
    raise AssertionError("it never happened")


def pull(opaque: int, *, code: int = 11, sys_flag: int = 3, offset: int = 0) -> bytes:
    ext = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "1",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": str(sys_flag),
        "commitOffset": "0",
        "suspendTimeoutMillis": "20000",
        "subVersion": "7",
    }
    return encode_command(0, code, 0, "JAVA", 513, opaque, None, ext, b"")


def test_the_classes_are_those_of_rocketmq_5() -> None:
    assert Ingest.CLASSES_MS == [1, 3, 5, 7, 10, 100, 1000, 2000, 3000]


def test_every_answer_at_once_is_counted(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, store):
        it.set_group("g", 0, [("T", 7, None, None)])
        feed(it, 1, b"".join(send(number) for number in range(5)) + send(9, flag=2), 1000)
        wait_for(lambda: store.max_offset("T", 1) == 6)
        pulls = [pull(20), pull(21, code=361), pull(22, offset=99), pull(23, sys_flag=1, offset=6)]
        for number in range(3):
            feed(it, 1, b"".join(pulls), 1000 + number)
        found = told(it)
        assert {kind: sum(counts) for kind, (counts, _) in found.items()} == {
            (310, 0, False, False): 5,
            (310, 0, False, True): 1,
            (11, 0, False, False): 3,
            (361, 0, False, False): 3,
            (11, 21, False, False): 3,
            (11, 19, False, False): 3,
        }
        for counts, took_us in found.values():
            bounds = [*Ingest.CLASSES_MS, 3_600_000]
            at_most = sum(count * bound for count, bound in zip(counts, bounds, strict=True))
            assert 0 < took_us <= at_most * 1000


def test_a_send_that_waits_counts_until_its_answer(tmp_path: Path) -> None:
    with ingest(tmp_path, slave="wait") as it:
        feed(it, 1, send(1), 1000)
        ((_, _, messages, _, sends, took_us),) = it.take_stored()
        assert (messages, sends, took_us) == (1, 0, 0)
        assert it.flushed(1 << 40, 1010) == []
        assert told(it) == {}
        it.set_replicated(1 << 40, 1050)
        assert told(it) == {(310, 0, False, False): one(50)}
        assert it.take_stored() == [("T", 1, 0, 0, 1, 50_000)]


def test_refusals_and_time_outs_have_codes_of_their_own(tmp_path: Path) -> None:
    with ingest(tmp_path, parked_max=1) as it:
        feed(it, 1, send(1), 1000)
        feed(it, 1, send(2), 1001)
        busy = told(it)
        assert {kind: sum(counts) for kind, (counts, _) in busy.items()} == {
            (310, 2, False, False): 1
        }
        it.expire(3500)
        assert told(it) == {(310, 10, False, False): one(2500)}
        feed(it, 1, send(3), 5000)
        it.fail("the disk said no", 10_000)
        assert told(it) == {(310, 1, False, False): one(5000)}
        # What was refused is no send that was stored in so much time.
        assert sum(sends for _, _, _, _, sends, _ in it.take_stored()) == 1


def test_an_answer_that_nobody_gets_is_not_counted(tmp_path: Path) -> None:
    with ingest(tmp_path) as it:
        feed(it, 1, send(1), 1000)
        it.close(1)
        assert it.flushed(1 << 40, 1010) == []
        assert told(it) == {}


def test_a_held_pull_counts_from_its_arrival(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, store):
        it.set_group("g", 0, [("T", 7, None, None)])
        feed(it, 1, pull(1), 1000)
        assert told(it) == {}
        store.put("T", 1, b"body", b"")
        wait_for(lambda: store.max_offset("T", 1) == 1)
        assert it.arrived("T", 1, 1)
        it.serve(1006)
        assert told(it) == {(11, 0, True, False): one(6)}
        feed(it, 1, pull(2, code=361, offset=1), 2000)
        it.expire(25_000)
        it.serve(25_001)
        assert told(it) == {(361, 19, True, False): one(23_001)}
