"""Our proxy in cluster mode before our broker and before Java's, with the official clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import grpc_stories as stories
from grpc_harness import Peer, ProxyWorld

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module", params=["ours", "java"])
def world(
    jars: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ProxyWorld]:
    make = str(request.param)
    built = ProxyWorld.start_our_cluster(jars, tmp_path_factory.mktemp(make), make)
    yield built
    built.stop()


@pytest.fixture(params=["python", "java"])
def peer(world: ProxyWorld, request: pytest.FixtureRequest) -> Peer:
    return world.peer(str(request.param))


def test_what_is_not_acknowledged_comes_again(world: ProxyWorld, peer: Peer) -> None:
    stories.what_is_not_acknowledged_comes_again(world, peer.make)


def test_push_consumer_gets_a_message_that_failed_again(world: ProxyWorld, peer: Peer) -> None:
    stories.push_consumer_gets_a_message_that_failed_again(world, peer)


def test_messages_of_a_group_come_in_order(world: ProxyWorld, peer: Peer) -> None:
    stories.messages_of_a_group_come_in_order(world, peer)


def test_delayed_messages_come_in_time_but_for_the_one_recalled(
    world: ProxyWorld, peer: Peer
) -> None:
    stories.delayed_messages_come_in_time_but_for_the_one_recalled(world, peer)


def test_messages_come_by_priority(world: ProxyWorld, peer: Peer) -> None:
    stories.messages_come_by_priority(world, peer)


def test_simple_consumer_gets_what_its_tags_take(world: ProxyWorld, peer: Peer) -> None:
    stories.simple_consumer_gets_what_its_tags_take(world, peer)


@pytest.mark.parametrize(("make", "kind"), [("python", "SQL"), ("java", "SQL92")])
def test_simple_consumer_gets_what_its_sql_takes(world: ProxyWorld, make: str, kind: str) -> None:
    stories.simple_consumer_gets_what_its_sql_takes(world, make, kind)


def test_halves_end_as_their_producer_says(world: ProxyWorld, peer: Peer) -> None:
    stories.halves_end_as_their_producer_says(world, peer.make)


def test_kind_of_message_that_the_topic_does_not_take_is_refused(world: ProxyWorld) -> None:
    stories.kind_of_message_that_the_topic_does_not_take_is_refused(world)


def test_message_that_fails_too_often_goes_to_the_dead_letters(world: ProxyWorld) -> None:
    stories.message_that_fails_too_often_goes_to_the_dead_letters(world)
