"""Tables that clients grow end where a start, or a registration, could not carry them."""

from __future__ import annotations

import asyncio
import errno
import json
from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import TableFull
from roquet.model.group import SimpleSubscription, SubscriptionGroupConfig
from roquet.model.subscription import SubscriptionData
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.topics import TopicTableBody
from roquet.protocol.registration.body import RegisterBody
from roquet.store.tables import files
from roquet.store.tables import filters as filter_module
from roquet.store.tables import groups as group_module
from roquet.store.tables import offsets as offset_module
from roquet.store.tables import room as room_module
from roquet.store.tables import topics as topic_module
from roquet.store.tables.files import JsonFile
from roquet.store.tables.filters import FilterTable
from roquet.store.tables.groups import GroupTable, GroupTableConfig
from roquet.store.tables.offsets import OffsetTable
from roquet.store.tables.room import Room, in_reserved_slices
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def topics(folder: Path, **rules: int) -> TopicTable:
    file = JsonFile(folder / "topics.json")
    return TopicTable(file, TopicTableConfig(broker_name="a", **rules), FakeClock())  # type: ignore[arg-type]


def size_of(table: OffsetTable | GroupTable | FilterTable | TopicTable) -> int:
    """Return what a table counts for itself."""
    return table._room.used


def test_room_full_takes_nothing_more_and_counts_it() -> None:
    room = Room("things", 2, 100)
    room.take(1, 60)
    with pytest.raises(TableFull, match="things is full: it has 1 of at most 2 entries, 60 of 100"):
        room.take(1, 41)
    room.take(1, 40)
    assert not room.fits(1, 0)
    assert (room.entries, room.used, room.refused) == (2, 100, 2)
    room.begin(5, 500)
    assert room.fits(-1, -10), "a table that was loaded too large may shrink"


@pytest.mark.parametrize(
    ("entries", "used", "fits"),
    [(0, 0, True), (-1, 0, True), (0, -1, True), (-1, 1, False), (1, -1, False), (0, 1, False)],
)
def test_room_of_a_table_that_is_too_large_takes_what_makes_it_no_larger(
    entries: int, used: int, *, fits: bool
) -> None:
    room = Room("things", 2, 100)
    room.begin(5, 500)
    assert room.fits(entries, used) is fits
    assert room.refused == (not fits)


@pytest.mark.parametrize("fails_at", [None, 0, 2, 4])
def test_rows_in_slices_take_their_room_at_once_and_give_back_what_is_not_put(
    monkeypatch: pytest.MonkeyPatch, fails_at: int | None
) -> None:
    turns: list[int] = []

    async def give_way() -> None:
        turns.append(room.entries)

    monkeypatch.setattr(room_module, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(room_module, "give_way", give_way)
    room, rows = Room("things", 9, 99), list(range(5))
    room.take(1, 1)
    there: list[int] = []

    def put(*part: int) -> None:
        if fails_at in part:
            raise ValueError("a test says so")
        room.take(len(part), 10 * len(part))
        there.extend(part)

    def growth(part: Sequence[int]) -> tuple[int, int]:
        return len(part), 10 * len(part)

    work = in_reserved_slices(room, rows, growth, put)
    if fails_at is None:
        asyncio.run(work)
        assert there == rows
        # Others have their turn after each slice, while the room for all is taken.
        assert turns == [1, 1, 1, 6, 6, 6]
    else:
        with pytest.raises(ValueError, match="a test says so"):
            asyncio.run(work)
        assert there == rows[:fails_at]
    assert (room.entries, room.used) == (1 + len(there), 1 + 10 * len(there))


def test_topic_table_clients_create_none_beyond_their_share_and_admins_may(tmp_path: Path) -> None:
    table = topics(tmp_path, auto_create_max=16)
    table.put(TopicConfig(name="orders"))
    while len(table.all()) < 16:
        table.ensure(f"%RETRY%g{len(table.all())}", 1)
    with pytest.raises(TableFull, match="autoCreateTopicMax"):
        table.ensure("%RETRY%more", 1)
    with pytest.raises(TableFull, match="autoCreateTopicMax"):
        table.create_by_send("more", "TBW102", 4)
    assert table.ensure("orders", 1).name == "orders", "what is there is found"
    own = "TRANS_CHECK_MAX_TIME_TOPIC"
    assert table.ensure(own, 1).name == own, "the broker's own topics are made"
    assert table.put(TopicConfig(name="by-hand"))


def test_topic_table_full_refuses_admins_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_module, "TOPICS_MAX", 17)
    table = topics(tmp_path)
    before = table.all()
    with pytest.raises(TableFull, match="topics is full"):
        table.put(*(TopicConfig(name=f"t{n}") for n in range(9)))
    assert table.all() is before
    for number in range(17 - len(before)):
        table.put(TopicConfig(name=f"t{number}"))
    table.remove("t0")
    assert table.put(TopicConfig(name="another"))


def test_topic_table_counts_no_less_than_a_registration_takes(tmp_path: Path) -> None:
    table = topics(tmp_path)
    table.put(
        *(
            TopicConfig(
                name=f"%RETRY%{'g' * 200}{number}",
                read_queues=65_535,
                write_queues=65_535,
                order=True,
                attributes={"message.type": "TRANSACTION", "cleanup.policy": "DELETE"},
            )
            for number in range(200)
        )
    )
    body = TopicTableBody(topics=table.all(), version=table.version)
    registration = len(RegisterBody(table=body).encode(compressed=False))
    assert registration <= size_of(table) + 1_000 < 2 * registration


