"""Light queues (LMQ) of a whole broker: sends, reads, offsets, pops, limits, and restarts."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker_harness import dispatched, ext, play, properties, records
from pop_harness import ack_command, pop_command
from remoting_harness import on_loop, until
from roquet.broker.messages.light_queues import LOOKS_AT_ONCE, LightOffsets
from roquet.model.topic import TopicConfig
from roquet.protocol import fastjson
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.pop.handle import ReceiptHandle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.testing.cluster import Cluster

ON = {"enableLmq": "true", "enableMultiDispatch": "true"}
A, B = "%LMQ%a", "%LMQ%b"
GROUP = "readers"


def naming(*queues: str, **more: str) -> str:
    return props.write({props.INNER_MULTI_DISPATCH: ",".join(queues), **more})


def at(name: str, queue_id: int = 0, **fields: str) -> dict[str, str]:
    return {"topic": name, "queueId": str(queue_id), "consumerGroup": GROUP, **fields}


async def send(it: Cluster, body: bytes, *queues: str, **more: str) -> Command:
    answer = await it.send("parent", body, properties=naming(*queues, **more))
    await dispatched(it)
    return answer


async def bodies(it: Cluster, name: str, offset: int = 0) -> list[bytes]:
    answer = await it.pull(name, offset)
    return [record.body for record in records(answer)]


def playing(folder: Path, tell: Callable[[Cluster], Awaitable[None]], **changes: str) -> None:
    play(folder, tell, **{**ON, **changes})


def test_a_message_is_pulled_from_its_topic_and_from_each_light_queue(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for number, queues in enumerate(((A, B), (B,), (A,))):
            answer = await send(it, b"%d" % number, *queues, WAIT="true", own="kept")
            assert answer.code == 0, answer.remark
        assert await bodies(it, A) == [b"0", b"2"]
        assert await bodies(it, B) == [b"0", b"1"]
        found = records(await it.pull(A))
        assert [one.topic for one in found] == ["parent", "parent"]
        said = [properties(one) for one in found]
        assert [it_[props.INNER_MULTI_QUEUE_OFFSET] for it_ in said] == ["0,0", "1"]
        assert all((it_["own"], it_[props.WAIT]) == ("kept", "true") for it_ in said)
        bounds = [
            ext(await it.call(Command(code, ext=at(A))))
            for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        ]
        assert [one["offset"] for one in bounds] == ["0", "2"]
        assert (await it.pull(A, queueId="1")).code == ResponseCode.INVALID_PARAMETER
        assert ext(await it.pull(A, 5))["nextBeginOffset"] == "2"

    playing(tmp_path, tell)


def test_a_held_pull_is_woken_by_a_message_for_its_light_queue(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await send(it, b"first", A)
        held = asyncio.create_task(it.pull(A, 1, sysFlag="6", suspendTimeoutMillis="20000"))
        await until(lambda: it.broker.services.receives.held() == 1)
        await send(it, b"second", B)
        await send(it, b"third", A)
        assert [one.body for one in records(await held)] == [b"third"]

    playing(tmp_path, tell)


@pytest.mark.parametrize(
    "names",
    ["x", "%LMQ%", "%LMQ%a,x", "%LMQ%../a", ",", ",".join([A] * 129), "%LMQ%" + "y" * 251]
    + [f"%LMQ%a{char}b" for char in "\n\r\t\x00\x01\x7f\u0085\u202e\ufeff"],
)
def test_names_that_no_light_queue_can_have_are_refused(tmp_path: Path, names: str) -> None:
    async def tell(it: Cluster) -> None:
        for more in ({}, {props.DELAY: "2"}, {props.TRANSACTION_PREPARED: "true"}):
            answer = await send(it, b"x", names, **more)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer.remark
        assert it.broker.store.light_queues() == 0
        assert it.broker.store.max_offset("parent", 0) == 0

    playing(tmp_path, tell)


def test_a_property_without_a_value_names_nothing(tmp_path: Path) -> None:
    """As with RocketMQ, whose readers of properties drop what is empty."""

    async def tell(it: Cluster) -> None:
        text = f"{props.INNER_MULTI_DISPATCH}\x01\x02"
        assert (await it.send("parent", b"x", properties=text)).code == 0
        await dispatched(it)
        assert it.broker.store.light_queues() == 0
        assert [one.body for one in records(await it.pull("parent"))] == [b"x"]

    playing(tmp_path, tell)


def test_offsets_of_the_sender_are_dropped(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        lie = {props.INNER_MULTI_QUEUE_OFFSET: "77"}
        assert (await send(it, b"x", A, **lie)).code == 0
        kept = [properties(one) for one in records(await it.pull("parent"))]
        assert [one.get(props.INNER_MULTI_QUEUE_OFFSET) for one in kept] == ["0"]

    playing(tmp_path / "on", tell)

    async def tell_without(it: Cluster) -> None:
        lie = {props.INNER_MULTI_QUEUE_OFFSET: "77"}
        assert (await send(it, b"x", A, **lie)).code == 0
        kept = [properties(one) for one in records(await it.pull("parent"))]
        assert [one.get(props.INNER_MULTI_QUEUE_OFFSET) for one in kept] == [None]
        assert (await it.pull(A)).code == ResponseCode.TOPIC_NOT_EXIST

    play(tmp_path / "off", tell_without)


def test_nobody_sends_to_a_light_queue_itself_or_makes_a_topic_of_it(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        answer = await it.send(A, b"x")
        assert (answer.code, "is a light queue" in str(answer.remark)) == (16, True)
        wanted = {"topic": A, "defaultTopic": "TBW102", "readQueueNums": "4", "perm": "6"}
        wanted |= {"writeQueueNums": "4", "topicFilterType": "SINGLE_TAG", "order": "false"}
        made = await it.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=wanted))
        assert (made.code, "is a light queue" in str(made.remark)) == (16, True)
        it.broker.metadata.topics.put(TopicConfig(name=A, read_queues=4, write_queues=4))
        assert A not in it.broker.metadata.topics.all()

    playing(tmp_path, tell)


def test_one_light_queue_too_many_is_refused_and_known_ones_go_on(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await send(it, b"1", A)).code == 0
        assert (await send(it, b"2", B)).code == 0
        for queues in (("%LMQ%c",), (A, "%LMQ%c")):
            answer = await send(it, b"x", *queues)
            assert answer.code == ResponseCode.LMQ_QUOTA_EXCEEDED
            assert answer.remark == (
                "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]lmq consume queue num exceeded."
            )
        assert (await send(it, b"3", A, B)).code == 0
        assert await bodies(it, A) == [b"1", b"3"]

    playing(tmp_path / "on", tell, enableLmqQuota="true", maxLmqConsumeQueueNum="2")

    async def tell_without(it: Cluster) -> None:
        for name in (A, B, "%LMQ%c"):
            assert (await send(it, b"x", name)).code == 0

    playing(tmp_path / "off", tell_without, maxLmqConsumeQueueNum="2")


@pytest.mark.parametrize("apart", ["false", "true"])
def test_light_queues_and_groups_have_figures_of_their_own_where_the_setting_says_so(
    tmp_path: Path, apart: str
) -> None:
    async def tell(it: Cluster) -> None:
        for name in (A, B):
            await send(it, b"x", name)
            answer = await it.pull(name, 0, consumerGroup=name)
            assert len(records(answer)) == 1, answer.remark
        await it.pull("parent", 0)
        wanted = {f"parent@{GROUP}": 2, **({f"{A}@{A}": 1, f"{B}@{B}": 1} if on else {light: 2})}
        found: dict[str, float] = {}
        for key in (f"{A}@{A}", f"{B}@{B}", light, f"parent@{GROUP}"):
            asked = {"statsName": "GROUP_GET_NUMS", "statsKey": key}
            answer = await it.call(Command(RequestCode.VIEW_BROKER_STATS_DATA, ext=asked))
            if answer.code == 0:
                found[key] = json.loads(answer.body)["statsMinute"]["sum"]
        assert found == wanted

    on, light = apart == "true", "%LMQ%@%LMQ%"
    playing(tmp_path, tell, enableLmqStats=apart)


def test_sends_that_come_together_make_no_light_queue_too_many(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        lists = [[f"%LMQ%{number}_{each}" for each in range(4)] for number in range(20)]
        sends = (it.send("parent", b"x", properties=naming(*names)) for names in lists)
        codes = [answer.code for answer in await asyncio.gather(*sends)]
        full = int(ResponseCode.LMQ_QUOTA_EXCEEDED)
        assert sorted(codes) == [0, 0, *[full] * 18]
        await dispatched(it)
        assert it.broker.store.light_queues() == 8
        kept = [one for one in range(20) if it.broker.store.max_offset(f"%LMQ%{one}_0", 0) > 0]
        assert kept == [number for number, code in enumerate(codes) if code == 0]
        assert (await send(it, b"y", *lists[kept[0]], "%LMQ%a")).code == 0

    playing(tmp_path, tell, enableLmqQuota="true", maxLmqConsumeQueueNum="9")


def test_messages_delayed_together_all_get_their_light_queues(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for name in (A, B):
            assert (await send(it, b"later", name, **{props.DELAY: "1"})).code == 0
        await until(lambda: it.broker.store.max_offset(A, 0) == 1)
        await until(lambda: it.broker.store.max_offset(B, 0) == 1)

    quota = {"enableLmqQuota": "true", "maxLmqConsumeQueueNum": "1"}
    playing(tmp_path, tell, messageDelayLevel="1s", **quota)


def test_a_delayed_message_is_in_its_light_queues_when_it_is_due(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await send(it, b"later", A, **{props.DELAY: "1"})).code == 0
        assert it.broker.store.light_queues() == 0
        await until(lambda: it.broker.store.max_offset(A, 0) == 1)
        assert await bodies(it, A) == [b"later"]

    playing(tmp_path, tell, messageDelayLevel="1s")


def test_a_half_message_is_in_no_light_queue_before_its_commit(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        more = {props.TRANSACTION_PREPARED: "true", props.PRODUCER_GROUP: "testers"}
        half = await send(it, b"half", A, **more, UNIQ_KEY="K1")
        assert half.code == 0, half.remark
        assert it.broker.store.light_queues() == 0
        message_id = ext(half)["msgId"]
        end = {
            "producerGroup": "testers",
            "tranStateTableOffset": ext(half)["queueOffset"],
            "commitLogOffset": str(int(message_id[-16:], 16)),
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": "K1",
            "transactionId": "K1",
        }
        answer = await it.call(Command(RequestCode.END_TRANSACTION, ext=end))
        assert answer.code == 0, answer.remark
        await dispatched(it)
        assert await bodies(it, A) == [b"half"]

    playing(tmp_path, tell)


def test_no_message_of_a_batch_names_light_queues(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        text = naming(A).encode()
        head = (0, 0, 0, 1)
        one = b"".join(number.to_bytes(4, "big") for number in head) + b"x"
        one += len(text).to_bytes(2, "big") + text
        body = (len(one) + 4).to_bytes(4, "big") + one
        answer = await it.send("parent", body, m="true")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer.remark
        assert "INNER_MULTI_DISPATCH" in str(answer.remark)

    playing(tmp_path, tell)


def test_pops_of_a_light_queue_are_settled_and_come_again(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for body in (b"0", b"1", b"2"):
            await send(it, body, B, A)
        await send(it, b"3", A)
        answer = await it.call(pop_command(A, invisibleTime="1000"))
        assert [one.body for one in records(answer)] == [b"0", b"1", b"2", b"3"]
        assert ext(answer)["msgOffsetInfo"] == "0 0 0,1,2,3"
        assert not records(await it.call(pop_command(A)))
        for offset in (0, 2, 3):
            handle = ReceiptHandle(
                *(0, int(ext(answer)["popTime"]), 1000, int(ext(answer)["reviveQid"])),
                *("0", "broker-a", 0, offset),
            )
            assert (await it.call(ack_command(handle, A))).code == 0
        again: list[bytes] = []
        async with asyncio.timeout(60):
            while not again:
                got = records(await it.call(pop_command(A)))
                again = [one.body for one in got]
                await asyncio.sleep(0.1)
        assert again == [b"1"]

    fast = {"timerPrecisionMs": "100", "reviveInterval": "100", "mappedFileSizeTimerLog": "65536"}
    playing(tmp_path, tell, **fast)


def test_a_group_that_filters_by_tag_gets_its_share_of_a_light_queue(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(6):
            await send(it, b"%d" % number, A, TAGS="odd" if number % 2 else "even")
        answer = await it.pull(A, subscription="odd")
        assert [one.body for one in records(answer)] == [b"1", b"3", b"5"]
        answer = await it.call(pop_command(A, exp="odd"))
        assert [one.body for one in records(answer)] == [b"1", b"3", b"5"]
        assert ext(answer)["msgOffsetInfo"] == "0 0 1,3,5"

    playing(tmp_path, tell)


def test_offsets_of_light_groups_survive_restarts_and_a_change_of_the_setting(
    tmp_path: Path,
) -> None:
    light_group = "%LMQ%g"

    def commit(group: str, topic: str, offset: int) -> Command:
        fields = at(topic, commitOffset=str(offset))
        fields["consumerGroup"] = group
        return Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=fields)

    async def committed(it: Cluster, group: str, topic: str) -> str:
        fields = {**at(topic), "consumerGroup": group, "setZeroIfNotFound": "false"}
        answer = await it.call(Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=fields))
        assert answer.code == 0, answer.remark
        return ext(answer)["offset"]

    async def tell(it: Cluster) -> None:
        for number in range(4):
            await send(it, b"%d" % number, A)
        await it.pull("parent")
        assert (await it.call(commit(light_group, A, 3))).code == 0
        assert (await it.call(commit(GROUP, A, 2))).code == 0
        assert (await it.call(commit(GROUP, "parent", 1))).code == 0

    playing(tmp_path, tell)
    folder = tmp_path / "broker-a" / "config"
    file = fastjson.read_object((folder / "lmqConsumerOffset.json").read_bytes())
    assert file["lmqOffsetTable"] == {f"{A}@{light_group}": 3}
    assert file["offsetTable"] == {f"{A}@{GROUP}": {"0": 2}, f"parent@{GROUP}": {"0": 1}}
    assert not (folder / "consumerOffset.json").exists()

    async def tell_again(it: Cluster) -> None:
        assert await bodies(it, A) == [b"0", b"1", b"2", b"3"]
        assert await committed(it, light_group, A) == "3"
        assert await committed(it, GROUP, A) == "2"

    playing(tmp_path, tell_again)

    async def tell_off(it: Cluster) -> None:
        assert await committed(it, GROUP, "parent") == "1"
        assert (await it.call(commit(GROUP, "parent", 3))).code == 0

    play(tmp_path, tell_off)

    async def tell_on(it: Cluster) -> None:
        assert await committed(it, GROUP, "parent") == "3"
        assert await committed(it, light_group, A) == "3"

    playing(tmp_path, tell_on)


def test_a_deleted_light_queue_is_gone_and_begins_again(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await send(it, b"old", A, B)
        command = Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": A})
        answer = await it.call(command)
        assert answer.code == 0, answer.remark
        assert (await bodies(it, A), await bodies(it, B)) == ([], [b"old"])
        await send(it, b"new", A)
        assert await bodies(it, A) == [b"new"]

    playing(tmp_path, tell)

    async def tell_again(it: Cluster) -> None:
        assert await bodies(it, A) == [b"new"]

    playing(tmp_path, tell_again)


def test_offsets_in_a_light_queue_go_with_it(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        offsets = it.broker.metadata.offsets
        await send(it, b"x", A)
        for name in (A, B, "parent"):
            offsets.commit(GROUP, name, 0, 1)
        await LightOffsets(it.broker.store, offsets).forget()
        assert sorted(offsets.topics_of(GROUP)) == [A, "parent"]

    playing(tmp_path, tell)


@on_loop
async def test_look_for_light_queues_that_have_gone_leaves_turns_to_others() -> None:
    looked: list[str] = []
    most = 0

    async def others() -> None:
        nonlocal most
        before = 0
        while len(looked) < 1000:
            most, before = max(most, len(looked) - before), len(looked)
            await asyncio.sleep(0)

    def knows(topic: str) -> bool:
        looked.append(topic)
        return True

    pairs = [(f"%LMQ%{number}", GROUP) for number in range(1000)]
    queues = cast("Any", SimpleNamespace(knows_light_queue=knows))
    offsets = cast("Any", SimpleNamespace(each_pair=lambda: iter(pairs)))
    running = asyncio.create_task(others())
    await LightOffsets(queues, offsets).forget()
    await running
    assert len(looked) == 1000
    assert 0 < most <= LOOKS_AT_ONCE
