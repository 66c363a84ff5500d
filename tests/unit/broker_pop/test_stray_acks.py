"""Acknowledgements without a checkpoint: bounded together, and a flood pushes out its own."""

from __future__ import annotations

import random
import tracemalloc
from typing import TYPE_CHECKING

from roquet.broker.pop.stray_acks import ACK_BYTES, BYTES_MAX, GROUP_BYTES, StrayAcks

if TYPE_CHECKING:
    from roquet.protocol.pop.records import MergeKey


def key(topic: str = "T", group: str = "g", start: int = 0, popped_ms: int = 1000) -> MergeKey:
    return topic, group, 0, start, popped_ms, "b"


def test_one_is_found_once_and_by_all_that_it_says() -> None:
    strays = StrayAcks()
    strays.add(key(), 7, 1000)
    strays.add(key(), 7, 1000)
    assert len(strays) == 1
    assert not strays.pop(key(), 8)
    for other in (key("U"), key(group="h"), key(start=1), key(popped_ms=1001)):
        assert not strays.pop(other, 7)
    assert strays.pop(key(), 7)
    assert not strays.pop(key(), 7)
    assert (len(strays), strays.bytes, strays.pushed_out) == (0, 0, 0)


def test_bytes_are_those_of_acks_and_of_the_names_of_their_groups() -> None:
    strays = StrayAcks()
    strays.add(key(), 0, 1000)
    one = strays.bytes
    assert one > ACK_BYTES + GROUP_BYTES
    strays.add(key(), 1, 1000)
    assert strays.bytes == one + ACK_BYTES
    strays.add(key(group="g" * 1001), 0, 1000)
    assert strays.bytes == 2 * one + ACK_BYTES + 1000
    strays.clear()
    assert (len(strays), strays.bytes) == (0, 0)
    strays.add(key(), 0, 1000)
    assert strays.bytes == one
    strays._push_out()
    assert (len(strays), strays.bytes, strays.pushed_out) == (0, 0, 1)


def test_what_was_cleared_has_no_say_in_what_is_pushed_out() -> None:
    strays = StrayAcks()
    for number in range(5):
        strays.add(key("flood"), number, 1000)
    strays.clear()
    strays.add(key(), 0, 1000)
    strays.add(key("U"), 0, 1000)
    strays.add(key("U"), 1, 1000)
    strays._push_out()
    assert (len(strays), strays.pop(key(), 0), strays.pop(key("U"), 1)) == (2, True, True)


def test_a_flood_pushes_out_its_own_and_the_oldest_first() -> None:
    strays = StrayAcks(bytes_max=100 * ACK_BYTES + 30 * GROUP_BYTES)
    for number in range(20):
        strays.add(key("mine"), number, 1000)
        strays.add(key("T", "quiet"), number, 1000)
    for number in range(5_000):
        strays.add(key("T", "loud", popped_ms=number), 0, 1001)
        # As one flood of many groups.
        strays.add(key("flood", f"g{number}"), 0, 1001)
    assert all(strays.pop(key("mine"), number) for number in range(20))
    assert all(strays.pop(key("T", "quiet"), number) for number in range(10))
    assert strays.pop(key("T", "loud", popped_ms=4_999), 0)
    assert not strays.pop(key("T", "loud", popped_ms=0), 0)
    assert strays.pop(key("flood", "g4999"), 0)
    assert not strays.pop(key("flood", "g0"), 0)
    assert strays.pushed_out > 9_000


def test_old_ones_and_those_of_the_future_expire() -> None:
    strays = StrayAcks()
    for number, topic in enumerate(("T", "U", "T", "V")):
        strays.add(key(topic), number, 1000 + number)
    strays.add(key("T"), 0, 1004)
    strays.expire(1101, 100)
    assert [strays.pop(key(topic), n) for n, topic in enumerate(("T", "U", "T", "V"))] == [True] * 4
    strays.add(key("T"), 0, 5000)
    strays.expire(5000, 0)
    assert len(strays) == 1, "it was read just now"
    strays.add(key("U"), 1, 3000)
    strays.expire(4000, 999)
    assert (len(strays), strays.bytes) == (0, 0)


def test_memory_is_what_is_reckoned_at_most() -> None:
    for groups in (1, 1_000_000):
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        strays = StrayAcks()
        for number in range(2 * BYTES_MAX // ACK_BYTES):
            name = f"a group with a name of some length {number % groups}"
            strays.add(key(f"T{number % groups}", name, number, number), number, number)
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert BYTES_MAX // 4 < used <= BYTES_MAX
        assert strays.bytes <= BYTES_MAX
        assert strays.pushed_out > 0


def test_it_is_like_a_table_whose_largest_parts_are_searched() -> None:
    rng = random.Random(7)
    room = 20
    strays = StrayAcks(bytes_max=10**9)
    model: dict[tuple[str, str], list[int]] = {}
    for step in range(3_000):
        topic, group = rng.choice("TUV"), rng.choice("gh")
        offset = rng.randrange(30)
        mine = model.setdefault((topic, group), [])
        if rng.random() < 0.3:
            assert strays.pop(key(topic, group), offset) == (offset in mine)
            if offset in mine:
                mine.remove(offset)
            continue
        strays.add(key(topic, group), offset, step)
        if offset in mine:
            mine.remove(offset)
        mine.append(offset)
        if len(strays) > room:
            by_topic = {one: sum(len(v) for k, v in model.items() if k[0] == one) for one in "TUV"}
            before = strays.pushed_out
            strays._push_out()
            assert strays.pushed_out == before + 1
            gone: list[tuple[tuple[str, str], int]] = []
            for each, offsets in model.items():
                for one in offsets:
                    if not strays.pop(key(*each), one):
                        gone.append((each, one))
                        continue
                    strays.add(key(*each), one, step)
            ((name, it),) = gone
            assert by_topic[name[0]] == max(by_topic.values())
            same = {k: len(v) for k, v in model.items() if k[0] == name[0]}
            assert same[name] == max(same.values())
            assert it == model[name][0]
            model[name].remove(it)
    assert len(strays) == sum(map(len, model.values()))
