"""Heartbeats and what follows from them; every answer that Java was recorded giving is ours."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roquet._native import decode_frames
from roquet.acl.rights import EVERYBODY
from roquet.base.errors import Refused
from roquet.broker.api.caller import Caller
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.clients.locks import QueueLocks
from roquet.broker.clients.notices import GroupNotices
from roquet.broker.clients.registry import EXPRESSION_WEIGHT, Client, Registry
from roquet.broker.remoting.callers import Callers
from roquet.broker.remoting.clients.heartbeats import ClientAdapter
from roquet.broker.remoting.clients.queue_locks import LockAdapter
from roquet.broker.remoting.refusals import refused
from roquet.broker.services.clients import heartbeats as clients_module
from roquet.broker.services.clients.heartbeats import Clients, HeartbeatConfig
from roquet.broker.services.clients.queue_locks import Locks
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ConsumeType, MessageModel, SubscriptionData
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.clients import (
    CheckClient,
    ConsumerData,
    HeartbeatData,
    decode_consumer_ids,
)
from roquet.protocol.bodies.locks import LockRequest, decode_locked
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.router import Request
from roquet.store.tables.files import JsonFile
from roquet.store.tables.groups import GroupTable, GroupTableConfig
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock
from roquet.testing.peer import FakePeer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VECTORS = Path(__file__).parents[2] / "vectors"


class Desk:
    """The handlers for clients over real tables."""

    def __init__(
        self,
        folder: Path,
        *,
        rules: HeartbeatConfig | None = None,
        group_rules: GroupTableConfig | None = None,
        at_once: bool = True,
        notify: bool = True,
    ) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.registry = Registry()
        self.groups = GroupTable(
            JsonFile(folder / "subscriptionGroup.json"),
            group_rules or GroupTableConfig(),
            self.clock,
        )
        self.topics = TopicTable(
            JsonFile(folder / "topics.json"),
            TopicTableConfig(cluster="DefaultCluster", broker_name="broker-a"),
            self.clock,
        )
        self.notices = GroupNotices(self.registry, self.groups, enabled=notify, at_once=at_once)
        self.clients = Clients(
            self.registry,
            self.notices,
            self.groups,
            self.topics,
            self.clock,
            rules=rules or HeartbeatConfig(),
        )
        callers = Callers(EVERYBODY)
        locks = Locks(QueueLocks(), self.registry, self.topics, "broker-a")
        parts = (
            ClientAdapter(self.clients, callers, self.clock),
            LockAdapter(locks, callers),
        )
        self.handlers = {
            code: route.handler for part in parts for route in part.routes() for code in route.codes
        }

    async def ask(
        self,
        peer: FakePeer,
        code: int,
        body: bytes = b"",
        ext: Mapping[str, str] | None = None,
    ) -> Command:
        """Return the answer; a refusal is raised."""
        command = Command(code, dict(ext or {}), body, language="JAVA", opaque=5)
        request = Request(command, peer, self.clock.now_ms(), lambda _: None)
        try:
            answer = self.handlers[RequestCode(code)](request)
            if inspect.isawaitable(answer):
                answer = await answer
        except Refusal as refusal:
            raise refused(refusal) from refusal
        assert answer is not None
        assert answer.opaque == 5
        return answer

    async def beat(self, peer: FakePeer, data: HeartbeatData) -> bool:
        """Send a heartbeat; return whether the client is to send all again."""
        answer = await self.ask(peer, 34, data.encode())
        assert answer.code == 0
        assert answer.ext is not None
        assert answer.ext["IS_SUPPORT_HEART_BEAT_V2"] == "true"
        return answer.ext["IS_SUB_CHANGE"] == "true"

    async def join(self, client_id: str, group: str = "g", *topics: str, **more: Any) -> FakePeer:
        """Connect a consumer."""
        peer = FakePeer()
        await self.beat(peer, heartbeat(client_id, group, *topics, **more))
        return peer

    async def ids(self, group: str = "g") -> list[str]:
        """Ask who is in a group."""
        answer = await self.ask(FakePeer(), 38, ext={"consumerGroup": group})
        return decode_consumer_ids(answer.body)


def heartbeat(
    client_id: str | None, group: str, *topics: str, fingerprint: int = 0, **more: Any
) -> HeartbeatData:
    without_sub = more.pop("without_sub", False)
    wanted = tuple(SubscriptionData(topic=topic, version=1) for topic in topics or ("T",))
    return HeartbeatData(
        client_id=client_id,
        consumers=(ConsumerData(group=group, subscriptions=wanted, **more),),
        fingerprint=fingerprint,
        without_sub=without_sub,
    )


def test_the_second_consumer_of_a_group_is_told_to_the_first(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        one = await desk.join("one")
        assert one.notices() == ["g"]
        two = await desk.join("two")
        assert (one.notices(), two.notices()) == (["g"], ["g"])
        assert await desk.ids() == ["one", "two"]
        await desk.beat(one, heartbeat("one", "g"))
        assert (one.notices(), two.notices()) == ([], [])
        desk.clients.left(two.key)
        assert (one.notices(), two.notices()) == (["g"], [])
        assert await desk.ids() == ["one"]
        desk.clients.left(two.key)
        assert one.notices() == []

    asyncio.run(story())


def test_member_that_shares_no_queues_out_is_told_nothing_but_counts(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        one, other = await desk.join("one"), FakePeer()
        assert one.notices() == ["g"]
        data = heartbeat("other", "g")
        client = Client(other, "other", "JAVA", 0, balances=False)
        await desk.clients.heartbeat(data, client, Caller(address="x:1"))
        assert (one.notices(), other.notices()) == (["g"], [])
        assert await desk.ids() == ["one", "other"]
        await desk.join("two")
        assert (one.notices(), other.notices()) == (["g"], [])
        desk.clients.left(other.key)
        assert one.notices() == ["g"]
        assert await desk.ids() == ["one", "two"]

    asyncio.run(story())


def test_each_notice_is_a_command_of_its_own(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        one, two = await desk.join("one"), await desk.join("two")
        assert one.sent[-1] is not two.sent[-1]
        assert (one.sent[-1].language, one.sent[-1].flag) == ("JAVA", 2)

    asyncio.run(story())


def test_a_heartbeat_makes_the_group_and_its_retry_topic_last(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        desk.topics.put(TopicConfig(name="Ordered", order=True))
        await desk.join("one", "g", "T", "Ordered")
        topic = desk.topics.get("%RETRY%g")
        assert topic is not None
        assert (topic.read_queues, topic.write_queues, topic.perm, topic.order) == (1, 1, 6, True)
        await desk.join("one", "units", unit_mode=True)
        await desk.clients.save_created()
        topic = desk.topics.get("%RETRY%units")
        assert topic is not None
        assert (topic.sys_flag, topic.order) == (2, False)
        assert "%RETRY%g" in (tmp_path / "topics.json").read_text()
        assert '"groupName":"g"' in (tmp_path / "subscriptionGroup.json").read_text()

    asyncio.run(story())


def test_a_disk_that_takes_nothing_keeps_no_consumer_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        no_folder = tmp_path / "file"
        no_folder.write_text("")
        desk = Desk(no_folder)
        one = await desk.join("one")
        assert one.notices() == ["g"]
        assert await desk.ids() == ["one"]
        await desk.clients.save_created()
        assert "not written down" in caplog.text

    asyncio.run(story())


def test_tables_that_heartbeats_grow_are_written_for_a_tenth_of_the_time_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        saved: list[int] = []
        save = JsonFile.save

        async def slow_save(file: JsonFile, encode: Callable[[], bytes]) -> None:
            await save(file, encode)
            saved.append(desk.clock.steady_ms())
            await desk.clock.advance(0.5)

        monkeypatch.setattr(JsonFile, "save", slow_save)
        for number in range(27):
            await desk.join("one", f"g{number}")
            await desk.clients.save_created()
            await desk.clock.advance(1)
        # Both tables, half a second each: one write in ten seconds.
        assert len(saved) == 2 * 3
        await desk.clock.advance(10)
        await desk.clients.save_created()
        assert "g26" in (tmp_path / "subscriptionGroup.json").read_text()
        await desk.clock.advance(10)
        await desk.clients.save_created()
        assert len(saved) == 2 * 4

    asyncio.run(story())


@pytest.mark.parametrize("group", ["unknown", "../../etc", "", "a" * 121, "g\n"])
def test_a_group_that_may_not_be_created_is_passed_over(tmp_path: Path, group: str) -> None:
    async def story() -> None:
        rules = GroupTableConfig(auto_create=False) if group == "unknown" else None
        desk = Desk(tmp_path, group_rules=rules)
        peer = await desk.join("one", group)
        assert peer.notices() == []
        assert list(desk.registry.consumer_groups) == []
        assert not (tmp_path / "topics.json").exists()

    asyncio.run(story())


def test_pull_consumers_are_passed_over_where_they_are_not_wanted(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path, rules=HeartbeatConfig(reject_pull_consumers=True))
        await desk.join("one", "pulls", consume_type=ConsumeType.ACTIVELY)
        await desk.join("two", "pushed", consume_type=ConsumeType.PASSIVELY)
        assert list(desk.registry.consumer_groups) == ["pushed"]

    asyncio.run(story())


def test_nobody_is_told_in_a_broadcasting_group_or_where_it_is_switched_off(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        quiet = SubscriptionGroupConfig(name="quiet", notify_consumer_ids_changed_enable=False)
        desk.groups.put(quiet)
        each = await desk.join("one", "each", message_model=MessageModel.BROADCASTING)
        silent = await desk.join("one", "quiet")
        assert (each.notices(), silent.notices()) == ([], [])
        off = Desk(tmp_path, notify=False)
        assert (await off.join("one")).notices() == []

    asyncio.run(story())


def test_notices_can_be_gathered_and_then_come_once(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path, at_once=False)
        one = await desk.join("one")
        await desk.join("two")
        assert one.notices() == []
        await desk.notices.flush()
        assert one.notices() == ["g"]
        await desk.notices.flush()
        assert one.notices() == []

    asyncio.run(story())


def test_the_second_kind_of_heartbeat_leaves_subscriptions_out(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        peer = FakePeer()
        assert not await desk.beat(peer, heartbeat("one", "g", "T", "U", fingerprint=7))
        left_out = heartbeat("one", "g", "x", fingerprint=7, without_sub=True)
        assert not await desk.beat(peer, left_out)
        known = desk.registry.consumer("g")
        assert known is not None
        assert set(known.subscriptions) == {"T", "U"}
        assert await desk.beat(peer, heartbeat("one", "g", "T", fingerprint=8))
        restarted = Desk(tmp_path)
        assert await restarted.beat(FakePeer(), left_out)
        assert await restarted.beat(FakePeer(), heartbeat("one", "g"))

    asyncio.run(story())


def test_a_client_that_hung_up_meanwhile_is_not_let_in(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        peer = FakePeer(is_open=False)
        await desk.beat(peer, heartbeat("one", "g"))
        assert list(desk.registry.consumer_groups) == []

    asyncio.run(story())


def test_unregistering_takes_the_connection_out_and_always_succeeds(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        one, two = await desk.join("one"), await desk.join("two")
        await desk.beat(two, HeartbeatData(client_id="two", producers=("p",)))
        one.notices()
        gone = {"clientID": "two", "consumerGroup": "g", "producerGroup": "p"}
        answer = await desk.ask(two, 35, ext=gone)
        assert (answer.code, answer.ext) == (0, {})
        assert one.notices() == ["g"]
        assert await desk.ids() == ["one"]
        assert desk.registry.producer_groups == []
        assert (await desk.ask(two, 35, ext=gone)).code == 0
        assert one.notices() == []

    asyncio.run(story())


def test_silent_clients_are_closed_and_the_rest_told(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        quiet, lively = await desk.join("quiet"), await desk.join("lively")
        await desk.clock.advance(100)
        await desk.beat(lively, heartbeat("lively", "g"))
        lively.notices()
        await desk.clock.advance(20)
        await desk.clients.expire()
        assert lively.notices() == []
        await desk.clock.advance(0.001)
        await desk.clients.expire()
        assert (quiet.is_open, lively.is_open) == (False, True)
        assert lively.notices() == ["g"]
        assert await desk.ids() == ["lively"]
        assert [timer.every_s for timer in desk.clients.timers] == [10, 15, 1]

    asyncio.run(story())


def test_a_list_of_nobody_is_refused_in_these_words(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        with pytest.raises(Refused) as refused:
            await desk.ids("nobody")
        assert refused.value.code == 1
        assert refused.value.remark == "no consumer for this group, nobody"

    asyncio.run(story())


def test_a_subscription_is_checked_before_it_is_used(tmp_path: Path) -> None:
    def body(kind: str) -> bytes:
        wanted = SubscriptionData(topic="T", expression="a > 1", expression_type=kind)
        return CheckClient(client_id="one", group="g", subscription=wanted).encode()

    async def story() -> None:
        desk = Desk(tmp_path)
        for good in (b"", body("TAG"), body(""), b'{"clientId":"one","group":"g"}'):
            assert (await desk.ask(FakePeer(), 46, good)).code == 0
        with pytest.raises(Refused, match=r"does not support consumer to filter .* SQL92") as no:
            await desk.ask(FakePeer(), 46, body("SQL92"))
        assert no.value.code == 1
        sql = Desk(tmp_path, rules=HeartbeatConfig(sql_filters=True))
        assert (await sql.ask(FakePeer(), 46, body("SQL92"))).code == 0
        with pytest.raises(Refused):
            await sql.ask(FakePeer(), 46, body("PYTHON"))

    asyncio.run(story())


def test_b15_heartbeats_without_measure_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    many = tuple(SubscriptionData(topic=f"T{n}") for n in range(10_000))
    bad = {
        "clients": HeartbeatData(client_id="x" * 1_048_576),
        "subscriptions": HeartbeatData(
            client_id="one", consumers=(ConsumerData(group="g", subscriptions=many),)
        ),
        "groups": HeartbeatData(
            client_id="one", consumers=tuple(ConsumerData(group=f"g{n}") for n in range(100_000))
        ),
        "producers": HeartbeatData(client_id="one", producers=tuple(map(str, range(2_001)))),
        "name": HeartbeatData(client_id="one", producers=("p" * 256,)),
        "expression": HeartbeatData(
            client_id="one",
            consumers=(
                ConsumerData(
                    group="g",
                    subscriptions=(SubscriptionData(topic="T", expression="a" * 5_000),),
                ),
            ),
        ),
    }

    async def story() -> None:
        desk = Desk(tmp_path)
        for what, data in bad.items():
            with pytest.raises(Refused) as refused:
                await desk.ask(FakePeer(), 34, data.encode())
            assert refused.value.code == 29, what
        for broken in (b"", b"[]", b"{", b'{"consumerDataSet":5}', b"\xff"):
            with pytest.raises(Refused) as refused:
                await desk.ask(FakePeer(), 34, broken)
            assert refused.value.code == 1
        assert list(desk.registry.consumer_groups) == []
        assert desk.registry.producer_groups == []
        assert not (tmp_path / "subscriptionGroup.json").exists()

    asyncio.run(story())


def test_b15_a_connection_cannot_collect_groups_heartbeat_by_heartbeat(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        peer = FakePeer()
        for start in (0, 1_500):
            names = tuple(f"p{n}" for n in range(start, start + 1_500))
            await desk.beat(peer, HeartbeatData(client_id="one", producers=names))
        with pytest.raises(Refused) as refused:
            await desk.beat(peer, HeartbeatData(client_id="one", producers=("more",)))
        assert refused.value.code == 29

    asyncio.run(story())


def test_heartbeat_without_room_for_a_retry_topic_lets_the_others_in_and_says_why(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        desk.topics.put(TopicConfig(name="orders"))
        desk.topics.follow(TopicTableConfig(auto_create_max=len(desk.topics.all()) + 1))
        consumers = tuple(
            consumer for group in ("a", "b") for consumer in heartbeat("one", group).consumers
        )
        peer = FakePeer()
        with pytest.raises(Refused, match="autoCreateTopicMax") as refused:
            await desk.beat(peer, HeartbeatData(client_id="one", consumers=consumers))
        assert refused.value.code == 1
        assert (await desk.ids("a"), desk.registry.consumer("b")) == (["one"], None)
        assert desk.topics.get("%RETRY%b") is None
        await desk.beat(peer, heartbeat("one", "a"))

    asyncio.run(story())


def test_heartbeat_beyond_the_memberships_of_all_connections_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_module, "MEMBERSHIPS_MAX", 3)

    async def story() -> None:
        desk = Desk(tmp_path)
        one, two = FakePeer(), FakePeer()
        await desk.beat(one, HeartbeatData(client_id="one", producers=("p", "q")))
        await desk.beat(two, HeartbeatData(client_id="two", producers=("p",)))
        await desk.beat(two, HeartbeatData(client_id="two", producers=("p",)))
        with pytest.raises(Refused, match="no room") as refused:
            await desk.beat(two, HeartbeatData(client_id="two", producers=("p", "q")))
        assert refused.value.code == 2
        await desk.ask(one, 35, ext={"clientID": "one", "producerGroup": "q"})
        await desk.beat(two, HeartbeatData(client_id="two", producers=("p", "q")))
        desk.registry.drop(one.key)
        desk.registry.drop(two.key)
        assert desk.registry.memberships.total == 0

    asyncio.run(story())


def test_account_leaves_room_for_the_memberships_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any account may name producer groups that no account is named for."""
    monkeypatch.setattr(clients_module, "MEMBERSHIPS_MAX", 2_000)

    async def story() -> None:
        desk = Desk(tmp_path)

        async def beat(account: str, names: int, peer: FakePeer) -> Client:
            producers = tuple(f"p{number}" for number in range(names))
            data = HeartbeatData(client_id="one", producers=producers)
            client = Client(peer, "one", "JAVA", 0, account)
            await desk.clients.heartbeat(data, client, Caller(address="x:1", access_key=account))
            return client

        first = FakePeer()
        await beat("a", 1_600, first)
        with pytest.raises(Refusal, match="of account a are in 1600 groups, which") as refused:
            await beat("a", 1, FakePeer())
        assert refused.value.reason is Reason.BUSY
        second = FakePeer()
        await beat("b", 150, second)
        await beat("a", 1_600, first)
        with pytest.raises(Refusal, match="which is its share"):
            await beat("a", 1_601, first)
        # A connection that changes its account takes its places along.
        await beat("b", 1_600, first)
        assert (desk.registry.memberships.of("a"), desk.registry.memberships.of("b")) == (0, 1_750)
        desk.registry.drop(first.key)
        desk.registry.drop(second.key)
        assert (desk.registry.memberships.total, desk.registry.memberships.of("b")) == (0, 0)

    asyncio.run(story())


