"""Offsets (14, 15, 29 to 32) and messages by key and place (12, 33), over real sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_harness import dispatched, ext, play
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.store.records import read_records
from roquet.store.tables import offsets

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from roquet.testing.cluster import Cluster

ALL_TIME = {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}


async def ask(it: Cluster, code: RequestCode, **fields: str) -> Command:
    return await it.call(Command(code, ext=fields))


async def filled(it: Cluster) -> None:
    it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=4, write_queues=4))
    it.broker.metadata.groups.put(SubscriptionGroupConfig(name="g"))
    for number in range(5):
        await it.send(
            "orders", b"m%d" % number, properties=f"KEYS\x01k{number} all\x02TAGS\x01t{number}\x02"
        )
    await dispatched(it)


def test_a_group_continues_where_it_committed(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it)
        where = {"consumerGroup": "g", "topic": "orders", "queueId": "0"}
        new = await ask(it, RequestCode.QUERY_CONSUMER_OFFSET, **where)
        assert (new.code, ext(new)) == (0, {"offset": "0"})
        strict = await ask(
            it, RequestCode.QUERY_CONSUMER_OFFSET, setZeroIfNotFound="false", **where
        )
        assert (strict.code, strict.ext) == (22, {})
        empty = await ask(it, RequestCode.QUERY_CONSUMER_OFFSET, **{**where, "queueId": "1"})
        assert (empty.code, empty.remark) == (
            22,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )
        update = await ask(it, RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset="3", **where)
        assert (update.code, update.ext) == (0, {})
        known = await ask(it, RequestCode.QUERY_CONSUMER_OFFSET, **where)
        assert ext(known) == {"offset": "3"}

    play(tmp_path, tell, newQueueFromZero="false")


def test_commits_that_make_no_sense(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it)
        where = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": "3"}
        for change, code in (
            ({"topic": "unknown"}, 17),
            ({"consumerGroup": "not a name"}, 26),
            ({"consumerGroup": "nobody_yet"}, 26),
            ({"commitOffset": "-1"}, 29),
            ({"queueId": "-1"}, 29),
            ({"commitOffset": "x"}, 29),
        ):
            answer = await ask(it, RequestCode.UPDATE_CONSUMER_OFFSET, **{**where, **change})
            assert answer.code == code, change
        assert it.broker.metadata.offsets.export().offsets == {}

    play(tmp_path, tell)


def test_the_ends_of_a_queue(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it)
        queue = {"topic": "orders", "queueId": "0"}
        assert ext(await ask(it, RequestCode.GET_MAX_OFFSET, **queue)) == {"offset": "5"}
        least = await ask(it, RequestCode.GET_MIN_OFFSET, **queue)
        assert (least.remark, ext(least)) == ("", {"offset": "0"})
        found = read_records((await it.pull("orders")).body)
        earliest = await ask(it, RequestCode.GET_EARLIEST_MSG_STORETIME, **queue)
        assert ext(earliest) == {"timestamp": str(found[0].store_timestamp)}
        empty = await ask(it, RequestCode.GET_EARLIEST_MSG_STORETIME, topic="orders", queueId="1")
        assert ext(empty) == {"timestamp": "-1"}
        late = str(found[-1].store_timestamp + 60_000)
        for timestamp, boundary, offset in (
            ("0", "LOWER", "0"),
            (str(found[0].store_timestamp), "LOWER", "0"),
            (late, "LOWER", "5"),
        ):
            answer = await ask(
                it,
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                timestamp=timestamp,
                boundaryType=boundary,
                **queue,
            )
            assert ext(answer) == {"offset": offset}, timestamp

    play(tmp_path, tell)


def test_no_question_makes_a_file(tmp_path: Path) -> None:
    codes = (
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.QUERY_MESSAGE,
    )

    def tree() -> set[str]:
        return {str(path) for path in tmp_path.rglob("*") if path.parent.name != "commitlog"}

    async def tell(it: Cluster) -> None:
        await filled(it)
        before = tree()
        for topic in ("../../evil", "/evil", "evil", "a\0b", "", "orders"):
            for queue_id in ("-1", "2147483647", "-2147483648", "7"):
                for code in codes:
                    answer = await ask(
                        it,
                        code,
                        topic=topic,
                        queueId=queue_id,
                        consumerGroup="../evil",
                        timestamp="-1",
                        key="k",
                        maxNum="1",
                        **ALL_TIME,
                    )
                    assert answer.code in {0, 1, 22, 29}, (topic, queue_id, code)
        assert tree() == before

    play(tmp_path, tell)


def test_messages_are_found_by_key(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it)
        ask_for = {"topic": "orders", "key": "all", "maxNum": "3", **ALL_TIME}
        answer = await ask(it, RequestCode.QUERY_MESSAGE, **ask_for)
        assert answer.code == 0
        assert len(read_records(answer.body)) == 3
        assert int(ext(answer)["indexLastUpdatePhyoffset"]) > 0
        unique = await ask(
            it, RequestCode.QUERY_MESSAGE, _UNIQUE_KEY_QUERY="true", **{**ask_for, "maxNum": "1"}
        )
        assert len(read_records(unique.body)) == 5
        answer = await ask(it, RequestCode.QUERY_MESSAGE, **{**ask_for, "key": "k3"})
        assert [record.body for record in read_records(answer.body)] == [b"m3"]
        tagged = {**ask_for, "key": "t4", "indexType": "T"}
        answer = await ask(it, RequestCode.QUERY_MESSAGE, **tagged)
        assert [record.body for record in read_records(answer.body)] == [b"m4"]
        for change in (
            {"key": "k9"},
            {"key": "t4"},
            {"topic": "bills"},
            {"maxNum": "0"},
            {"maxNum": "-1"},
        ):
            answer = await ask(it, RequestCode.QUERY_MESSAGE, **{**ask_for, **change})
            assert (answer.code, answer.remark) == (
                22,
                "can not find message, maybe time range not correct",
            )

    play(tmp_path, tell)


def test_a_message_is_found_where_it_lies(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it)
        second = read_records((await it.pull("orders")).body)[1]
        answer = await ask(it, RequestCode.VIEW_MESSAGE_BY_ID, offset=str(second.physical_offset))
        assert read_records(answer.body) == [second]
        for offset in ("-1", str(2**40), "7", str(-(2**63))):
            answer = await ask(it, RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
            assert (answer.code, answer.remark) == (
                1,
                f"can not find message by the offset, {offset}",
            )

    play(tmp_path, tell)


def test_commit_for_a_queue_that_the_topic_has_not_is_refused_and_a_restart_goes_well(
    tmp_path: Path,
) -> None:
    async def commit(it: Cluster, queue_id: int) -> Command:
        ext = {"consumerGroup": "g", "topic": "orders", "queueId": str(queue_id)}
        ext["commitOffset"] = "5"
        return await it.call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext))

    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=2, write_queues=4))
        it.broker.metadata.groups.find("g")
        # Offsets of a store without a message are set back to 0 at its next start.
        assert (await it.send("orders")).code == 0
        assert (await commit(it, 3)).code == 0
        for queue_id in (4, 5, 2**31 - 1):
            answer = await commit(it, queue_id)
            assert (answer.code, answer.remark) == (
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[orders] has 4 queues",
            )
        assert it.broker.metadata.offsets.queues("g", "orders") == {3: 5}

    async def after(it: Cluster) -> None:
        assert it.broker.metadata.offsets.queues("g", "orders") == {3: 5}

    play(tmp_path, tell)
    play(tmp_path, after)


def test_commit_without_room_for_it_is_refused_and_a_pull_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders")).code == 0
        await dispatched(it)
        it.broker.metadata.groups.find("g")
        it.broker.metadata.offsets.commit("other", "orders", 0, 1)
        ext = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": "1"}
        for _ in range(2):
            answer = await it.call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=dict(ext)))
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, offsets.FULL)
            # A pull that commits is answered all the same, by the fast path and without it.
            pulled = await it.pull("orders", consumerGroup="g", sysFlag="5", commitOffset="1")
            assert pulled.code == 0
        assert it.broker.metadata.offsets.groups_of("orders") == ["other"]

    for fast in ("true", "false"):
        monkeypatch.setattr(offsets, "OFFSETS_MAX", 1)
        play(tmp_path / fast, tell, fastPathEnable=fast)
