"""The table of SQL92 filters: versions, death and return, the file, and Java's Bloom bits."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import Corrupt
from roquet.model.subscription import SubscriptionData
from roquet.store.tables.bloom import Bloom, murmur3_low
from roquet.store.tables.files import JsonFile
from roquet.store.tables.filters import DEAD_KEPT_MS, FilterTable
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path


def sql(expression: str, version: int, topic: str = "orders") -> dict[str, SubscriptionData]:
    found = SubscriptionData(
        topic=topic, expression=expression, expression_type="SQL92", version=version
    )
    return {topic: found}


def table(folder: Path, clock: FakeClock) -> FilterTable:
    return FilterTable(JsonFile(folder / "consumerFilter.json"), clock)


def test_only_a_greater_version_replaces_a_filter(tmp_path: Path) -> None:
    it = table(tmp_path, FakeClock())
    it.follow("g", sql("a = 1", 10))
    it.follow("g", sql("a = 2", 9))
    it.follow("g", sql("a = 3", 10))
    found = it.find("orders", "g")
    assert found is not None
    assert found.expression == "a = 1"
    it.follow("g", sql("a = 4", 11))
    found = it.find("orders", "g")
    assert found is not None
    assert (found.expression, found.filter.matches(b"a\x014\x02")) == ("a = 4", True)
    it.follow("g", sql("a = ", 12))
    assert it.find("orders", "g") == found, "what does not parse replaces nothing"


def test_filter_takes_its_room_to_the_byte(tmp_path: Path) -> None:
    first = table(tmp_path, FakeClock())
    first.follow("g", sql("a = 1", 10))
    used = first._room.used
    it = table(tmp_path, FakeClock())
    it._room._bytes_max = used - 1
    it.follow("g", sql("a = 1", 10))
    assert it.find("orders", "g") is None
    it._room._bytes_max = used
    it.follow("g", sql("a = 1", 10))
    assert it.find("orders", "g") is not None


def test_filters_die_with_their_group_and_come_back_within_a_day(tmp_path: Path) -> None:
    clock = FakeClock()
    it = table(tmp_path, clock)
    it.follow("g", sql("a = 1", 10))
    it.follow("h", sql("a = 1", 10))
    it.follow("g", None)
    it.follow("h", {})
    assert [found.dead_ms for found in it.all()] == [clock.now_ms()] * 2
    it.follow("g", sql("a = 1", 10))

    async def work() -> None:
        await clock.advance(DEAD_KEPT_MS / 1000 + 1)
        await it.persist()

    asyncio.run(work())
    assert [(found.group, found.dead_ms) for found in it.all()] == [("g", 0)]
    assert len(it) == 1


def test_11102_filters_survive_a_restart_and_one_broken_entry_spoils_no_other(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    it = table(tmp_path, clock)
    it.follow("g", sql("a = 1", 10))
    it.follow("h", sql("b > 1", 20, "other"))
    asyncio.run(it.persist())
    path = tmp_path / "consumerFilter.json"
    written = json.loads(path.read_bytes())
    entry = written["filterDataByTopic"]["orders"]["groupFilterData"]["g"]
    assert entry["bloomFilterData"]["bitNum"] == 112
    assert len(entry["bloomFilterData"]["bitPos"]) == 3
    assert (entry["dead"], entry["deadTime"]) == (False, 0)
    entry["bloomFilterData"] = None
    written["filterDataByTopic"]["bad"] = {
        "groupFilterData": {"x": {**entry, "expression": "((", "topic": "bad"}}
    }
    path.write_text(json.dumps(written))
    again = table(tmp_path, clock)
    again.load()
    assert {(found.topic, found.group, found.version) for found in again.all()} == {
        ("orders", "g", 10),
        ("other", "h", 20),
    }
    assert all(found.dead_ms for found in again.all()), "dead until a heartbeat names them"
    again.follow("g", sql("a = 1", 10))
    back = again.find("orders", "g")
    assert back is not None
    assert back.dead_ms == 0


def test_a_file_that_is_no_table_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "consumerFilter.json").write_text('{"filterDataByTopic": 5}')
    with pytest.raises(Corrupt):
        table(tmp_path, FakeClock()).load()


def test_the_hash_is_murmur3() -> None:
    assert murmur3_low(b"") == 0
    assert murmur3_low(b"hello") == 0xCBD8A7B341BD9B02
    assert murmur3_low(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C
    bloom = Bloom()
    assert (bloom.hashes, bloom.bits) == (3, 112)
    assert all(0 <= bit < 112 for bit in bloom.positions("group#topic"))


def test_file_is_written_after_a_change_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "consumerFilter.json"
    asyncio.run(table(tmp_path, FakeClock()).persist())
    assert not path.exists()
    it = table(tmp_path, FakeClock())
    it.follow("g", sql("a = 1", 10))
    asyncio.run(it.persist())
    again = table(tmp_path, FakeClock())
    again.load()
    path.unlink()
    asyncio.run(again.persist())
    assert not path.exists()
    again.follow("g", sql("a = 2", 11))
    asyncio.run(again.persist())
    assert path.exists()


def test_filter_that_is_replaced_by_one_as_long_always_finds_room(tmp_path: Path) -> None:
    it = table(tmp_path, FakeClock())
    it.follow("g", sql("a = 1", 10))
    it._room._bytes_max = it._room.used
    it.follow("g", sql("a = 2", 11))
    found = it.find("orders", "g")
    assert found is not None
    assert found.expression == "a = 2"
    it.follow("g", sql("a = 10", 12))
    assert it.find("orders", "g") == found, "one byte more does not fit"
    it.follow("h", sql("a = 1", 10))
    assert it.find("orders", "h") is None
    assert len(it) == 1


@pytest.mark.parametrize(
    ("topic", "group", "constant"), [(1, 1, 1), (3000, 1, 1), (1, 3000, 1), (1, 1, 3000)]
)
def test_room_that_filters_take_is_at_least_their_file_and_not_much_more(
    tmp_path: Path, topic: int, group: int, constant: int
) -> None:
    it = table(tmp_path, FakeClock())
    names = [(f"{number}{'t' * topic}", f"{number}{'g' * group}") for number in range(3)]
    for name, of in names:
        it.follow(of, sql(f"a = '{'x' * constant}'", 10, name))
    asyncio.run(it.persist())
    size = (tmp_path / "consumerFilter.json").stat().st_size
    assert size <= it._room.used <= size + 3 * 700
