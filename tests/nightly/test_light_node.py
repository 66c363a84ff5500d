"""Light topics with the official Node.js client 1.0.8: by Java's proxy and by our own fronts.

A message that a listener fails did not come again within 90 s, behind Java's proxy and at the
broker's own port: that story is the Python client's alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import grpc_light_stories as stories
from grpc_harness import front_world
from light_harness import ON
from roquet.testing.java import fetch_jars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpc_harness import Peer, ProxyWorld


@pytest.fixture(scope="module", params=["java-proxy", "local", "ours"])
def world(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ProxyWorld]:
    folder = tmp_path_factory.mktemp("node-light")
    with front_world(fetch_jars(), folder, request.param, ON) as built:
        built.topic(stories.PARENT, "LITE")
        yield built


@pytest.fixture
def peer(world: ProxyWorld) -> Peer:
    return world.peer("node")


@pytest.mark.timeout(600)
def test_node_consumer_gets_what_is_sent_to_its_light_topics(world: ProxyWorld, peer: Peer) -> None:
    stories.consumer_gets_what_is_sent_to_its_light_topics(world, peer)


@pytest.mark.timeout(600)
def test_later_node_consumer_of_exclusive_group_takes_over(world: ProxyWorld, peer: Peer) -> None:
    stories.later_consumer_of_exclusive_group_takes_over(world, peer)
