"""POP without order: what a pop takes, writes down and answers (200050)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from broker_harness import dispatched, ext, play, properties
from pop_harness import GROUP, TOPIC, checkpoints, now_ms, pop, pop_command
from roquet.protocol.codes import ResponseCode
from roquet.store.records import read_records
from roquet.store.results import Draft, PutResult, PutStatus, StoreFault

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roquet.protocol.command import Command
    from roquet.store.results import GetResult
    from roquet.testing.cluster import Cluster

RETRY_V1 = f"%RETRY%{GROUP}_{TOPIC}"
RETRY_V2 = f"%RETRY%{GROUP}+{TOPIC}"


def test_pop_takes_each_message_once_and_notes_it_in_a_checkpoint(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(3):
            await it.send(TOPIC, b"%d" % number, queue_id=2)
        await dispatched(it)
        begun = now_ms()
        got = await pop(it)
        assert (got.code, got.remark) == (0, "FOUND")
        assert got.bodies == [b"0", b"1", b"2"]
        assert got.ext["startOffsetInfo"] == "0 2 0"
        assert got.ext["msgOffsetInfo"] == "0 2 0,1,2"
        assert got.ext["invisibleTime"] == "60000"
        assert got.ext["restNum"] == "0"
        assert "orderCountInfo" not in got.ext
        popped_ms = int(got.ext["popTime"])
        assert begun <= popped_ms <= now_ms()
        await dispatched(it)
        assert checkpoints(it) == [
            {
                "bm": 0,
                "bn": "broker-a",
                "c": GROUP,
                "d": [0, 1, 2],
                "it": 60000,
                "n": 3,
                "pt": popped_ms,
                "q": 2,
                "reviveTime": popped_ms + 60000,
                "ro": 0,
                "so": 0,
                "sp": False,
                "t": TOPIC,
                "tag": "ck",
                "queue": got.ext["reviveQid"],
                "due": str(popped_ms + 59000),
            }
        ]
        again = await pop(it)
        assert (again.code, again.remark) == (210, "NO_MESSAGE_IN_QUEUE")
        assert again.ext["startOffsetInfo"] == again.ext["msgOffsetInfo"] == ""
        assert again.ext["reviveQid"] != got.ext["reviveQid"]

    play(tmp_path, tell)


def test_pop_of_all_queues_takes_no_more_than_it_asks_for(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(40):
            await it.send(TOPIC, b"%d" % number, queue_id=number % 4)
        await dispatched(it)
        first = await pop(it, maxMsgNums="15")
        assert len(first.records) == 15
        assert first.ext["restNum"] == "25"
        seen = first.bodies
        while True:
            got = await pop(it)
            if got.code:
                break
            seen += got.bodies
        assert sorted(seen) == sorted(b"%d" % number for number in range(40))

    play(tmp_path, tell)


def test_pop_of_one_queue_leaves_the_others(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for queue_id in range(2):
            await it.send(TOPIC, b"%d" % queue_id, queue_id=queue_id)
        await dispatched(it)
        assert (await pop(it, queueId="1")).bodies == [b"1"]
        assert (await pop(it, queueId="1")).code == ResponseCode.POLLING_TIMEOUT
        assert (await pop(it, queueId="0")).bodies == [b"0"]

    play(tmp_path, tell)


def test_message_whose_checkpoint_is_not_stored_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster) -> None:
        await it.send(TOPIC, b"one")
        await dispatched(it)
        store = it.broker.store

        def refuse(drafts: Sequence[Draft]) -> list[PutResult]:
            return [PutResult(PutStatus.SERVICE_NOT_AVAILABLE, why="full")] * len(drafts)

        with monkeypatch.context() as patch:
            patch.setattr(store, "append", refuse)
            got = await pop(it)
            assert (got.code, got.records) == (ResponseCode.POLLING_TIMEOUT, [])
            assert got.ext["restNum"] == "1"
            assert it.broker.metadata.offsets.committed(GROUP, TOPIC, 0) == 0
        assert (await pop(it)).bodies == [b"one"]

    play(tmp_path, tell)


def test_failed_read_moves_no_offset_and_frees_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster) -> None:
        await it.send(TOPIC, b"one")
        await dispatched(it)

        def fail(*_: Any, **__: Any) -> GetResult:
            raise StoreFault("io", "the disk is gone")

        with monkeypatch.context() as patch:
            patch.setattr(it.broker.store, "get", fail)
            answer = await it.call(pop_command())
            assert answer.code == ResponseCode.SYSTEM_ERROR
        assert it.broker.metadata.offsets.committed(GROUP, TOPIC, 0) in {None, 0}
        assert (await pop(it)).bodies == [b"one"]

    play(tmp_path, tell)


def test_offset_moves_past_what_the_filter_leaves_out(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(6):
            tag = "ab"[number % 2]
            await it.send(TOPIC, b"%d" % number, properties=f"TAGS\x01{tag}\x02")
        await dispatched(it)
        got = await pop(it, exp="b")
        assert got.bodies == [b"1", b"3", b"5"]
        assert got.ext["msgOffsetInfo"] == "0 0 1,3,5"
        await dispatched(it)
        (checkpoint,) = checkpoints(it)
        assert (checkpoint["so"], checkpoint["d"]) == (0, [1, 3, 5])
        for _ in range(3):
            await it.send(TOPIC, properties="TAGS\x01a\x02")
        await dispatched(it)
        assert (await pop(it, exp="b")).code == ResponseCode.POLLING_TIMEOUT
        assert it.broker.metadata.offsets.committed(GROUP, TOPIC, 0) == 9
        assert len(checkpoints(it)) == 1

    play(tmp_path, tell)


def test_pop_filters_by_sql(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(4):
            await it.send(TOPIC, b"%d" % number, properties=f"n\x01{number}\x02")
        await dispatched(it)
        assert (await pop(it, exp="n > 1", expType="SQL92")).bodies == [b"2", b"3"]

    play(tmp_path, tell)


@pytest.mark.parametrize(
    ("mode", "by_memory", "bodies"),
    [("0", "true", 3), ("1", "true", 3), ("1", "false", 1), ("0", "false", 3)],
)
def test_new_group_begins_where_its_mode_says(
    tmp_path: Path, mode: str, by_memory: str, bodies: int
) -> None:
    async def tell(it: Cluster) -> None:
        for _ in range(3):
            await it.send(TOPIC)
        await dispatched(it)
        assert len((await pop(it, initMode=mode)).records) == bodies

    play(tmp_path, tell, initPopOffsetByCheckMsgInMem=by_memory)


def test_position_below_the_queue_is_corrected(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await it.send(TOPIC, b"one")
        await dispatched(it)
        it.broker.metadata.offsets.commit(GROUP, TOPIC, 0, 7)
        assert (await pop(it)).code == ResponseCode.POLLING_TIMEOUT
        assert it.broker.metadata.offsets.committed(GROUP, TOPIC, 0) == 1
        await it.send(TOPIC, b"two")
        await dispatched(it)
        assert (await pop(it)).bodies == [b"two"]

    play(tmp_path, tell)


def test_reset_by_the_broker_is_where_the_next_pop_begins(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(3):
            await it.send(TOPIC, b"%d" % number)
        await dispatched(it)
        assert len((await pop(it)).records) == 3
        it.broker.metadata.offsets.reset(GROUP, TOPIC, 0, 1)
        got = await pop(it)
        assert got.bodies == [b"1", b"2"]
        assert got.ext["startOffsetInfo"] == "0 0 1"
        assert it.broker.metadata.offsets.pending_reset(GROUP, TOPIC, 0) is None

    play(tmp_path, tell)


async def make_retry(it: Cluster, name: str, *bodies: bytes) -> None:
    """Store messages where a redelivery puts them."""
    it.broker.metadata.topics.ensure(name, 1)
    for body in bodies:
        put = await it.send("carrier", body, properties="color\x01red\x02")
        assert put.code == 0
    await dispatched(it)
    store = it.broker.store
    result = store.get("carrier", 0, 0, 32)
    for record in read_records(result.records):
        draft = Draft(
            topic=name,
            queue_id=0,
            body=record.body,
            properties=properties(record),
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_host=record.store_host,
            reconsume_times=1,
        )
        assert (await store.put(draft)).status is PutStatus.PUT_OK
    await dispatched(it)


@pytest.mark.parametrize(
    ("retry", "changes"),
    [
        (RETRY_V1, {}),
        (RETRY_V2, {"enableRetryTopicV2": "true", "retrieveMessageFromPopRetryTopicV1": "false"}),
    ],
)
@pytest.mark.parametrize("percent", ["0", "100"])
def test_redelivered_message_comes_under_its_own_topic_with_its_handle(
    tmp_path: Path, retry: str, changes: dict[str, str], percent: str
) -> None:
    async def tell(it: Cluster) -> None:
        await it.send(TOPIC, b"new")
        await make_retry(it, retry, b"again")
        got = await pop(it)
        order = [b"new", b"again"] if percent == "0" else [b"again", b"new"]
        assert got.bodies == order
        at = order.index(b"again")
        record, handle = got.records[at], got.handles[at]
        assert (record.topic, record.reconsume_times) == (TOPIC, 1)
        assert properties(record)["color"] == "red"
        assert handle.retry_flag == ("2" if "+" in retry else "1")
        assert (handle.broker_name, handle.queue_id, handle.queue_offset) == ("broker-a", 0, 0)
        assert str(handle.revive_queue) == got.ext["reviveQid"]
        await dispatched(it)
        assert {one["t"] for one in checkpoints(it)} == {TOPIC, retry}

    play(tmp_path, tell, popFromRetryProbability=percent, **changes)


def test_v2_still_reads_v1_topics_with_half_of_its_pops(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await it.send(TOPIC, b"new")
        await make_retry(it, RETRY_V1, b"again")
        seen: list[bytes] = []
        for _ in range(100):
            seen += (await pop(it)).bodies
        assert sorted(seen) == [b"again", b"new"]

    play(tmp_path, tell, enableRetryTopicV2="true")


def test_v1_topics_are_not_read_where_that_is_switched_off(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await it.send(TOPIC, b"new")
        await make_retry(it, RETRY_V2, b"again")
        await make_retry(it, RETRY_V1, b"unread")
        seen: list[bytes] = []
        for _ in range(100):
            seen += (await pop(it)).bodies
        assert sorted(seen) == [b"again", b"new"]

    given = {"enableRetryTopicV2": "true", "retrieveMessageFromPopRetryTopicV1": "false"}
    play(tmp_path, tell, **given)


def test_actual_retry_topic_is_shown_when_that_is_set(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await it.send(TOPIC, b"new")
        await make_retry(it, RETRY_V1, b"again")
        answer = await it.call(pop_command(popFromRetryProbability="0"))
        assert ext(answer)["startOffsetInfo"] == "0 0 0;1 0 0"
        assert RETRY_V1.encode() in answer.body
        assert b"POP_CK" not in answer.body

    play(tmp_path, tell, popResponseReturnActualRetryTopic="true", popFromRetryProbability="0")


def test_queue_with_too_many_in_flight_gives_no_more(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for _ in range(9):
            await it.send(TOPIC)
        await dispatched(it)
        assert len((await pop(it, maxMsgNums="4")).records) == 4
        assert len((await pop(it, maxMsgNums="1")).records) == 0

    async def tell_off(it: Cluster) -> None:
        for _ in range(9):
            await it.send(TOPIC)
        await dispatched(it)
        assert len((await pop(it, maxMsgNums="4")).records) == 4
        assert len((await pop(it, maxMsgNums="1")).records) == 1

    limits = {"popInflightMessageThreshold": "3"}
    play(tmp_path / "on", tell, enablePopMessageThreshold="true", **limits)
    play(tmp_path / "off", tell_off, **limits)


REFUSALS: list[tuple[dict[str, str], int, str]] = [
    ({"maxMsgNums": "33"}, 29, "the broker[127.0.0.1] pop message's num is greater than 32"),
    ({"maxMsgNums": "0"}, 29, "maxMsgNums is 0"),
    ({"maxMsgNums": "-1"}, 29, "maxMsgNums is -1"),
    ({"invisibleTime": "-1"}, 29, "invisibleTime is -1"),
    ({"invisibleTime": "259200001"}, 29, "invisibleTime is 259200001"),
    ({"bornTime": "1"}, 210, "the broker[127.0.0.1] pop message is timeout too much"),
    ({"topic": "nowhere"}, 17, "topic[nowhere] not exist, apply first please!"),
    ({"queueId": "4"}, 29, "queueId[4] is illegal, topic:[orders] topicConfig.readQueueNums:[4]"),
    ({"exp": "n >", "expType": "SQL92"}, 23, "parse the consumer's subscription failed"),
    ({"exp": "x", "expType": "CLASS"}, 23, "parse the consumer's subscription failed"),
    ({"exp": "||"}, 23, "parse the consumer's subscription failed"),
    ({"maxMsgNums": "many"}, 29, "field maxMsgNums"),
]


@pytest.mark.parametrize(("fields", "code", "remark"), REFUSALS, ids=lambda it: str(it)[:40])
def test_bad_pop_is_refused_with_the_code_and_words_of_java(
    tmp_path: Path, fields: dict[str, str], code: int, remark: str
) -> None:
    async def tell(it: Cluster) -> None:
        await it.send(TOPIC)
        await dispatched(it)
        answer = await it.call(pop_command(**fields))
        assert answer.code == code
        assert (answer.remark or "").startswith(remark)
        if code != 29 or not remark.startswith("field"):
            # Java clients read these from every answer.
            numbers = ("popTime", "invisibleTime", "reviveQid", "restNum")
            assert {ext(answer)[name] for name in numbers} == {"0"}
        assert len((await pop(it)).records) == 1

    play(tmp_path, tell)


def test_pop_of_a_group_or_broker_that_may_not_read_is_refused(tmp_path: Path) -> None:
    async def refused(it: Cluster, **fields: str) -> tuple[int, str]:
        answer: Command = await it.call(pop_command(**fields))
        return int(answer.code), answer.remark or ""

    async def tell(it: Cluster) -> None:
        await it.send(TOPIC)
        code, remark = await refused(it, consumerGroup="unknown")
        assert code == 26
        assert remark.startswith("subscription group [unknown] does not exist, ")
        it.broker.state.permission = 2
        assert await refused(it) == (16, "the broker[127.0.0.1] pop message is forbidden")

    async def tell_without_wheel(it: Cluster) -> None:
        await it.send(TOPIC)
        text = "the broker[127.0.0.1] pop message is forbidden because timerWheelEnable is false"
        assert await refused(it) == (1, text)

    play(tmp_path / "groups", tell, autoCreateSubscriptionGroup="false")
    play(tmp_path / "wheel", tell_without_wheel, timerWheelEnable="false")


def test_born_time_of_none_is_that_of_arrival(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await it.send(TOPIC)
        await dispatched(it)
        assert len((await pop(it, bornTime="0")).records) == 1

    play(tmp_path, tell)


def test_pop_goes_on_after_a_restart(tmp_path: Path) -> None:
    async def before(it: Cluster) -> None:
        for number in range(4):
            await it.send(TOPIC, b"%d" % number)
        await dispatched(it)
        assert (await pop(it, maxMsgNums="2")).bodies == [b"0", b"1"]

    async def after(it: Cluster) -> None:
        await dispatched(it)
        assert (await pop(it)).bodies == [b"2", b"3"]
        await dispatched(it)
        assert [json.dumps(one["d"]) for one in checkpoints(it)] == ["[0, 1]", "[0, 1]"]

    play(tmp_path, before)
    play(tmp_path, after)