def test_heartbeat_beyond_the_subscriptions_of_all_groups_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_module, "SUBSCRIBED_MAX", 5)

    async def story() -> None:
        desk = Desk(tmp_path)
        one = await desk.join("one", "g", "a", "b", "c")
        two = await desk.join("two", "h", "a", "b")
        await desk.beat(one, heartbeat("one", "g", "a", "b", "c"))
        assert desk.registry.subscribed == 5
        with pytest.raises(Refused, match="no room") as refused:
            await desk.join("three", "i", "a")
        assert refused.value.code == 2
        # One topic for another, and fewer of them, is always possible.
        await desk.beat(two, heartbeat("two", "h", "a"))
        long = "a" * EXPRESSION_WEIGHT
        wanted = SubscriptionData(topic="a", expression=long, version=2)
        consumer = ConsumerData(group="h", subscriptions=(wanted,))
        await desk.beat(two, HeartbeatData(client_id="two", consumers=(consumer,)))
        assert desk.registry.subscribed == 5
        desk.registry.drop(one.key)
        desk.registry.drop(two.key)
        assert desk.registry.subscribed == 0

    asyncio.run(story())


def test_b15_one_client_id_from_two_hosts_are_two_members(tmp_path: Path) -> None:
    """A member is a connection: the one that leaves, or is closed, takes nothing of the other's."""

    async def story() -> None:
        desk = Desk(tmp_path)
        one, two = await desk.join("same"), await desk.join("same")
        assert await desk.ids() == ["same"], "named once, lest a share of the queues is nobody's"
        await desk.beat(one, HeartbeatData(client_id="same", producers=("p",)))
        await desk.ask(two, 35, ext={"clientID": "same", "consumerGroup": "g"})
        assert await desk.ids() == ["same"]
        assert desk.registry.producer_groups == ["p"]
        await desk.join("same")
        await desk.clock.advance(119)
        await desk.beat(one, heartbeat("same", "g"))
        await desk.beat(one, HeartbeatData(client_id="same", producers=("p",)))
        await desk.clock.advance(2)
        await desk.clients.expire()
        assert one.is_open
        assert await desk.ids() == ["same"]
        await desk.ask(one, 35, ext={"clientID": "same", "consumerGroup": "g"})
        with pytest.raises(Refused, match="no consumer"):
            await desk.ids()

    asyncio.run(story())


