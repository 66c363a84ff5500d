"""Topics, groups and offsets: what may be created, what survives a restart, what Java wrote."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from roquet.base.errors import Corrupt, TableFull
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.store.tables.files import JsonFile
from roquet.store.tables.groups import GroupTable, GroupTableConfig
from roquet.store.tables.offsets import OffsetTable
from roquet.store.tables.topics import TopicTable, TopicTableConfig, is_path_safe
from roquet.testing.clock import FakeClock

JAVA = Path(__file__).parents[2] / "vectors" / "store" / "clean" / "config"


def topics(folder: Path, **rules: int | bool | str | None) -> TopicTable:
    table = TopicTable(
        JsonFile(folder / "topics.json"),
        TopicTableConfig(cluster="DefaultCluster", broker_name="broker-a", **rules),  # type: ignore[arg-type]
        FakeClock(),
    )
    table.load()
    return table


def groups(folder: Path, rules: GroupTableConfig | None = None) -> GroupTable:
    table = GroupTable(
        JsonFile(folder / "subscriptionGroup.json"), rules or GroupTableConfig(), FakeClock()
    )
    table.load()
    return table


def offsets(folder: Path) -> OffsetTable:
    table = OffsetTable(JsonFile(folder / "consumerOffset.json"), FakeClock())
    table.load()
    return table


# --- topics --------------------------------------------------------------------------------------


def test_a_fresh_broker_has_the_built_in_topics(tmp_path: Path) -> None:
    table = topics(tmp_path)
    found = {name: (it.read_queues, it.write_queues, it.perm) for name, it in table.all().items()}
    assert found == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "rmq_sys_wheel_timer": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "DefaultCluster": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "SCHEDULE_TOPIC_" + "XX" + "XX": (18, 18, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1, 1),
    }
    more = topics(tmp_path, trace=True, trace_topic="traces").all()
    assert {name: more[name] for name in more if name not in found} == {
        "traces": TopicConfig(name="traces", read_queues=1, write_queues=1, perm=6)
    }
    assert table.is_system("broker-a")
    assert not table.is_system("orders")


def test_java_files_are_read_and_what_we_write_is_what_java_wrote(tmp_path: Path) -> None:
    text = (JAVA / "topics.json").read_bytes()
    (tmp_path / "topics.json").write_bytes(text)
    table = topics(tmp_path)
    golden = table.get("GoldenTopic")
    assert golden is not None
    assert (golden.read_queues, golden.perm) == (4, 6)
    assert table.version.counter == 7
    table.put(TopicConfig(name="AdminTopic", read_queues=5, write_queues=5))
    asyncio.run(table.persist())
    ours = (tmp_path / "topics.json").read_bytes()
    admin = text[text.index(b'\t\t"AdminTopic"') : text.index(b'\t\t"GoldenTx"')]
    admin = admin.replace(b'QueueNums":3', b'QueueNums":5').rstrip(b",\n")
    assert admin in ours
    assert topics(tmp_path).all() == table.all()


def test_a_send_creates_a_topic_after_its_template(tmp_path: Path) -> None:
    table = topics(tmp_path)
    changed: list[str] = []
    table.listen(changed.extend)
    before = table.version
    made = table.create_by_send("orders", "TBW102", 4)
    assert made == TopicConfig(name="orders", read_queues=4, write_queues=4, perm=6)
    assert table.create_by_send("more", "TBW102", 100) == TopicConfig(
        name="more", read_queues=8, write_queues=8, perm=6
    )
    assert changed == ["orders", "more"]
    assert table.version.counter == before.counter + 2


@pytest.mark.parametrize(
    ("template", "queues"), [("TBW102", 0), ("TBW102", -1), ("nowhere", 4), ("BenchmarkTest", 4)]
)
def test_no_topic_comes_from_a_template_that_forbids_it(
    tmp_path: Path, template: str, queues: int
) -> None:
    table = topics(tmp_path)
    assert table.create_by_send("orders", template, queues) is None
    assert table.get("orders") is None


def test_auto_creation_can_be_off_and_is_capped(tmp_path: Path) -> None:
    assert topics(tmp_path, auto_create=False).create_by_send("orders", "TBW102", 4) is None
    full = topics(tmp_path, auto_create_max=15)
    with pytest.raises(TableFull):
        full.create_by_send("orders", "TBW102", 4)


def test_a_topic_that_was_removed_stays_removed(tmp_path: Path) -> None:
    table = topics(tmp_path)
    table.put(TopicConfig(name="orders"), TopicConfig(name="bills"))
    asyncio.run(table.persist())
    assert table.remove("orders") == TopicConfig(name="orders")
    assert table.remove("orders") is None
    asyncio.run(table.persist())
    again = topics(tmp_path)
    assert again.get("orders") is None
    assert again.get("bills") == TopicConfig(name="bills")
    assert again.version == table.version


def test_persisting_without_a_change_writes_nothing(tmp_path: Path) -> None:
    table = topics(tmp_path)
    table.put(TopicConfig(name="orders"))
    asyncio.run(table.persist())
    (tmp_path / "topics.json").unlink()
    asyncio.run(table.persist())
    assert not (tmp_path / "topics.json").exists()
    assert not table.put(TopicConfig(name="orders"))


def test_a_name_that_is_no_folder_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text(
        '{"topicConfigTable":{"../evil":{"topicName":"../evil"},"good":{"topicName":"good"}}}'
    )
    table = topics(tmp_path)
    assert table.get("../evil") is None
    assert table.get("good") is not None


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0", "\\", "x" * 256])
def test_names_that_cannot_be_folders(name: str) -> None:
    assert not is_path_safe(name)


def test_a_damaged_table_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text('{"topicConfigTable":{"a":7}}')
    with pytest.raises(Corrupt):
        topics(tmp_path)


# --- groups --------------------------------------------------------------------------------------


def test_java_groups_are_read_and_written_back_alike(tmp_path: Path) -> None:
    (tmp_path / "subscriptionGroup.json").write_bytes(
        (JAVA / "subscriptionGroup.json").read_bytes()
    )
    table = groups(tmp_path)
    assert "golden_consumers" in table.all()
    assert "CID_RMQ_SYS_TRANS" in table.all()
    assert table.version.counter == 2
    table.put(SubscriptionGroupConfig(name="mine", retry_max_times=3))
    table.set_forbidden("mine", "orders", 1)
    asyncio.run(table.persist())
    again = groups(tmp_path)
    assert again.all() == table.all()
    assert again.forbidden("mine", "orders") == 1
    assert again.forbidden("mine", "bills") == 0


def test_a_group_is_created_by_its_first_use_where_that_is_allowed(tmp_path: Path) -> None:
    table = groups(tmp_path)
    assert table.get("mine") is None
    assert table.find("mine") == SubscriptionGroupConfig(name="mine")
    assert table.get("mine") == SubscriptionGroupConfig(name="mine")
    for illegal in ("", "a b", "x" * 121, "../x", "mine\n"):
        assert table.find(illegal) is None
    strict = groups(tmp_path, GroupTableConfig(auto_create=False))
    assert strict.find("mine") is None
    assert strict.find("CID_RMQ_SYS_X") is not None
    assert groups(tmp_path, GroupTableConfig(auto_create_max=8)).find("mine") is None


def test_forbidden_bits_go_with_their_group(tmp_path: Path) -> None:
    table = groups(tmp_path)
    table.find("mine")
    table.set_forbidden("mine", "orders", 1)
    version = table.version
    table.set_forbidden("mine", "orders", 1)
    assert table.version == version
    table.remove("mine")
    assert table.all_forbidden() == {}


# --- offsets -------------------------------------------------------------------------------------


def test_java_offsets_are_read(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_bytes((JAVA / "consumerOffset.json").read_bytes())
    table = offsets(tmp_path)
    assert table.queues("golden_consumers", "GoldenTopic") == {0: 6, 1: 6, 2: 6, 3: 10}
    assert sorted(table.groups_of("GoldenTopic")) == ["golden_consumers", "golden_sql"]
    assert "GoldenTx" in table.topics_of("golden_consumers")


def test_offsets_survive_a_restart(tmp_path: Path) -> None:
    table = offsets(tmp_path)
    table.commit("g", "orders", 0, 12)
    table.commit("g", "orders", 0, 11)
    table.commit("g", "orders", 3, 5)
    table.note_pull("g", "orders", 0, 20)
    asyncio.run(table.persist())
    again = offsets(tmp_path)
    assert again.queues("g", "orders") == {0: 11, 3: 5}
    assert again.pulled("g", "orders", 0) == 20
    assert again.query("g", "orders", 1) is None
    assert b"\t\t\t0:11,\n" in (tmp_path / "consumerOffset.json").read_bytes()


def test_the_version_moves_every_500_commits(tmp_path: Path) -> None:
    table = offsets(tmp_path)
    for offset in range(499):
        table.commit("g", "orders", 0, offset)
    assert table.version.counter == 0
    table.commit("g", "orders", 0, 499)
    assert table.version.counter == 1


def test_a_reset_is_answered_until_a_pull_takes_it(tmp_path: Path) -> None:
    table = offsets(tmp_path)
    table.commit("g", "orders", 0, 100)
    table.reset("g", "orders", 0, 7)
    assert table.query("g", "orders", 0) == 7
    assert table.pending_reset("g", "orders", 0) == 7
    assert table.take_reset("g", "orders", 0) == 7
    assert table.take_reset("g", "orders", 0) is None
    assert table.query("g", "orders", 0) == 7


def test_an_offset_advances_from_where_it_is_known_to_be_and_never_falls(tmp_path: Path) -> None:
    table = offsets(tmp_path)
    table.advance("g", "orders", 0, 5)
    assert table.committed("g", "orders", 0) is None, "nobody has begun there"
    table.commit("g", "orders", 0, 100)
    table.advance("g", "orders", 1, 5)
    assert table.queues("g", "orders") == {0: 100}
    for offset, begin, wanted in ((99, None, 100), (101, 101, 100), (101, 100, 101), (103, 7, 103)):
        table.advance("g", "orders", 0, offset, begin=begin)
        assert table.committed("g", "orders", 0) == wanted
    asyncio.run(table.persist())
    again = offsets(tmp_path)
    again.load()
    assert again.committed("g", "orders", 0) == 103, "it was saved"
    table.reset("g", "orders", 0, 7)
    table.advance("g", "orders", 0, 200)
    assert table.committed("g", "orders", 0) == 7, "a reset waits for its pull"
    table.take_reset("g", "orders", 0)
    table.advance("g", "orders", 0, 200)
    assert table.committed("g", "orders", 0) == 200


def test_topics_and_groups_take_their_offsets_along(tmp_path: Path) -> None:
    table = offsets(tmp_path)
    for topic in ("a", "b"):
        for group in ("g", "h"):
            table.commit(group, topic, 0, 1)
            table.note_pull(group, topic, 0, 1)
    asyncio.run(table.remove_topic("a"))
    asyncio.run(table.remove_group("h"))
    assert table.export().offsets == {"b@g": {0: 1}}
    assert table.export().pull_offsets == {"b@g": {0: 1}}
    table.copy_group("g", "new", "b")
    assert table.queues("new", "b") == {0: 1}
