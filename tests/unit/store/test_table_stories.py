"""Tables after any story: contents, indexes, file, counted bytes and listeners agree."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from roquet.base.errors import TableFull
from roquet.model.group import SimpleSubscription, SubscriptionGroupConfig
from roquet.model.subscription import SubscriptionData
from roquet.model.topic import TopicConfig
from roquet.store.tables import filters as filters_module
from roquet.store.tables import offsets as offsets_module
from roquet.store.tables import topics as topics_module
from roquet.store.tables.files import JsonFile
from roquet.store.tables.filters import DEAD_KEPT_MS, LOADED_DEAD_MS, FilterTable
from roquet.store.tables.groups import GroupTable, GroupTableConfig
from roquet.store.tables.offsets import OFFSETS_MAX, VERSION_STEP, OffsetTable
from roquet.store.tables.room import text_size
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

TOPICS, GROUPS = ("a", "b", "%RETRY%g"), ("g", "h")


# --- offsets -------------------------------------------------------------------------------------


def offset_table(folder: Path) -> OffsetTable:
    return OffsetTable(JsonFile(folder / "consumerOffset.json"), FakeClock())


def counts(it: OffsetTable) -> tuple[object, ...]:
    """Return all that a table counts and indexes."""
    names = sorted({group for _, group in it.pairs()} | set(GROUPS))
    return (
        (it._room.entries, it._room.used, it._answer.entries, it._answer.used, len(it)),
        sorted(it.groups()),
        [sorted(it.topics_of(group)) for group in names],
        [sorted(it.groups_of(topic)) for topic in TOPICS],
        sorted(it._pulled_pairs.topics),
    )


class OffsetStory:
    """Does the same to a table and to plain dictionaries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.it = offset_table(folder)
        self.committed: dict[tuple[str, str, int], int] = {}
        self.pulled: dict[tuple[str, str, int], int] = {}
        self.resets: dict[tuple[str, str, int], int] = {}
        self.told: list[Collection[str]] = []
        self.it.listen(self.told.append)

    async def step(self, what: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        key = group, topic, queue_id
        self.told.clear()
        expected: list[Collection[str]] = []
        if what == "commit":
            assert self.it.commit(*key, offset)
            self.committed[key] = offset
        elif what == "pull":
            self.it.note_pull(*key, offset)
            self.pulled[key] = offset
            # Pulled offsets are for figures alone: they are saved with the next commit.
            await self.step("commit", group, topic, queue_id, offset + 1)
        elif what == "reset":
            self.it.reset(*key, offset)
            self.committed[key] = self.resets[key] = offset
            expected = [(group,)]
        elif what == "take":
            expected = [(group,)] if key in self.resets else []
            assert self.it.take_reset(*key) == self.resets.pop(key, None)
        elif what == "copy":
            other = "h" if group == "g" else "g"
            self.it.copy_group(group, other, topic)
            mine = {it[2]: at for it, at in self.committed.items() if it[:2] == (group, topic)}
            if mine:
                theirs = [it for it in self.committed if it[:2] == (other, topic)]
                for gone in theirs:
                    del self.committed[gone]
                self.committed |= {(other, topic, number): at for number, at in mine.items()}
        else:
            remove = self.it.remove_topic if what == "topic" else self.it.remove_group
            await remove(topic if what == "topic" else group)
            place, name = (1, topic) if what == "topic" else (0, group)
            both = (*self.committed, *self.pulled)
            pairs = {it[:2] for it in both if it[place] == name}
            for table in (self.committed, self.pulled, self.resets):
                for gone in [it for it in table if it[place] == name]:
                    del table[gone]
            assert sorted(map(list, self.told)) == sorted([pair[0]] for pair in pairs)
            return
        assert self.told == expected

    async def check(self) -> None:
        it = self.it
        for group in GROUPS:
            for topic in TOPICS:
                for queue_id in range(3):
                    key = group, topic, queue_id
                    assert it.committed(*key) == self.committed.get(key)
                    assert it.pulled(*key) == self.pulled.get(key)
                    assert it.pending_reset(*key) == self.resets.get(key)
                    assert it.query(*key) == self.resets.get(key, self.committed.get(key))
                mine = {k[2]: at for k, at in self.committed.items() if k[:2] == (group, topic)}
                assert it.queues(group, topic) == mine
            assert it.has_reset(group) == any(key[0] == group for key in self.resets)
        await it.persist()
        again = offset_table(self.folder)
        again.load()
        assert counts(again) == counts(it)
        assert again.export().offsets == it.export().offsets
        assert again.export().pull_offsets == it.export().pull_offsets


@pytest.mark.parametrize("seed", range(6))
def test_offsets_after_any_story_are_counted_indexed_and_saved(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    kinds = ("commit", "commit", "pull", "reset", "take", "copy", "topic", "group")

    async def run() -> None:
        story = OffsetStory(tmp_path)
        for _ in range(25):
            what = draw.choice(kinds)
            group, topic = draw.choice(GROUPS), draw.choice(TOPICS)
            await story.step(what, group, topic, draw.randrange(3), draw.randrange(5))
            await story.check()

    asyncio.run(run())


def test_offset_takes_so_many_bytes_of_the_file_and_of_an_answer(tmp_path: Path) -> None:
    it = offset_table(tmp_path)
    key = text_size("topic@group")
    it.commit("group", "topic", 0, 5)
    assert (it._room.entries, it._room.used) == (1, 36 + 2 * key + 32)
    assert (it._answer.entries, it._answer.used) == (1, 27 + key + 8)
    it.commit("group", "topic", 0, 6)
    it.commit("group", "topic", 1, 6)
    assert (it._room.entries, it._room.used) == (2, 72 + 2 * key + 32)
    assert (it._answer.entries, it._answer.used) == (2, 54 + key + 8)
    it.note_pull("group", "topic", 0, 6)
    assert (it._room.entries, it._room.used) == (3, 108 + 4 * key + 64)
    assert it._answer.entries == 2


def test_full_table_of_offsets_takes_no_copy_and_no_reset_and_stays_as_it_is(
    tmp_path: Path,
) -> None:
    it = offset_table(tmp_path)
    for queue_id in range(3):
        it.commit("g", "a", queue_id, queue_id)
    for room in (it._room, it._answer):
        before = counts(it)
        room._entries_max = 5
        with pytest.raises(TableFull):
            it.copy_group("g", "h", "a")
        assert counts(it) == before
        room._entries_max = 6
        it.copy_group("g", "h", "a")
        with pytest.raises(TableFull):
            it.reset("g", "b", 0, 1)
        assert not it.commit("g", "b", 0, 1)
        it.reset("g", "a", 0, 1)
        asyncio.run(it.remove_group("h"))
        assert counts(it) == before
        room._entries_max = OFFSETS_MAX


@pytest.mark.parametrize("commits", [1, 7])
def test_version_of_offsets_moves_at_each_step_of_commits(tmp_path: Path, commits: int) -> None:
    it = offset_table(tmp_path)
    first = it.version
    done = 0
    while done + commits < VERSION_STEP:
        it.commit("g", "a", 0, done, commits=commits)
        done += commits
    assert it.version == first
    it.commit("g", "a", 0, done, commits=commits)
    assert it.version.counter == first.counter + 1


@pytest.mark.parametrize("change", ["reset", "copy", "commit"])
def test_version_of_offsets_moves_at_a_step_whatever_makes_it(tmp_path: Path, change: str) -> None:
    it = offset_table(tmp_path)
    it.commit("g", "a", 0, 0, commits=VERSION_STEP - 1)
    first = it.version
    actions: dict[str, Callable[[], object]] = {
        "reset": lambda: it.reset("g", "a", 0, 0),
        "copy": lambda: it.copy_group("g", "h", "a"),
        "commit": lambda: it.commit("g", "a", 0, 0),
    }
    actions[change]()
    assert it.version.counter == first.counter + 1
    it.commit("g", "a", 0, 0, commits=VERSION_STEP - 1)
    assert it.version.counter == first.counter + 1
    actions[change]()
    assert it.version.counter == first.counter + 2


@pytest.mark.parametrize(
    ("at_once", "keys", "turns"), [(40, 7, 0), (40, 8, 1), (40, 17, 2), (41, 8, 0), (41, 17, 1)]
)
def test_copy_of_offsets_lets_others_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, keys: int, turns: int
) -> None:
    """Each topic of a group costs its three offsets, and two more for itself."""
    monkeypatch.setattr(offsets_module, "OFFSETS_AT_ONCE", at_once)
    monkeypatch.setattr(offsets_module, "KEYS_AT_ONCE", 2)
    it = offset_table(tmp_path)
    for number in range(keys):
        for queue_id in range(3):
            it.commit("g", f"t{number}", queue_id, number)
    copy = offsets_module._copied(it._committed)
    given, copied = 0, None
    while copied is None:
        try:
            copy.send(None)
            given += 1
        except StopIteration as end:
            copied = end.value
    assert given == turns
    assert copied == it.export().offsets


# --- topics and groups ---------------------------------------------------------------------------


def topic_table(folder: Path) -> TopicTable:
    rules = TopicTableConfig(cluster="c", broker_name="b")
    return TopicTable(JsonFile(folder / "topics.json"), rules, FakeClock())


def group_table(folder: Path) -> GroupTable:
    return GroupTable(JsonFile(folder / "subscriptionGroup.json"), GroupTableConfig(), FakeClock())


@pytest.mark.parametrize("seed", range(4))
def test_topics_and_groups_after_any_story_are_counted_told_and_saved(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)

    async def run() -> None:
        topics, groups = topic_table(tmp_path), group_table(tmp_path)
        told: list[set[str]] = []
        topics.listen(lambda names: told.append(set(names)))
        groups.listen(lambda names: told.append(set(names)))
        for _ in range(12):
            told.clear()
            name = draw.choice("xyz")
            more = {draw.choice("kl"): "v" * draw.randrange(3)} if draw.random() < 0.5 else {}
            topic = TopicConfig(name=name, read_queues=draw.randrange(1, 3), attributes=more)
            group = SubscriptionGroupConfig(name=name, attributes=more, broker_id=draw.randrange(2))
            before = topics.get(name), groups.get(name), groups.forbidden(name, "t")
            match draw.randrange(5):
                case 0:
                    assert topics.put(topic) == (before[0] != topic)
                    assert told == [{name}] * (before[0] != topic)
                case 1:
                    await topics.put_in_slices([topic, TopicConfig(name="other")])
                case 2:
                    assert groups.put(group) == (before[1] != group)
                    assert told == [{name}] * (before[1] != group)
                case 3:
                    bits = draw.randrange(3)
                    groups.set_forbidden(name, "t", bits)
                    assert groups.forbidden(name, "t") == bits
                    assert told == [{name}] * (before[2] != bits)
                case _:
                    assert (topics.remove(name), groups.remove(name)) == before[:2]
                    assert told == [{name}] * sum(it is not None for it in before[:2])
            await topics.persist()
            await groups.persist()
            for it, again in (
                (topics, topic_table(tmp_path)),
                (groups, group_table(tmp_path)),
            ):
                again.load()
                assert again.all() == it.all()
                rooms = [(table._room.entries, table._room.used) for table in (it, again)]
                assert rooms[0] == rooms[1]

    asyncio.run(run())


def test_topics_and_groups_take_so_many_bytes(tmp_path: Path) -> None:
    topics, groups = topic_table(tmp_path), group_table(tmp_path)

    def grown(table: TopicTable | GroupTable, config: Any) -> int:
        before = table._room.used
        table.put(config)
        return table._room.used - before

    name, pair = text_size("orders"), text_size("k") + text_size("vv")
    topic = TopicConfig(name="orders")
    plain = grown(topics, topic)
    assert plain == topics_module._TOPIC_SIZE + 2 * name
    assert grown(topics, dataclasses.replace(topic, attributes={"k": "vv"})) == pair + 2
    group = SubscriptionGroupConfig(name="orders")
    assert grown(groups, group) == 900 + 2 * name
    with_attributes = dataclasses.replace(group, attributes={"k": "vv"})
    assert grown(groups, with_attributes) == pair + 8
    one = SimpleSubscription(topic="t", expression="xx", expression_type="TAG", version=1)
    with_one = dataclasses.replace(with_attributes, subscriptions=(one,))
    assert grown(groups, with_one) == 120 + sum(map(text_size, ("t", "xx", "TAG")))
    policy = dataclasses.replace(with_one.retry_policy, next_ms=(1, 2, 3))
    assert grown(groups, dataclasses.replace(with_one, retry_policy=policy)) == 3 * 16
    used = groups._room.used
    groups.set_forbidden("orders", "topic", 1)
    assert groups._room.used - used == name + text_size("topic") + 32


@pytest.mark.parametrize(
    ("name", "is_safe"),
    [("a", True), ("a" * 255, True), ("a" * 256, False), ("", False), (".", False), ("..", False)],
)
def test_name_of_a_folder_has_at_most_255_bytes(name: str, *, is_safe: bool) -> None:
    assert topics_module.is_path_safe(name) is is_safe
    assert not topics_module.is_path_safe("\u00e9" * 128)
    for mark in "/\\\0":
        assert not topics_module.is_path_safe(f"a{mark}b")


# --- filters -------------------------------------------------------------------------------------


def sql(topic: str, expression: str, version: int, kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(
        topic=topic, expression=expression, expression_type=kind, version=version
    )


class FilterStory:
    """A table of filters, and (topic, group) -> expression, version, since when it is dead."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.file = JsonFile(folder / "consumerFilter.json")
        self.it = FilterTable(self.file, self.clock)
        self.model: dict[tuple[str, str], tuple[str, int, int]] = {}
        self.told: list[str] = []
        self.it.listen(self.told.append)

    def follow(self, group: str, *subscriptions: SubscriptionData) -> None:
        before = dict(self.model)
        self.told.clear()
        self.it.follow(group, {it.topic: it for it in subscriptions})
        wanted = [it for it in subscriptions if it.expression_type == "SQL92" and it.expression]
        for each in wanted:
            key = each.topic, group
            old = self.model.get(key)
            if old is None or each.version > old[1]:
                self.model[key] = each.expression, each.version, 0
            elif old[:2] == (each.expression, each.version):
                self.model[key] = *old[:2], 0
        for topic, owner in list(self.model):
            left = owner == group and topic not in {it.topic for it in wanted}
            expression, version, dead_ms = self.model[topic, owner]
            if left and not dead_ms:
                self.model[topic, owner] = expression, version, self.clock.now_ms()
        assert bool(self.told) == (self.model != before)
        assert set(self.told) <= {group}

    async def later(self, by_ms: int) -> None:
        await self.clock.advance(by_ms / 1000)
        oldest_ms = self.clock.now_ms() - DEAD_KEPT_MS
        self.told.clear()
        await self.it.persist()
        gone = [key for key, value in self.model.items() if value[2] and value[2] < oldest_ms]
        for key in gone:
            del self.model[key]
        assert sorted(self.told) == sorted(group for _, group in gone)

    async def check(self) -> None:
        shown = {
            (it.topic, it.group): (it.expression, it.version, it.dead_ms) for it in self.it.all()
        }
        assert shown == self.model
        for (topic, group), value in self.model.items():
            found = self.it.find(topic, group)
            assert found is not None
            assert found.expression == value[0]
        groups = {group for _, group in self.model}
        assert {group for group in GROUPS if self.it.for_retries(group) is not None} == groups
        assert len(self.it) == len(self.model)
        assert set(self.it._by_group) == groups
        await self.later(0)
        again = FilterTable(self.file, self.clock)
        again.load()
        assert (len(again), again._room.used) == (len(self.it), self.it._room.used)
        loaded = self.clock.now_ms() - LOADED_DEAD_MS
        expected = {key: (*value[:2], value[2] or loaded) for key, value in self.model.items()}
        assert {
            (it.topic, it.group): (it.expression, it.version, it.dead_ms) for it in again.all()
        } == expected


@pytest.mark.parametrize("seed", range(6))
def test_filters_after_any_story_are_counted_indexed_told_and_saved(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)

    async def run() -> None:
        story = FilterStory(tmp_path)
        for _ in range(20):
            group = draw.choice(GROUPS)
            some = draw.sample(TOPICS, draw.randrange(3))
            subscriptions = [
                sql(
                    topic,
                    draw.choice(("x = 1", "x = 2 OR y = 12345", "")),
                    draw.randrange(3),
                    draw.choice(("SQL92", "SQL92", "TAG")),
                )
                for topic in some
            ]
            story.follow(group, *subscriptions)
            await story.check()
            if draw.random() < 0.4:
                await story.later(draw.choice((DEAD_KEPT_MS, DEAD_KEPT_MS + 1, 1000)))
                await story.check()

    asyncio.run(run())


def test_filter_takes_so_many_bytes_and_an_empty_table_is_not_written(tmp_path: Path) -> None:
    story = FilterStory(tmp_path)
    asyncio.run(story.it.persist())
    assert not story.file.path.exists()
    story.follow("group", sql("topic", "x = 1", 1))
    names = 3 * text_size("topic") + 2 * text_size("group") + text_size("x = 1")
    assert story.it._room.used == filters_module._FILTER_SIZE + names


def test_filter_is_forgotten_a_day_after_its_group_went(tmp_path: Path) -> None:
    async def run() -> None:
        story = FilterStory(tmp_path)
        story.follow("g", sql("a", "x = 1", 1), sql("b", "x = 1", 1))
        story.follow("g", sql("b", "x = 1", 1))
        await story.later(DEAD_KEPT_MS)
        assert len(story.it) == 2
        await story.later(1)
        assert [it.topic for it in story.it.all()] == ["b"]
        await story.check()

    asyncio.run(run())


def test_filter_of_retries_follows_the_expressions(tmp_path: Path) -> None:
    story = FilterStory(tmp_path)
    origin = b"RETRY_TOPIC\x01a\x02x\x011\x02"
    story.follow("g", sql("a", "x = 1", 1))
    first = story.it.for_retries("g")
    assert first is not None
    assert first.matches(origin)
    story.follow("g", sql("a", "x = 2", 2))
    second = story.it.for_retries("g")
    assert second is not None
    assert not second.matches(origin)


def test_table_that_is_not_written_is_written_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        story = FilterStory(tmp_path)
        story.follow("g", sql("a", "x = 1", 1))

        async def fails(*_: object) -> None:
            raise OSError("disk")

        monkeypatch.setattr(story.file, "save", fails)
        with pytest.raises(OSError, match="disk"):
            await story.it.persist()
        monkeypatch.undo()
        await story.check()
        path = story.file.path
        path.unlink()
        await story.it.persist()
        assert not path.exists(), "nothing has changed"

    asyncio.run(run())


def test_only_sql_filters_of_the_file_are_taken_and_full_tables_take_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = FilterStory(tmp_path)
    story.follow("g", sql("a", "x = 1", 1), sql("b", "x = 2", 1))
    asyncio.run(story.it.persist())
    path = tmp_path / "consumerFilter.json"
    written: dict[str, Any] = json.loads(path.read_bytes())
    written["filterDataByTopic"]["a"]["groupFilterData"]["g"]["expressionType"] = "TAG"
    path.write_text(json.dumps(written))
    again = FilterTable(story.file, story.clock)
    again.load()
    assert [it.topic for it in again.all()] == ["b"]
    monkeypatch.setattr(filters_module, "FILTERS_MAX", 2)
    full = FilterStory(tmp_path / "full")
    full.it.follow("g", {it.topic: it for it in (sql(name, "x = 1", 1) for name in "abc")})
    assert [it.topic for it in full.it.all()] == ["a", "b"]
    full.it.follow("g", {it.topic: it for it in (sql(name, "x = 2", 2) for name in "abc")})
    assert [it.expression for it in full.it.all()] == ["x = 2", "x = 2"]
