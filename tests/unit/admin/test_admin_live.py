"""Every family of administration against a real name server and broker."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

import roquet
from roquet._native import decode_records
from roquet.admin import Pulled
from roquet.base.errors import Refused, UsageError
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.queue import MessageQueue
from roquet.model.request_mode import GroupRequestMode, RequestMode
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.admin import Admin

    Story = Callable[[roquet.MQ, Admin], Awaitable[None]]

T = TypeVar("T")


def play(folder: Path, story: Story) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(50),
            cluster(folder) as it,
            roquet.connect(f"rmq://{it.name_servers}") as mq,
        ):
            await story(mq, mq.admin())

    asyncio.run(run())


async def fill(mq: roquet.MQ, topic: str, count: int, *, key: str = "k") -> list[str]:
    async with mq.producer("fillers") as producer:
        receipts = [await producer.send(topic, f"{it}", keys=[key]) for it in range(count)]
    return [it.message_id for it in receipts]


async def eventually(ask: Callable[[], Awaitable[list[T]]]) -> list[T]:
    """Ask until something is found: the index follows the log, members their heartbeat."""
    while True:
        found = await ask()
        if found:
            return found
        await asyncio.sleep(0.05)


async def members(admin: Admin, group: str) -> list[str]:
    producers = await admin.brokers.producers("broker-a")
    return [it.client_id for it in producers.get(group, ())]


def test_a_topic_is_created_once_altered_and_deleted(tmp_path: Path) -> None:
    async def story(_: roquet.MQ, admin: Admin) -> None:
        made = await admin.topics.create("t", 3, attributes={"message.type": "FIFO"})
        assert made.keys() == {"broker-a"}
        with pytest.raises(Refused, match="3 queues on broker-a") as caught:
            await admin.topics.create("t", 8)
        assert caught.value.code == 18
        (config,) = (await admin.topics.get("t")).values()
        assert (config.read_queues, config.attributes) == (3, {"message.type": "FIFO"})
        before = await admin.topics.alter("t", queues=5, perm=4)
        assert before["broker-a"].write_queues == 3
        (config,) = (await admin.topics.get("t")).values()
        assert (config.read_queues, config.write_queues, config.perm) == (5, 5, 4)
        assert config.attributes == {"message.type": "FIFO"}
        bare = dataclasses.replace(config, attributes={})
        await admin.topics.put(bare, removed=["message.type"])
        assert (await admin.topics.get("t"))["broker-a"].attributes == {}
        assert len(await admin.topics.queues("t")) == 5
        assert "t" in await admin.topics.names(system=False)
        assert "TBW102" in await admin.topics.names()
        assert "TBW102" not in await admin.topics.names(system=False)
        assert await admin.topics.reserved() == {"DefaultCluster", "broker-a"}
        found = await admin.topics.presence("t")
        assert found.route is not None
        assert [it.broker_name for it in found.route.brokers] == ["broker-a"]
        assert found.departed == frozenset()
        await admin.topics.delete("t")
        gone = await admin.topics.presence("t")
        assert gone.route is None
        assert "t" in gone.remark
        assert await admin.topics.get("t") == {}
        with pytest.raises(Refused, match="try: roquet topic create t"):
            await admin.topics.alter("t", queues=1)

    play(tmp_path, story)


def test_a_group_is_found_without_being_made_by_the_look(tmp_path: Path) -> None:
    async def story(_: roquet.MQ, admin: Admin) -> None:
        assert await admin.groups.get("g") == {}
        assert await admin.groups.get("g") == {}
        await admin.groups.put(SubscriptionGroupConfig(name="g", retry_max_times=3))
        (config,) = (await admin.groups.get("g")).values()
        assert config.retry_max_times == 3
        assert "g" in await admin.groups.names(system=False)
        assert "TOOLS_CONSUMER" not in await admin.groups.names(system=False)
        assert "TOOLS_CONSUMER" in await admin.groups.names()
        await admin.topics.create("t", 1)
        await admin.groups.set_mode(GroupRequestMode(topic="t", group="g", mode=RequestMode.POP))
        await admin.groups.set_readable("g", "t", readable=False)
        await admin.groups.delete("g", offsets=True)
        assert await admin.groups.get("g") == {}

    play(tmp_path, story)


def test_more_groups_than_a_page_are_all_listed(tmp_path: Path) -> None:
    async def story(mq: roquet.MQ, admin: Admin) -> None:
        from roquet.admin import groups  # noqa: PLC0415

        for number in range(7):
            await admin.groups.put(f"page-{number}")
        whole = await mq.admin().groups.names()
        for page in (1, 2, len(whole) - 1, len(whole), len(whole) + 1):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(groups, "_PAGE", page)
                assert await admin.groups.names() == whole

    play(tmp_path, story)


def test_a_seek_does_what_its_preview_says(tmp_path: Path) -> None:
    async def story(mq: roquet.MQ, admin: Admin) -> None:
        await admin.topics.create("t", 1)
        await fill(mq, "t", 4)
        queue = MessageQueue("t", "broker-a", 0)
        async with mq.consumer("g", "t", start="earliest") as consumer:
            for _ in range(4):
                received = await consumer.receive(timeout_s=20)
                assert received is not None
                received.ack()
        assert await admin.groups.lag("g") == 0
        assert (await admin.groups.committed("broker-a"))["t@g"] == {0: 4}
        assert "t" in await admin.groups.topics("g")
        assert await admin.topics.groups("t") == ["g"]
        preview = await admin.groups.preview_seek("g", "t", "earliest")
        assert [(it.now, it.then, it.repeated) for it in preview] == [(4, 0, 4)]
        assert await admin.groups.lag("g", "t") == 0
        assert await admin.groups.seek("g", "t", "earliest") == preview
        assert await admin.groups.lag("g", "t") == 4
        (back,) = await admin.groups.seek("g", "t", {queue: 3})
        assert back.then == 3
        third = (await admin.messages.at(queue, 2))[0]
        (timed,) = await admin.groups.preview_seek("g", "t", third.store_timestamp)
        assert timed.then <= 2
        no_queue = {MessageQueue("t", "broker-a", 9): 0}
        for wrong in cast("Any", ({queue: 5}, {queue: -1}, no_queue, "middle", 1.5)):
            with pytest.raises(UsageError):
                await admin.groups.seek("g", "t", wrong)
        await admin.groups.clone_offsets("g", "copy", "t")
        await admin.groups.put("copy")

    play(tmp_path, story)


def test_a_member_is_shown_with_what_it_says_of_itself(tmp_path: Path) -> None:
    async def story(mq: roquet.MQ, admin: Admin) -> None:
        await admin.topics.create("t", 1)
        assert await admin.groups.connection("g") is None
        async with mq.consumer("g", "t", start="earliest") as consumer, mq.producer("p") as sender:
            (sent,) = [await sender.send("t", "x")]
            assert await consumer.receive(timeout_s=20) is not None
            online = await admin.groups.connection("g")
            assert online is not None
            assert [it.client_id for it in online.connections] == [mq.client_id]
            told = await admin.groups.running_info("g", mq.client_id)
            assert MessageQueue("t", "broker-a", 0) in told.queues
            again = await admin.groups.running_info("g", mq.client_id, broker="broker-a")
            assert again.queues.keys() == told.queues.keys()
            assert told.stacks is None
            threads = await admin.groups.running_info("g", mq.client_id, stacks=True)
            assert threads.stacks is not None
            assert '"MainThread" thread=' in threads.stacks
            assert f"test_a_member_is_shown_with_what_it_says_of_itself({__file__}:" in (
                threads.stacks
            )
            (member,) = await admin.groups.members("g", "broker-a")
            assert member.client_id == mq.client_id
            with pytest.raises(Refused):
                await admin.groups.members("nobody", "broker-a")
            with pytest.raises(Refused):
                await admin.groups.running_info("g", "nobody")
            (found,) = await eventually(lambda: admin.messages.by_id("t", sent.message_id))
            linked = await eventually(lambda: members(admin, "p"))
            assert linked == [mq.client_id]
            (connection,) = await admin.brokers.producer_connections("broker-a", "p")
            assert connection.client_id == mq.client_id
            assert found.body == b"x"

    play(tmp_path, story)


def test_messages_are_found_by_id_key_place_and_time(tmp_path: Path) -> None:
    async def story(mq: roquet.MQ, admin: Admin) -> None:
        await admin.topics.create("t", 2)
        ids = await fill(mq, "t", 70, key="same")
        await eventually(lambda: admin.messages.by_id("t", ids[69]))
        (one,) = await admin.messages.by_id("t", ids[5])
        assert one.body == b"5"
        assert (await admin.messages.by_offset_id(one.msg_id)).body == b"5"
        assert await admin.messages.by_id("t", "0" * 32) == []
        assert len(await admin.messages.by_key("t", "same")) == 64
        assert len(await admin.messages.by_key("t", "same", count=3)) == 3
        assert await admin.messages.by_key("t", "same", end_ms=1) == []
        queue = MessageQueue("t", one.broker_name or "broker-a", 0)
        assert len(await admin.messages.at(queue, 0, 40)) == 35
        assert [it.queue_offset for it in await admin.messages.at(queue, 33, 5)] == [33, 34]
        assert await admin.messages.at(queue, 35) == []
        pulled = await admin.messages.pull(queue, 30, 40, group="readers")
        assert [record[4] for record in decode_records(pulled.records)] == [30, 31, 32, 33, 34]
        assert pulled.next_offset == 35
        assert await admin.messages.pull(queue, 35) == Pulled(b"", 35)
        bounds = await admin.topics.offsets_on("t", "broker-a")
        assert (bounds[queue].min_offset, bounds[queue].max_offset) == (0, 35)
        assert await admin.topics.offset_at(queue, 0) == 0
        assert await admin.topics.offset_at(queue, 2**62) == 35
        every = [it async for it in admin.messages.between("t", 0, 2**62)]
        assert sorted(int(it.body) for it in every) == list(range(70))
        last = max(it.store_timestamp for it in every)
        before = [it async for it in admin.messages.between("t", 0, last)]
        assert {it.msg_id for it in before} == {
            it.msg_id for it in every if it.store_timestamp < last
        }
        assert len([it async for it in admin.messages.between("t", 0, 2**62, count=2)]) == 4
        with pytest.raises(Refused, match="try: roquet topic create nowhere"):
            await admin.messages.by_key("nowhere", "k")

    play(tmp_path, story)


def test_a_broker_says_what_it_is_and_takes_settings(tmp_path: Path) -> None:
    async def story(mq: roquet.MQ, admin: Admin) -> None:
        await admin.topics.create("t", 1)
        await fill(mq, "t", 3)
        (data,) = (await admin.brokers.cluster()).brokers.values()
        address = str(data.master)
        for name in ("broker-a", address):
            assert (await admin.brokers.runtime(name))["brokerActive"] == "true"
        with pytest.raises(UsageError, match="there are broker-a"):
            await admin.brokers.runtime("nobody")
        await admin.brokers.set_config("broker-a", {"maxMessageSize": "70000"})
        assert (await admin.brokers.config("broker-a"))["maxMessageSize"] == "70000"
        with pytest.raises(Refused):
            await admin.brokers.set_config("broker-a", {"maxMessageSize": "much"})
        with pytest.raises(UsageError, match="no setting"):
            await admin.brokers.set_config("broker-a", {})
        assert (await admin.brokers.ha_status("broker-a")).is_master
        sums = await admin.brokers.statistics("broker-a", "TOPIC_PUT_NUMS", "t")
        assert sums.keys() == {"statsMinute", "statsHour", "statsDay"}
        assert await admin.brokers.drain("broker-a") > 0
        assert [it.perm for it in (await admin.topics.route("t")).queues] == [4]
        assert await admin.brokers.undrain("broker-a") > 0
        assert [it.perm for it in (await admin.topics.route("t")).queues] == [6]
        await admin.brokers.clean_queues("broker-a")
        await admin.brokers.clean_topics("broker-a")
        await admin.brokers.delete_expired("broker-a")

    play(tmp_path, story)


def test_name_servers_keep_values_and_settings(tmp_path: Path) -> None:
    async def story(_: roquet.MQ, admin: Admin) -> None:
        servers = admin.name_servers
        (address,) = servers.addresses
        assert (await servers.config())[address]["deleteTopicWithBrokerRegistration"] == "false"
        await servers.put("ns", "a", "1")
        await servers.put("ns", "b", "2")
        assert await servers.get("ns", "a") == "1"
        assert await servers.items("ns") == {"a": "1", "b": "2"}
        await servers.delete("ns", "a")
        with pytest.raises(Refused) as caught:
            await servers.get("ns", "a")
        assert caught.value.code == 22
        await servers.set_config({"deleteTopicWithBrokerRegistration": "true"})
        changed = (await servers.config())[address]
        assert changed["deleteTopicWithBrokerRegistration"] == "true"

    play(tmp_path, story)
