"""Our own front of gRPC over TLS, with the official clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import grpc_stories as stories
from grpc_harness import ProxyWorld

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def world(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyWorld]:
    folder = tmp_path_factory.mktemp("grpc-tls")
    built = ProxyWorld.start_ours(jars, folder, tls=True)
    yield built
    built.stop()


@pytest.mark.parametrize("make", ["python", "java"])
def test_push_consumer_gets_a_message_that_failed_again_over_tls(
    world: ProxyWorld, make: str
) -> None:
    stories.push_consumer_gets_a_message_that_failed_again(world, world.peer(make))


@pytest.mark.parametrize("make", ["python", "java"])
def test_halves_end_as_their_producer_says_over_tls(world: ProxyWorld, make: str) -> None:
    stories.halves_end_as_their_producer_says(world, make)
