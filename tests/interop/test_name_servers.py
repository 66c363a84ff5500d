"""Brokers of one make at name servers of the other, and what both say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admin_of import admin_of
from interop_world import assert_same, messages, until

if TYPE_CHECKING:
    from interop_world import World


def test_both_name_servers_know_both_brokers(world: World) -> None:
    seen = []
    for side in (world.ours, world.java):
        with admin_of(side.namesrv) as admin:
            seen.append(admin.brokers.cluster())
    assert seen[0] == seen[1]
    assert seen[0].clusters == {
        world.ours.cluster: frozenset({world.ours.name}),
        world.java.cluster: frozenset({world.java.name}),
    }
    for side in (world.ours, world.java):
        assert seen[0].brokers[side.name].addresses == {0: side.broker.address}


def test_both_name_servers_answer_the_same_route(world: World) -> None:
    topics = [world.topic("RouteOurs", world.ours, 3), world.topic("RouteJava", world.java, 5)]
    for topic in topics:
        with admin_of(world.ours.namesrv) as admin:
            ours = admin.topics.route(topic)
        with admin_of(world.java.namesrv) as admin:
            assert admin.topics.route(topic) == ours
        assert ours.queues[0].read_queues == (3 if topic == "RouteOurs" else 5)


def test_java_clients_reach_the_java_broker_by_our_name_server(world: World) -> None:
    topic = world.topic("JavaByOurs", world.java)
    given = messages(10)
    sent = world.driver.send(world.ours.namesrv, topic, given)
    assert {answer["broker"] for answer in sent} == {world.java.name}
    received = world.driver.consume(world.ours.namesrv, topic, "java_by_ours", len(given))
    assert_same(given, sent, received)


def test_mqadmin_changes_our_name_server(world: World) -> None:
    namesrv = world.ours.namesrv
    topic = world.topic("Perms", world.ours)
    run = world.driver.mqadmin
    assert "success" in run("updateKvConfig", "-n", namesrv, "-s", "space", "-k", "k", "-v", "v")
    assert "success" in run("deleteKvConfig", "-n", namesrv, "-s", "space", "-k", "k")
    assert "OK" in run("wipeWritePerm", "-n", namesrv, "-b", world.ours.name)
    with admin_of(namesrv) as admin:
        assert admin.topics.route(topic).queues[0].perm == 4
    assert "OK" in run("addWritePerm", "-n", namesrv, "-b", world.ours.name)
    with admin_of(namesrv) as admin:
        assert admin.topics.route(topic).queues[0].perm == 6
    shown = run("getNamesrvConfig", "-n", namesrv)
    assert "enableTopicList" in shown
    changed = run("updateNamesrvConfig", "-n", namesrv, "-k", "waitSecondsForService", "-v", "46")
    assert "success" in changed
    assert "46" in run("getNamesrvConfig", "-n", namesrv)


def test_a_topic_made_without_asking_is_known_to_both(world: World) -> None:
    """A send to an unknown topic makes it on every broker that allows so."""
    given = messages(8)
    world.driver.send(world.ours.namesrv, "MadeByItself", given)
    with admin_of(world.ours.namesrv) as admin:
        brokers = {broker.broker_name for broker in admin.topics.route("MadeByItself").brokers}
    assert brokers
    until("registration at Java", lambda: brokers <= _brokers(world, "MadeByItself"))


def _brokers(world: World, topic: str) -> set[str]:
    with admin_of(world.java.namesrv) as admin:
        return {broker.broker_name for broker in admin.topics.route(topic).brokers}