def test_offset_table_counts_no_less_than_its_file_takes(tmp_path: Path) -> None:
    table = OffsetTable(JsonFile(tmp_path / "consumerOffset.json"), FakeClock())
    for queue_id in range(65_535, 65_035, -1):
        table.commit("group", "topic", queue_id, 2**63 - 1)
        table.note_pull("group", "topic", queue_id, 2**63 - 1)
    for number in range(500):
        table.commit('odd"\x01' + "g" * 200 + str(number), "%RETRY%t", 0, 2**63 - 1)
    asyncio.run(table.persist())
    written = (tmp_path / "consumerOffset.json").stat().st_size
    assert written <= size_of(table) + 1_000 < 2 * written


def test_offset_table_full_keeps_known_offsets_moving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(offset_module, "OFFSETS_MAX", 3)
    table = OffsetTable(JsonFile(tmp_path / "consumerOffset.json"), FakeClock())
    assert all(table.commit("g", "t", queue_id, 5) for queue_id in range(2))
    table.note_pull("g", "t", 0, 5)
    assert not table.commit("g", "t", 2, 5)
    assert not table.commit("other", "t", 0, 5)
    table.note_pull("g", "t", 1, 5)
    assert table.pulled("g", "t", 1) is None
    with pytest.raises(TableFull):
        table.reset("other", "t", 0, 5)
    with pytest.raises(TableFull):
        table.copy_group("g", "other", "t")
    assert (table.pending_reset("other", "t", 0), table.groups_of("t")) == (None, ["g"])
    assert table.commit("g", "t", 1, 9)
    assert table.committed("g", "t", 1) == 9
    assert caplog.text.count("the table of offsets is full") == 1
    asyncio.run(table.remove_group("g"))
    assert table.commit("other", "t", 0, 5)


def test_group_table_counts_no_less_than_its_file_takes(tmp_path: Path) -> None:
    table = GroupTable(JsonFile(tmp_path / "g.json"), GroupTableConfig(), FakeClock())
    subscriptions = tuple(
        SimpleSubscription(topic="t" * 100, expression='"' * 100, version=2**62) for _ in range(9)
    )
    table.put(
        *(
            SubscriptionGroupConfig(
                name=f"{'g' * 200}{number}",
                subscriptions=subscriptions,
                attributes={f"key{n}": '"\\' * 50 for n in range(9)},
            )
            for number in range(50)
        )
    )
    for number in range(100):
        table.set_forbidden("g" * 200, f"{'t' * 100}{number}", 2**31 - 1)
    asyncio.run(table.persist())
    written = (tmp_path / "g.json").stat().st_size
    assert written <= size_of(table) + 1_000 < 3 * written
    before = size_of(table)
    table.set_forbidden("g" * 200, f"{'t' * 100}0", 0)
    assert size_of(table) < before


def test_group_table_full_refuses_uses_and_admins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "GROUPS_MAX", 9)
    table = GroupTable(JsonFile(tmp_path / "g.json"), GroupTableConfig(), FakeClock())
    assert table.find("first")
    with pytest.raises(TableFull, match="consumer groups is full"):
        table.find("second")
    with pytest.raises(TableFull):
        table.put(SubscriptionGroupConfig(name="second"))
    assert table.put(SubscriptionGroupConfig(name="first", retry_max_times=3))
    table.remove("first")
    assert table.find("second")


def test_filter_table_counts_no_less_than_its_file_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = FilterTable(JsonFile(tmp_path / "f.json"), FakeClock())

    def follow(group: str, expression: str, version: int = 1) -> None:
        wanted = SubscriptionData(
            topic="t" * 100, expression=expression, expression_type="SQL92", version=version
        )
        table.follow(group, {wanted.topic: wanted})

    quotes = '"' * 1000
    for number in range(100):
        follow(f"{'g' * 200}{number}", f"a = '{quotes}{number}'")
    asyncio.run(table.persist())
    written = (tmp_path / "f.json").stat().st_size
    assert len(table) == 100
    assert written <= size_of(table) + 1_000 < 2 * written
    monkeypatch.setattr(filter_module, "FILTERS_MAX", 2)
    table = FilterTable(JsonFile(tmp_path / "g.json"), FakeClock())
    for group in ("one", "two", "three"):
        follow(group, "a = 1")
    follow("one", "a = 2", 2)
    assert len(table) == 2
    found = table.find("t" * 100, "one")
    assert found is not None
    assert found.expression == "a = 2"


def test_filter_table_without_a_free_byte_takes_a_new_version_that_is_no_longer(
    tmp_path: Path,
) -> None:
    table = FilterTable(JsonFile(tmp_path / "f.json"), FakeClock())

    def follow(group: str, expression: str, version: int) -> str | None:
        wanted = SubscriptionData(
            topic="t", expression=expression, expression_type="SQL92", version=version
        )
        table.follow(group, {"t": wanted})
        found = table.find("t", group)
        return found.expression if found is not None else None

    assert follow("one", "a = 11", 1) == "a = 11"
    assert follow("two", "a = 11", 1) == "a = 11"
    table._room._bytes_max = size_of(table)
    assert follow("one", "a = 22", 2) == "a = 22"
    assert follow("one", "a = 333", 3) == "a = 22"
    assert follow("one", "a = 4", 4) == "a = 4"
    # What one group gave back another takes.
    assert follow("two", "a = 555", 5) == "a = 555"
    assert follow("two", "a = 6666", 6) == "a = 555"


def test_json_file_larger_than_a_start_reads_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell() -> None:
        file = JsonFile(tmp_path / "table.json")
        monkeypatch.setattr(files, "FILE_SIZE_MAX", 100)
        await file.save(lambda: b'{"a":1}')
        with pytest.raises(OSError, match="more than the 100 that a start reads") as raised:
            await file.save(lambda: b'"' + b"x" * 100 + b'"')
        assert raised.value.errno == errno.EFBIG
        assert file.load(json.loads) == {"a": 1}

    asyncio.run(tell())
