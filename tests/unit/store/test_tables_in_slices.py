"""Tables that are changed, copied and written in slices: what others see meanwhile."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import TableFull
from roquet.base.limits import ANSWER_SIZE_MAX
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol import fastjson
from roquet.protocol.bodies.groups import GroupTableBody
from roquet.protocol.bodies.offsets import ConsumerOffsetBody
from roquet.protocol.bodies.topics import TopicTableBody
from roquet.store.tables import groups as groups_module
from roquet.store.tables import offsets as offsets_module
from roquet.store.tables import room as room_module
from roquet.store.tables import topics as topics_module
from roquet.store.tables.files import JsonFile
from roquet.store.tables.groups import GroupTable, GroupTableConfig
from roquet.store.tables.offsets import OffsetTable
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path


def topics(folder: Path) -> TopicTable:
    return TopicTable(
        JsonFile(folder / "topics.json"), TopicTableConfig(broker_name="b"), FakeClock()
    )


def groups(folder: Path) -> GroupTable:
    return GroupTable(JsonFile(folder / "groups.json"), GroupTableConfig(), FakeClock())


def offsets(folder: Path) -> OffsetTable:
    return OffsetTable(JsonFile(folder / "consumerOffset.json"), FakeClock())


def test_table_that_was_handed_out_is_never_changed(tmp_path: Path) -> None:
    table, other = topics(tmp_path), groups(tmp_path)
    seen, seen_groups = table.all(), other.all()
    before, before_groups = dict(seen), dict(seen_groups)
    table.put(TopicConfig(name="new"))
    table.remove("SELF_TEST_TOPIC")
    other.put(SubscriptionGroupConfig(name="new"))
    other.remove("TOOLS_CONSUMER")
    assert (seen, seen_groups) == (before, before_groups)
    assert table.get("new") is not None
    assert "TOOLS_CONSUMER" not in other.all()


def test_many_topics_or_groups_are_taken_all_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_module, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(topics_module, "TOPICS_MAX", 40)
    monkeypatch.setattr(groups_module, "GROUPS_MAX", 20)
    table, other = topics(tmp_path), groups(tmp_path)
    room = 40 - len(table)
    configs = [TopicConfig(name=f"t{number}") for number in range(room + 1)]
    with pytest.raises(TableFull):
        asyncio.run(table.put_in_slices(configs))
    assert len(table) == 40 - room
    asyncio.run(table.put_in_slices(configs[:room]))
    # What is there already takes no more room.
    asyncio.run(table.put_in_slices(configs[:room]))
    assert len(table) == 40
    with pytest.raises(TableFull):
        table.put(TopicConfig(name="one-more"))
    many = [SubscriptionGroupConfig(name=f"g{number}") for number in range(20)]
    with pytest.raises(TableFull):
        asyncio.run(other.put_in_slices(many))
    assert len(other) == 8
    asyncio.run(other.put_in_slices(many[:12]))
    assert len(other) == 20


def test_offsets_are_bounded_by_the_answer_that_slaves_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(offsets_module, "ANSWER_SIZE_MAX", 4_000)
    table = offsets(tmp_path)
    top = 2**63 - 1
    taken = 0
    while table.commit(f"group-{taken % 7}", "topic", taken, top):
        taken += 1
    answer = asyncio.run(table.encoded())
    assert 3_000 < len(answer) < 4_000
    assert str(ANSWER_SIZE_MAX) in caplog.text
    assert len(ConsumerOffsetBody.decode(answer).offsets) == 7
    # Known ones move, offsets last pulled are in no answer, and removing makes room.
    assert table.commit("group-0", "topic", 0, 5)
    table.note_pull("reader", "topic", 0, 5)
    assert table.pulled("reader", "topic", 0) == 5
    with pytest.raises(TableFull):
        table.copy_group("group-0", "other", "topic")
    asyncio.run(table.remove_group("group-0"))
    assert table.commit("other", "topic", 0, top)
    asyncio.run(table.remove_topic("topic"))
    assert (len(table), table.groups(), table.groups_of("topic")) == (0, [], [])


def test_offsets_copied_in_slices_are_those_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets_module, "OFFSETS_AT_ONCE", 10)
    table = offsets(tmp_path)
    for number in range(100):
        table.commit(f"g{number}", f"t{number % 10}", number, number)
        table.note_pull(f"g{number}", "pulled", 0, number)

    async def copy() -> dict[str, dict[int, int]]:
        copying = asyncio.ensure_future(table.encoded())
        await asyncio.sleep(0)
        await table.remove_group("g99")
        return dict(ConsumerOffsetBody.decode(await copying).offsets)  # type: ignore[arg-type]

    found = asyncio.run(copy())
    assert found == table.export().offsets
    asyncio.run(table.persist())
    again = offsets(tmp_path)
    again.load()
    assert again.export() == table.export()
    assert again.topics_of("g5") == ["t5"]
    assert set(again.groups_of("t5")) == {f"g{number}" for number in range(5, 99, 10)}


@pytest.mark.parametrize("count", [0, 1, 3])
def test_tables_written_row_by_row_are_the_json_of_the_whole(tmp_path: Path, count: int) -> None:
    table, other, positions = topics(tmp_path), groups(tmp_path), offsets(tmp_path)
    rows = {f't"{number}': TopicConfig(name=f't"{number}') for number in range(count)}
    body = TopicTableBody(topics=rows, version=table.version)
    assert json.loads(body.encode()) == json.loads(body.encode_file())
    assert TopicTableBody.decode(body.encode_file()) == body
    members = {f"g{number}": SubscriptionGroupConfig(name=f"g{number}") for number in range(count)}
    group_body = GroupTableBody(groups=members, version=other.version)
    assert GroupTableBody.decode(group_body.encode()) == group_body
    assert GroupTableBody.decode(group_body.encode_file()) == group_body
    for number in range(count):
        positions.commit("g", "t", number, number)
    assert ConsumerOffsetBody.decode(positions.export().encode()).offsets == (
        {"t@g": {number: number for number in range(count)}} if count else {}
    )


@pytest.mark.parametrize("light", [False, True])
def test_offsets_are_written_in_pieces_with_a_turn_for_others_after_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, light: bool
) -> None:
    # So that lists of topics, and rows, end in the middle of pieces.
    monkeypatch.setattr(fastjson, "PIECE_SIZE", 100)
    monkeypatch.setattr(fastjson, "ITEMS_AT_ONCE", 7)
    monkeypatch.setattr(fastjson, "SORTED_MAX", 30)
    file = JsonFile(tmp_path / "offsets.json")
    table = OffsetTable(file, FakeClock(), light_queues=light)
    for number in range(100):
        table.commit(f"%LMQ%g{number % 3}", f"t{99 - number}", number % 2, number)
        table.commit("one", f"%LMQ%$parent${number}", 0, number)
    table.note_pull("one", "pulled", 0, 7)
    turns = [0]

    async def write() -> bytes:
        async def count() -> None:
            while True:
                turns[0] += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await table.persist()
        assert turns[0] >= len(file.path.read_bytes()) // 400
        before, answer = turns[0], await table.encoded()
        assert turns[0] - before >= len(answer) // 400
        counting.cancel()
        return answer

    answer, body = asyncio.run(write()), table.export()
    assert ConsumerOffsetBody.decode(answer).offsets == body.offsets
    text = file.path.read_bytes()
    assert text == (body.encode_light_file() if light else body.encode_file())
    assert ConsumerOffsetBody.decode(text) == body
    monkeypatch.undo()
    whole = body.encode_light_file() if light else body.encode_file()
    assert fastjson.read_object(whole) == {
        **fastjson.read_object(text),
        "groupTopicMap": fastjson.read_object(whole)["groupTopicMap"],
    }
    mine = fastjson.read_object(text)["groupTopicMap"]
    assert {group: sorted(names) for group, names in mine.items()} == fastjson.read_object(whole)[
        "groupTopicMap"
    ]