def test_lock_of_queues_that_do_not_exist_or_by_strangers_grants_nothing(tmp_path: Path) -> None:
    real = {MessageQueue("T", "broker-a", n) for n in range(3)}
    unreal = {
        MessageQueue("T", "broker-a", 3),
        MessageQueue("T", "broker-a", -1),
        MessageQueue("T", "broker-b", 0),
        MessageQueue("U", "broker-a", 0),
        MessageQueue("nowhere", "broker-a", 0),
    }

    def body(queues: set[MessageQueue], client_id: str = "one", group: str = "g") -> bytes:
        asked = LockRequest(client_id=client_id, group=group, queues=frozenset(queues))
        return dataclasses.replace(asked, only_this_broker=True).encode()

    async def story() -> None:
        desk = Desk(tmp_path)
        for name in ("T", "U"):
            desk.topics.put(TopicConfig(name=name, read_queues=3, write_queues=3))
        peer = await desk.join("one")

        async def granted(asker: FakePeer, asked: bytes) -> frozenset[MessageQueue]:
            return decode_locked((await desk.ask(asker, 41, asked)).body)

        assert await granted(FakePeer(), body(real)) == frozenset()
        assert await granted(peer, body(real, client_id="two")) == frozenset()
        assert await granted(peer, body(unreal)) == frozenset()
        assert await granted(peer, body(real | unreal)) == real

    asyncio.run(story())


