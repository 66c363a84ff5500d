"""The official Node.js client of gRPC, 1.0.8, before a broker's front and through our proxy.

The proxy stands before a broker of ours, then before Java's. Light topics: `test_light_node.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import grpc_stories as stories
from grpc_harness import front_world
from roquet.testing.java import fetch_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grpc_harness import Peer, ProxyWorld

pytestmark = pytest.mark.timeout(600)
STORIES: list[Callable[[ProxyWorld, Peer], None]] = [
    stories.push_consumer_gets_a_message_that_failed_again,
    stories.messages_of_a_group_come_in_order,
    stories.delayed_messages_come_in_time_but_for_the_one_recalled,
    stories.messages_come_by_priority,
    stories.simple_consumer_gets_what_its_tags_take,
]


@pytest.fixture(scope="module", params=["local", "ours", "java"])
def world(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ProxyWorld]:
    with front_world(fetch_jars(), tmp_path_factory.mktemp("node"), request.param) as built:
        yield built


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_node_client_sends_and_consumes(
    world: ProxyWorld, story: Callable[[ProxyWorld, Peer], None]
) -> None:
    story(world, world.peer("node"))


def test_what_node_does_not_acknowledge_comes_again(world: ProxyWorld) -> None:
    stories.what_is_not_acknowledged_comes_again(world, "node")


def test_halves_of_node_end_as_their_producer_says(world: ProxyWorld) -> None:
    stories.halves_end_as_their_producer_says(world, "node")
