"""Fixtures for pytest: a real broker for the session, a client and a topic of its own for a test.

pytest loads it by itself where Roquet is installed (entry point `pytest11`). The broker starts with
the first test that asks for it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from roquet.client import sync
    from roquet.testing.broker import Broker

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def roquet_settings() -> Mapping[str, str]:
    """Return settings of the broker, with Java's names: override it in a `conftest.py`."""
    return {}


@pytest.fixture(scope="session")
def roquet_broker(roquet_settings: Mapping[str, str]) -> Generator[Broker]:
    """Run a name server and a broker until the end of the session; see `Broker`."""
    from roquet.testing.broker import Broker  # noqa: PLC0415  (not for tests without one)

    with Broker(roquet_settings) as broker:
        yield broker


@pytest.fixture
def roquet_client(roquet_broker: Broker) -> Generator[sync.MQ]:
    """Connect a blocking client to the broker; asyncio tests connect to `roquet_broker.url`."""
    from roquet.client import sync  # noqa: PLC0415

    with sync.connect(roquet_broker.url) as mq:
        yield mq


@pytest.fixture
def roquet_topic(roquet_client: sync.MQ) -> str:
    """Return a topic of four queues that no other test has."""
    name = f"test-{next(_numbers)}"
    roquet_client.admin().topics.create(name, 4)
    return name