def test_locks_of_a_group_behind_a_proxy_are_granted_on_any_connection(tmp_path: Path) -> None:
    real = frozenset({MessageQueue("T", "broker-a", n) for n in range(3)})
    unreal = frozenset({MessageQueue("T", "broker-a", 3), MessageQueue("U", "broker-a", 0)})

    def body(client_id: str, queues: frozenset[MessageQueue]) -> bytes:
        asked = LockRequest(client_id=client_id, group="g", queues=queues)
        return dataclasses.replace(asked, only_this_broker=True).encode()

    async def story() -> None:
        desk = Desk(tmp_path)
        desk.topics.put(TopicConfig(name="T", read_queues=3, write_queues=3))

        async def granted(asker: FakePeer, asked: bytes) -> frozenset[MessageQueue]:
            return decode_locked((await desk.ask(asker, 41, asked)).body)

        one, two = FakePeer(), FakePeer()
        assert await granted(one, body("a", real | unreal)) == real
        assert await granted(two, body("b", real)) == frozenset()
        # The proxy has several connections, and takes any of them.
        assert await granted(two, body("a", real)) == real
        await desk.ask(one, 42, body("a", real))
        assert await granted(two, body("b", real)) == real
        await desk.ask(one, 42, body("b", real))
        # Once the group has members here, it is they alone.
        member = await desk.join("c")
        assert await granted(one, body("b", real)) == frozenset()
        assert await granted(member, body("c", real)) == real

    asyncio.run(story())


