"""Sends to light topics: which queue they go to, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play, properties, records
from light_harness import PARENT, light_properties, playing, put_parent, queue, send, topic_fields
from roquet.broker.messages.light_queues import LightQueues
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.store.results import Draft, PutStatus
from roquet.store.settings import StoreConfig

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster


def test_message_of_light_topic_is_in_parent_and_in_its_queue(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await put_parent(it)
        await send(it, "a", b"1", b"2")
        await send(it, "b", b"3")
        found = records(await it.pull(queue("a")))
        assert [one.body for one in found] == [b"1", b"2"]
        said = [properties(one) for one in found]
        assert [one[props.INNER_MULTI_DISPATCH] for one in said] == [queue("a")] * 2
        assert [one[props.INNER_MULTI_QUEUE_OFFSET] for one in said] == ["0", "1"]
        assert [one[props.LITE_TOPIC] for one in said] == ["a", "a"]
        assert [one.body for one in records(await it.pull(queue("b")))] == [b"3"]
        assert [one.body for one in records(await it.pull(PARENT))] == [b"1", b"2", b"3"]

    playing(tmp_path, tell)
    # The queues are there after a restart, and go on where they were.

    async def again(it: Cluster) -> None:
        await send(it, "a", b"4")
        assert [one.body for one in records(await it.pull(queue("a")))] == [b"1", b"2", b"4"]

    playing(tmp_path, again)


@pytest.mark.parametrize("name", ["a$b", "a,%LMQ%other", "a/b", "x" * 250])
def test_impossible_light_topic_is_refused_and_nothing_is_stored(tmp_path: Path, name: str) -> None:
    async def tell(it: Cluster) -> None:
        await put_parent(it)
        answer = await it.send(PARENT, b"m", properties=light_properties(name))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "light" in str(answer.remark)
        assert it.broker.store.end_offset() == 0

    playing(tmp_path, tell)


def test_light_topic_takes_messages_of_its_parent_alone(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await put_parent(it)
        foreign = props.write({props.INNER_MULTI_DISPATCH: f"%LMQ%own,{queue('a')}"})
        answer = await it.send("others", b"m", properties=foreign)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "is of another topic" in str(answer.remark)
        own = await it.send(PARENT, b"m", properties=foreign)
        assert own.code == 0, own.remark
        # Delayed and half messages are judged by the topic that they are for.
        for more in ({"DELAY": "1"}, {"TRAN_MSG": "true", "PGROUP": "p"}):
            text = props.write({props.INNER_MULTI_DISPATCH: queue("a"), **more})
            assert (await it.send("others", b"m", properties=text)).code == 13, more
            assert (await it.send(PARENT, b"m", properties=text)).code == 0, more

    playing(tmp_path, tell)


def test_delayed_message_comes_to_its_light_topic_in_time(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await put_parent(it)
        text = light_properties("a", DELAY="1")
        assert (await it.send(PARENT, b"late", properties=text)).code == 0
        await dispatched(it)
        assert not records(await it.pull(queue("a")))
        answer = await it.pull(queue("a"), suspendTimeoutMillis="15000", sysFlag="6")
        assert [one.body for one in records(answer)] == [b"late"]

    playing(tmp_path, tell)


def test_one_light_topic_too_many_is_answered_by_its_code(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await put_parent(it)
        await send(it, "a", b"1")
        await send(it, "b", b"2")
        answer = await it.send(PARENT, b"3", properties=light_properties("c"))
        assert answer.code == ResponseCode.LMQ_QUOTA_EXCEEDED
        await send(it, "a", b"4")

    playing(tmp_path, tell, enableLmqQuota="true", maxLmqConsumeQueueNum="2")


def test_topic_of_light_topics_needs_light_queues(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        fields = topic_fields(PARENT, **{"message.type": "LITE"})
        answer = await it.call(Command(code, ext=fields))
        assert (answer.code, "enableLmq" in str(answer.remark)) == (29, True)
        assert it.broker.metadata.topics.get(PARENT) is None

    play(tmp_path, tell)


class NoQueues:
    """A store without light queues."""

    def light_queues(self) -> int:
        return 0

    def knows_light_queue(self, name: str) -> bool:
        del name
        return False


def test_nothing_is_put_into_a_light_topic_that_is_being_removed() -> None:
    rules = LightQueues(NoQueues(), StoreConfig())
    rules.leaving.add(queue("gone"))

    def put(topic: str, name: str, *, is_new: bool) -> PutStatus | None:
        given = {props.INNER_MULTI_DISPATCH: queue(name), props.REAL_TOPIC: PARENT}
        draft = Draft(
            topic=topic,
            queue_id=0,
            body=b"m",
            properties=given,
            born_timestamp=0,
            born_host=bytes(8),
            store_host=bytes(8),
        )
        found = rules.refusal(draft, is_new=is_new)
        return None if found is None else found.status

    busy = PutStatus.OS_PAGE_CACHE_BUSY
    # A delayed or half message was accepted before: whoever delivers it tries again.
    for is_new in (True, False):
        assert put(PARENT, "gone", is_new=is_new) is busy
        assert put(PARENT, "other", is_new=is_new) is None
    # One that is to wait first goes to no queue yet, if it is no new one.
    assert put("SCHEDULE_TOPIC_XXXX", "gone", is_new=True) is busy
    assert put("SCHEDULE_TOPIC_XXXX", "gone", is_new=False) is None
    rules.leaving.clear()
    assert put(PARENT, "gone", is_new=False) is None
