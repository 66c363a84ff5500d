"""One set of processes for all tests against Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interop_world import World
from roquet.testing.java import Driver, fetch_jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker("java")


@pytest.fixture(scope="session")
def jars() -> Path:
    return fetch_jars()


@pytest.fixture(scope="session")
def driver(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    built = Driver(jars, tmp_path_factory.mktemp("driver"))
    yield built
    built.close()


@pytest.fixture(scope="session")
def world(jars: Path, driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    built = World.start(jars, tmp_path_factory.mktemp("world"), driver)
    yield built
    built.stop()