def test_lease_when_the_wall_clock_jumps_stays_with_its_holder(tmp_path: Path) -> None:
    queues = frozenset({MessageQueue("T", "broker-a", 0)})

    async def story() -> None:
        desk = Desk(tmp_path)
        desk.topics.put(TopicConfig(name="T", read_queues=1, write_queues=1))
        one, two = await desk.join("one"), await desk.join("two")
        asked = LockRequest(client_id="one", group="g", queues=queues)
        assert decode_locked((await desk.ask(one, 41, asked.encode())).body) == queues
        desk.clock.set_by(3_600)
        asked = LockRequest(client_id="two", group="g", queues=queues)
        assert decode_locked((await desk.ask(two, 41, asked.encode())).body) == frozenset()

    asyncio.run(story())


def test_locks_are_granted_renewed_and_given_back(tmp_path: Path) -> None:
    queues = frozenset(MessageQueue("T", "broker-a", n) for n in range(3))

    def body(client_id: str) -> bytes:
        return LockRequest(client_id=client_id, group="g", queues=queues).encode()

    async def story() -> None:
        desk = Desk(tmp_path)
        desk.topics.put(TopicConfig(name="T", read_queues=3, write_queues=3))
        peer, other = await desk.join("one"), await desk.join("two")
        for _ in range(2):
            answer = await desk.ask(peer, 41, body("one"))
            assert decode_locked(answer.body) == queues
        refused = await desk.ask(other, 41, body("two"))
        assert (refused.code, decode_locked(refused.body)) == (0, frozenset())
        assert (await desk.ask(other, 42, body("two"))).code == 0
        assert decode_locked((await desk.ask(other, 41, body("two"))).body) == frozenset()
        # Another's id gives nothing back and takes nothing over.
        assert (await desk.ask(other, 42, body("one"))).code == 0
        assert decode_locked((await desk.ask(other, 41, body("one"))).body) == frozenset()
        assert decode_locked((await desk.ask(other, 41, body("two"))).body) == frozenset()
        assert (await desk.ask(peer, 42, body("one"))).code == 0
        assert decode_locked((await desk.ask(other, 41, body("two"))).body) == queues
        for broken in (b"", b"{}", b'{"clientId":"one"}', b'{"mqSet":[1]}'):
            with pytest.raises(Refused) as why:
                await desk.ask(peer, 41, broken)
            assert why.value.code == 1

    asyncio.run(story())


