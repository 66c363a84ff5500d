"""The table of topics: when it is whole, what is durable, what another broker's table changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.base.errors import DiskFull, TableFull
from roquet.base.overriding import override
from roquet.model.data_version import DataVersion
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import FilterType, TopicConfig
from roquet.protocol.bodies.groups import GroupTableBody
from roquet.store.tables.files import JsonFile
from roquet.store.tables.groups import PREDEFINED_GROUPS, GroupTable, GroupTableConfig
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOW_MS = 1_700_000_000_000


def topics(folder: Path, **rules: int | bool) -> TopicTable:
    """Return a broker's table, loaded; its file is `config/topics.json`."""
    table = TopicTable(
        JsonFile(folder / "config" / "topics.json"),
        TopicTableConfig(cluster="c", broker_name="b", **rules),  # type: ignore[arg-type]
        FakeClock(NOW_MS),
    )
    table.load()
    return table


def groups(folder: Path) -> GroupTable:
    file = JsonFile(folder / "config" / "subscriptionGroup.json")
    table = GroupTable(file, GroupTableConfig(), FakeClock(NOW_MS))
    table.load()
    return table


def config(name: str, queues: int = 1) -> TopicConfig:
    return TopicConfig(name=name, read_queues=queues, write_queues=queues)


class HeldFile(JsonFile):
    """A file whose writes wait until they may go on, or fail."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may_go_on = asyncio.Event()
        self.fault: Exception | None = None
        self.writes = 0

    @override
    async def save(self, encode: Callable[[], bytes]) -> None:
        self.writes += 1
        await self.may_go_on.wait()
        if self.fault is not None:
            raise self.fault
        await super().save(encode)


# --- whether the table is whole ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "queues", "is_complete"),
    [
        ((), None, True),
        ((), (), True),
        ((), ("SELF_TEST_TOPIC", "b"), True),
        ((), ("SELF_TEST_TOPIC", "orders"), False),
        ((), ("orders",), False),
        (("topics.json",), ("orders",), True),
        (("topics.json.bak",), None, False),
        (("topics.json.bak",), ("orders",), False),
        (("topics.json", "topics.json.bak"), ("orders",), True),
    ],
)
def test_table_is_whole_unless_its_file_was_lost(
    tmp_path: Path, files: tuple[str, ...], queues: tuple[str, ...] | None, *, is_complete: bool
) -> None:
    (tmp_path / "config").mkdir()
    for name in files:
        (tmp_path / "config" / name).write_text('{"topicConfigTable":{}}')
    for topic in queues or ():
        (tmp_path / "consumequeue" / topic).mkdir(parents=True)
    if queues == ():
        (tmp_path / "consumequeue").mkdir()
    table = topics(tmp_path)
    assert table.is_complete() is is_complete
    assert table.lost_mark.exists() is not is_complete
    # The next start reads a whole file, but what was lost stays lost until somebody says so.
    asyncio.run(table.persist())
    again = topics(tmp_path)
    assert again.is_complete() is is_complete
    again.lost_mark.unlink(missing_ok=True)
    assert again.is_complete()
    assert table.is_complete() is is_complete


def test_loss_that_cannot_be_marked_counts_until_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "consumequeue" / "orders").mkdir(parents=True)
    # There is no folder for the mark.
    table = topics(tmp_path)
    assert not table.lost_mark.exists()
    assert not table.is_complete()


# --- what is durable -----------------------------------------------------------------------------


def test_topic_is_durable_when_the_file_says_what_the_table_says(tmp_path: Path) -> None:
    async def run() -> None:
        file = HeldFile(tmp_path / "topics.json")
        table = TopicTable(file, TopicTableConfig(cluster="c", broker_name="b"), FakeClock(NOW_MS))
        told: list[set[str]] = []
        table.listen_durable(lambda names: told.append(set(names)))
        known = ("stays", "changes", "goes", "changes and back")
        table.put(*map(config, known))
        writing = asyncio.ensure_future(table.persist())
        await asyncio.sleep(0)
        table.put(config("changes", 2), config("comes"), config("changes and back", 2))
        table.put(config("changes and back"))
        table.remove("goes")
        file.may_go_on.set()
        await writing
        assert told == [{"stays", "changes and back"}]
        names = ("stays", "changes", "comes", "goes", "b")
        durable = {name for name in names if table.is_durable(name)}
        assert durable == {"stays", "b"}
        await table.persist()
        assert told[1:] == [{"changes", "comes", "goes"}]
        durable = {name for name in names if table.is_durable(name)}
        assert durable == {"stays", "b", "changes", "comes"}
        await table.persist()
        assert (file.writes, len(told)) == (2, 2), "nothing has changed"

    asyncio.run(run())


@pytest.mark.parametrize("fault", [DiskFull("no room"), OSError(5, "broken")])
def test_who_waits_together_shares_a_failed_write_and_the_next_one_tries(
    tmp_path: Path, fault: Exception
) -> None:
    async def run() -> None:
        file = HeldFile(tmp_path / "topics.json")
        file.fault = fault
        table = TopicTable(file, TopicTableConfig(cluster="c", broker_name="b"), FakeClock(NOW_MS))
        table.put(config("orders"))
        for writes in (2, 4):
            file.may_go_on.clear()
            waiting = [asyncio.ensure_future(table.persist()) for _ in range(4)]
            await asyncio.sleep(0)
            file.may_go_on.set()
            found = await asyncio.gather(*waiting, return_exceptions=True)
            # The second came when the first write had begun: it tries for all behind it.
            assert [(type(it), str(it)) for it in found] == [(type(fault), str(fault))] * 4
            assert [it is fault for it in found] == [True, True, False, False]
            assert {cast("Exception", it).__cause__ for it in found[2:]} == {fault}
            assert file.writes == writes
            assert not table.is_durable("orders")
        file.fault = None
        await asyncio.gather(*(table.persist() for _ in range(3)))
        assert file.writes == 5
        assert table.is_durable("orders")

    asyncio.run(run())


# --- another broker's tables ---------------------------------------------------------------------


def test_table_of_another_broker_is_taken_over_as_it_is(tmp_path: Path) -> None:
    table, fresh = topics(tmp_path), topics(tmp_path / "other")
    table.put(config("same"), config("other", 2), config("gone"))
    asyncio.run(table.persist())
    told: list[set[str]] = []
    table.listen(lambda names: told.append(set(names)))
    handed = dict(before := table.all())
    theirs = {it.name: it for it in (config("same"), config("other", 3), config("new"))}
    version = DataVersion(counter=70, timestamp=7)
    changed_own = config("b", 5)
    table.replace({**theirs, "b": changed_own, "../evil": config("../evil")}, version)
    # The built-in topics stay in any case; theirs go before ours.
    assert table.all() == {**fresh.all(), **theirs, "b": changed_own}
    assert table.version == version
    assert told == [{"other", "gone", "new", "b"}]
    assert before == handed, "what was handed out does not change"
    assert {name for name in ("same", "other", "new", "b") if table.is_durable(name)} == {"same"}
    asyncio.run(table.persist())
    assert all(map(table.is_durable, table.all()))
    again = topics(tmp_path)
    assert (again.all(), again.version) == (table.all(), version)
    assert (again._room.entries, again._room.used) == (table._room.entries, table._room.used)
    # It is ours from now on: theirs does not change with it.
    table.put(config("mine"))
    assert sorted(theirs) == ["new", "other", "same"]


def test_groups_of_another_broker_are_taken_over_as_they_are(tmp_path: Path) -> None:
    table = groups(tmp_path)
    table.put(SubscriptionGroupConfig(name="gone"), SubscriptionGroupConfig(name="other"))
    table.set_forbidden("gone", "t", 1)
    told: list[set[str]] = []
    table.listen(lambda names: told.append(set(names)))
    theirs = {
        "other": SubscriptionGroupConfig(name="other", retry_max_times=2),
        "new": SubscriptionGroupConfig(name="new"),
    }
    forbidden = {"new": {"t": 1}}
    version = DataVersion(counter=70, timestamp=7)
    table.replace(GroupTableBody(groups=theirs, version=version, forbidden=forbidden))
    assert (table.all(), table.version, table.all_forbidden()) == (theirs, version, forbidden)
    # The rights of any group may have changed with the forbidden table.
    assert told == [{*PREDEFINED_GROUPS, "gone", "other", "new"}]
    asyncio.run(table.persist())
    again = groups(tmp_path)
    assert again.all_forbidden() == forbidden
    assert {name: again.get(name) for name in theirs} == theirs
    assert again.get("gone") is None
    counted = GroupTable(JsonFile(tmp_path / "none"), GroupTableConfig(), FakeClock())
    before = counted._room.entries, counted._room.used
    assert again._room.entries == table._room.entries + before[0]
    assert again._room.used == table._room.used + before[1]
    table.put(SubscriptionGroupConfig(name="mine"))
    table.set_forbidden("mine", "t", 1)
    assert (sorted(theirs), sorted(forbidden)) == (["new", "other"], ["new"])


def test_loaded_groups_are_not_written_again_before_they_change(tmp_path: Path) -> None:
    table = groups(tmp_path)
    table.put(SubscriptionGroupConfig(name="g"))
    asyncio.run(table.persist())
    again = groups(tmp_path)
    path = tmp_path / "config" / "subscriptionGroup.json"
    path.unlink()
    asyncio.run(again.persist())
    assert not path.exists()
    again.put(SubscriptionGroupConfig(name="h"))
    asyncio.run(again.persist())
    assert path.exists()
    path.unlink()
    asyncio.run(again.persist())
    assert not path.exists()


def test_group_is_found_or_made_by_the_rules_that_hold_now(tmp_path: Path) -> None:
    table = groups(tmp_path)
    known = SubscriptionGroupConfig(name="known", retry_max_times=3)
    table.put(known)
    assert table.find("known") == known
    table.follow(GroupTableConfig(auto_create=False))
    assert (table.find("known"), table.find("new")) == (known, None)
    table.follow(GroupTableConfig(auto_create_max=len(table) + 1))
    assert table.find("new") == SubscriptionGroupConfig(name="new")
    assert table.find("more") is None


@pytest.mark.parametrize("kind", ["topics", "groups"])
def test_full_table_takes_other_entries_for_those_it_has(tmp_path: Path, kind: str) -> None:
    table: Any = topics(tmp_path) if kind == "topics" else groups(tmp_path)
    make: Any = TopicConfig if kind == "topics" else SubscriptionGroupConfig
    names = ("a", "b1", "c1")
    table.put(*(make(name=name, attributes={"k": "1"}) for name in names))
    for limit in ("_entries_max", "_bytes_max"):
        room = table._room
        setattr(room, limit, room.entries if limit == "_entries_max" else room.used)
        others = [make(name=name, attributes={"k": limit[1]}) for name in names]
        asyncio.run(table.put_in_slices(others))
        assert [table.get(name) for name in names] == others
        with pytest.raises(TableFull):
            asyncio.run(table.put_in_slices([make(name="a"), make(name="more")]))
        assert [table.get(name) for name in names] == others
        setattr(room, limit, 2**40)


def test_forbidden_bits_are_counted_while_they_are_set(tmp_path: Path) -> None:
    table = groups(tmp_path)
    table.put(SubscriptionGroupConfig(name="g"))
    empty = table._room.entries, table._room.used
    for bits in (1, 3, 2):
        table.set_forbidden("g", "t", bits)
        table.set_forbidden("g", "u", bits)
        assert table.forbidden("g", "t") == bits
    full = table._room.used
    table.set_forbidden("g", "t", 0)
    assert table.all_forbidden() == {"g": {"u": 2}}
    assert table._room.used - empty[1] == (full - empty[1]) // 2
    table.set_forbidden("g", "u", 0)
    assert table.all_forbidden() == {}
    assert (table._room.entries, table._room.used) == empty
    table.set_forbidden("g", "t", 1)
    table.remove("g")
    table.put(SubscriptionGroupConfig(name="g"))
    assert (table._room.entries, table._room.used) == empty


# --- topics that come by themselves --------------------------------------------------------------


def test_topic_of_a_send_is_made_after_its_template(tmp_path: Path) -> None:
    table = topics(tmp_path, auto_create=False)
    template = TopicConfig(
        name="mold", read_queues=9, write_queues=3, perm=7, filter_type=FilterType.MULTI_TAG
    )
    table.put(template, TopicConfig(name="TBW102", read_queues=8, write_queues=8, perm=7))
    assert table.create_by_send("orders", "TBW102", 4) is None, "that is what the setting forbids"
    made = table.create_by_send("orders", "mold", 4, 2)
    assert made == table.get("orders")
    assert made == TopicConfig(
        name="orders",
        read_queues=3,
        write_queues=3,
        perm=6,
        filter_type=template.filter_type,
        sys_flag=2,
    )
    assert table.create_by_send("bills", "orders", 4) is None, "its permission is not inherited"


def test_missing_topic_is_made_as_it_is_wanted_and_a_known_one_stays(tmp_path: Path) -> None:
    table = topics(tmp_path)
    made = table.ensure("%RETRY%g", 2, perm=4, sys_flag=1, order=True)
    assert made == table.get("%RETRY%g")
    assert made == TopicConfig(
        name="%RETRY%g", read_queues=2, write_queues=2, perm=4, sys_flag=1, order=True
    )
    version = table.version
    assert table.ensure("%RETRY%g", 5) == made
    assert table.version == version


def test_clients_fill_their_share_and_the_broker_goes_beyond_it(tmp_path: Path) -> None:
    full = len(topics(tmp_path)) + 1
    table = topics(tmp_path, auto_create_max=full)
    table.ensure("last", 1)
    actions: list[Callable[[], object]] = [
        lambda: table.ensure("more", 1),
        lambda: table.create_by_send("more", "TBW102", 1),
    ]
    for action in actions:
        with pytest.raises(TableFull, match=f"there are {full} topics.*beyond {full} "):
            action()
    assert table.ensure("last", 3).read_queues == 1
    table.remove("SELF_TEST_TOPIC")
    table.put(config("another"))
    assert table.ensure("SELF_TEST_TOPIC", 1).read_queues == 1, "the broker's own"
    table.follow(TopicTableConfig(cluster="c", broker_name="b", auto_create_max=full + 2))
    table.ensure("more", 1)


def test_touch_moves_the_version_of_topics_that_stay_durable(tmp_path: Path) -> None:
    table = topics(tmp_path)
    asyncio.run(table.persist())
    handed = table.all()
    told: list[set[str]] = []
    table.listen(lambda names: told.append(set(names)))
    before = table.version
    table.touch()
    assert (table.version.counter, told) == (before.counter + 1, [set()])
    assert table.all() == handed
    assert all(map(table.is_durable, handed))
    asyncio.run(table.persist())
    assert topics(tmp_path).version == table.version


def test_known_topics_are_marked_as_ordered_once(tmp_path: Path) -> None:
    table = topics(tmp_path)
    table.put(config("a"), TopicConfig(name="b1", order=True), config("c1"))
    told: list[set[str]] = []
    table.listen(lambda names: told.append(set(names)))
    for _ in range(2):
        table.mark_ordered(["a", "b1", "unknown"])
    assert told == [{"a"}]
    ordered = {name for name in ("a", "b1", "c1") if (it := table.get(name)) and it.order}
    assert ordered == {"a", "b1"}


@pytest.mark.parametrize("has_lights", [True, False])
def test_name_of_a_light_queue_is_one_only_where_there_are_light_queues(
    tmp_path: Path, *, has_lights: bool
) -> None:
    table = TopicTable(
        JsonFile(tmp_path / "topics.json"),
        TopicTableConfig(cluster="c", broker_name="b"),
        FakeClock(NOW_MS),
        light_queues=has_lights,
    )
    assert table.has_light_queues is has_lights
    light = [table.is_light(name) for name in ("%LMQ%a", "LMQ", "a")]
    assert light == [has_lights, False, False]
    assert (table.get("%LMQ%a") is not None) is has_lights
    assert table.get("a") is None
