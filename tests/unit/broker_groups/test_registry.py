"""Stories of clients that come, change their mind, fall silent and go."""

from __future__ import annotations

from roquet.broker.clients.registry import IDLE_MS, Client, Consuming, Registry
from roquet.model.subscription import MessageModel, SubscriptionData
from roquet.testing.peer import FakePeer

CLUSTER = Consuming()


def client(client_id: str | None = "10.0.0.1@1") -> Client:
    return Client(FakePeer(), client_id, "JAVA", 513)


def wants(*topics: str, version: int = 1) -> list[SubscriptionData]:
    return [SubscriptionData(topic=topic, version=version) for topic in topics]


def _topics(registry: Registry, group: str) -> dict[str, int]:
    known = registry.consumer(group)
    assert known is not None
    return {topic: s.version for topic, s in known.subscriptions.items()}


def test_joining_is_a_change_and_a_repeat_is_none() -> None:
    registry = Registry()
    one, two = client("one"), client("two")
    assert registry.register_consumer("g", one, CLUSTER, wants("T"), 0)
    assert not registry.register_consumer("g", one, CLUSTER, wants("T", version=9), 1)
    assert registry.register_consumer("g", two, CLUSTER, wants("T"), 2)
    known = registry.consumer("g")
    assert known is not None
    assert known.client_ids == ["one", "two"]
    assert [*known.balancing] == [one.peer.key, two.peer.key]


def test_a_subscription_is_replaced_only_by_a_newer_version() -> None:
    registry = Registry()
    one = client()
    registry.register_consumer("g", one, CLUSTER, wants("T", version=5), 0)
    registry.register_consumer("g", one, CLUSTER, wants("T", version=4), 0)
    assert _topics(registry, "g") == {"T": 5}
    registry.register_consumer("g", one, CLUSTER, wants("T", version=6), 0)
    assert _topics(registry, "g") == {"T": 6}


def test_a_topic_that_comes_or_goes_is_a_change() -> None:
    registry = Registry()
    one = client()
    registry.register_consumer("g", one, CLUSTER, wants("T"), 0)
    assert registry.register_consumer("g", one, CLUSTER, wants("T", "U"), 0)
    assert registry.groups_of_topic("U") == ["g"]
    assert registry.register_consumer("g", one, CLUSTER, wants("U"), 0)
    assert _topics(registry, "g") == {"U": 1}
    assert registry.subscription("g", "T") is None
    assert registry.subscription("nobody", "T") is None
    assert registry.groups_of_topic("T") == []


def test_a_heartbeat_without_subscriptions_keeps_the_known_ones() -> None:
    registry = Registry()
    one = client()
    registry.register_consumer("g", one, CLUSTER, wants("T"), 0, fingerprint=7)
    assert not registry.register_consumer("g", one, CLUSTER, None, 1, fingerprint=7)
    assert _topics(registry, "g") == {"T": 1}


def test_a_client_sends_all_again_when_the_fingerprint_differs_or_the_broker_has_nothing() -> None:
    registry = Registry()
    one = client()
    assert not registry.must_resend("g", 7, without_sub=False)
    assert registry.must_resend("g", 7, without_sub=True)
    registry.register_consumer("g", one, CLUSTER, wants("T"), 0, fingerprint=7)
    assert not registry.must_resend("g", 7, without_sub=True)
    assert registry.must_resend("g", 8, without_sub=False)
    registry.unregister_consumer("g", one.peer.key)
    assert registry.must_resend("g", 7, without_sub=True)


def test_a_client_that_reconnected_counts_once_and_is_found_where_it_is_now() -> None:
    registry = Registry()
    old, new = client("same"), client("same")
    registry.register_consumer("g", old, CLUSTER, wants("T"), 0)
    assert registry.register_consumer("g", new, CLUSTER, wants("T"), 1)
    known = registry.consumer("g")
    assert known is not None
    assert known.client_ids == ["same"]
    member = known.member_with_id("same")
    assert member is not None
    assert member.client.peer.key == new.peer.key
    assert registry.drop(old.peer.key) == ("g",)
    assert known.client_ids == ["same"]
    assert known.member_with_id("other") is None


def test_a_consumer_without_an_id_is_a_member_that_no_list_names() -> None:
    registry = Registry()
    registry.register_consumer("g", client(None), CLUSTER, wants("T"), 0)
    known = registry.consumer("g")
    assert known is not None
    assert known.client_ids == []
    assert len(known.balancing) == 1


def test_leaving_empties_the_tables() -> None:
    registry = Registry()
    one = client("one")
    key = one.peer.key
    registry.register_consumer("g", one, CLUSTER, wants("T"), 0)
    registry.register_producer("p", one, 0)
    assert registry.groups_of(key) == 2
    assert not registry.unregister_consumer("g", key + 1000)
    assert registry.unregister_consumer("g", key)
    assert not registry.unregister_consumer("g", key)
    assert registry.unregister_producer("p", key)
    assert not registry.unregister_producer("p", key)
    assert registry.consumer("g") is None
    assert registry.producer_groups == []
    assert registry.groups_of(key) == 0


def test_a_closed_connection_leaves_all_its_groups() -> None:
    registry = Registry()
    one, two = client("one"), client("two")
    for group in ("g", "h"):
        registry.register_consumer(group, one, CLUSTER, wants("T"), 0)
    registry.register_consumer("g", two, CLUSTER, wants("T"), 0)
    registry.register_producer("p", one, 0)
    assert set(registry.drop(one.peer.key)) == {"g", "h"}
    assert registry.drop(one.peer.key) == ()
    assert list(registry.consumer_groups) == ["g"]
    assert registry.producers("p") == []
    assert registry.groups_of(one.peer.key) == 0


def test_silence_for_two_minutes_ends_a_membership() -> None:
    registry = Registry()
    quiet, lively = client("quiet"), client("lively")
    for member in (quiet, lively):
        registry.register_consumer("g", member, CLUSTER, wants("T"), 0)
        registry.register_producer("p", member, 0)
    registry.register_consumer("g", lively, CLUSTER, wants("T"), 100_000)
    registry.register_producer("p", lively, 100_000)
    assert registry.expire(IDLE_MS).peers == ()
    departed = registry.expire(IDLE_MS + 1)
    assert [peer.key for peer in departed.peers] == [quiet.peer.key]
    assert departed.consumer_groups == ("g",)
    known = registry.consumer("g")
    assert known is not None
    assert known.client_ids == ["lively"]
    assert [m.client.client_id for m in registry.producers("p")] == ["lively"]


def test_a_producer_is_found_by_its_client_id() -> None:
    registry = Registry()
    one = client("one")
    registry.register_producer("p", one, 0)
    found = registry.producer_with_id("one")
    assert found is not None
    assert found.client is one
    assert registry.producer_with_id("two") is None


def test_how_a_group_consumes_is_told_by_its_latest_heartbeat() -> None:
    registry = Registry()
    registry.register_consumer("g", client(), CLUSTER, wants("T"), 0)
    known = registry.consumer("g")
    assert known is not None
    assert not known.is_broadcasting
    everyone = Consuming(model=MessageModel.BROADCASTING)
    registry.register_consumer("g", client(), everyone, wants("T"), 0)
    assert known.is_broadcasting