# --- recordings ----------------------------------------------------------------------------------

CODES = {34, 35, 38, 41, 42, 46}


def frames() -> list[tuple[int, str, Command]]:
    found = []
    with gzip.open(VECTORS / "broker_frames.jsonl.gz", "rt") as lines:
        for line in lines:
            entry = json.loads(line)
            ((encoding, code, flag, language, version, opaque, remark, ext, body),) = decode_frames(
                bytes.fromhex(entry["hex"])
            )[0]
            command = Command(code, ext, body, remark, flag, opaque, language, version, encoding)
            found.append((entry["conn"], entry["dir"], command))
    return found


def comparable(command: Command) -> object:
    body = json.loads(command.body) if command.body else None
    return command.code, command.remark, command.ext, body


def test_answers_and_notices_are_those_that_java_gave(tmp_path: Path) -> None:
    """Every recorded heartbeat, list, lock and goodbye is asked again, in the recorded order."""

    async def story() -> int:
        desk = Desk(tmp_path, rules=HeartbeatConfig(sql_filters=True))
        desk.topics.put(TopicConfig(name="GoldenTopic"))
        peers: dict[int, FakePeer] = {}
        recorded = frames()
        answers = {
            (conn, command.opaque): command
            for conn, direction, command in recorded
            if direction == "s2c" and command.is_response
        }
        asked = 0
        for conn, direction, command in recorded:
            if direction == "c2s" and command.code in CODES and not command.is_response:
                peer = peers.setdefault(conn, FakePeer())
                answer = await desk.ask(peer, command.code, command.body, command.ext)
                assert comparable(answer) == comparable(answers[conn, command.opaque])
                asked += 1
        told = [
            (conn, command.ext)
            for conn, direction, command in recorded
            if direction == "s2c" and command.code == 40 and not command.is_response
        ]
        ours = [(conn, notice.ext) for conn, peer in peers.items() for notice in peer.sent]
        assert sorted(map(str, ours)) == sorted(map(str, told))
        return asked

    assert asyncio.run(story()) == 41


@pytest.mark.parametrize("set_by_s", [3_600, -3_600])
def test_member_when_the_wall_clock_jumps_stays_and_leaves_after_two_silent_minutes(
    tmp_path: Path, set_by_s: int
) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        peer = await desk.join("one")
        desk.clock.set_by(set_by_s)
        await desk.clients.expire()
        assert desk.registry.consumer("g") is not None
        assert peer.is_open
        await desk.clock.advance(121)
        await desk.clients.expire()
        assert desk.registry.consumer("g") is None
        assert not peer.is_open

    asyncio.run(story())
