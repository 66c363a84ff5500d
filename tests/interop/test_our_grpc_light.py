"""Light topics by our own front of gRPC, with the official Python client.

The front is the broker's own, or a proxy in cluster mode before a broker of ours or of Java's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import grpc_light_stories as stories
from grpc_harness import front_world
from light_harness import ON

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from grpc_harness import Peer, ProxyWorld


@pytest.fixture(scope="module", params=["local", "ours", "java"])
def world(
    jars: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ProxyWorld]:
    folder = tmp_path_factory.mktemp("our-light")
    with front_world(jars, folder, request.param, ON) as built:
        built.topic(stories.PARENT, "LITE")
        yield built


@pytest.fixture
def peer(world: ProxyWorld) -> Peer:
    return world.peer("python")


def test_consumer_gets_what_is_sent_to_its_light_topics(world: ProxyWorld, peer: Peer) -> None:
    stories.consumer_gets_what_is_sent_to_its_light_topics(world, peer)


def test_message_that_failed_comes_again(
    world: ProxyWorld, peer: Peer, request: pytest.FixtureRequest
) -> None:
    is_java = request.node.callspec.params["world"] == "java"
    stories.message_that_failed_comes_again(world, peer, with_those_behind=is_java)


def test_later_consumer_of_exclusive_group_takes_over(world: ProxyWorld, peer: Peer) -> None:
    stories.later_consumer_of_exclusive_group_takes_over(world, peer)


def test_group_of_another_parent_is_refused_by_the_proxy(world: ProxyWorld, peer: Peer) -> None:
    stories.group_of_another_parent_is_refused_by_the_proxy(world, peer)
