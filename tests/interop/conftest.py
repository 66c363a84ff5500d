"""One set of processes for all tests against Java."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interop_world import World
from roquet.testing.java import Driver, fetch_jars

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_FIRST = (
    "test_mqadmin_all.py",
    "test_our_mqadmin.py",
    "test_ha_pairs.py",
    "test_our_cluster_proxy.py",
    "test_java_pop.py",
    "test_java_revive.py",
    "test_java_proxy.py",
    "test_our_grpc.py",
    "test_java_timers.py",
    "test_our_grpc_light.py",
)
"""Two files of a hundred tests, and those of more than 90 s by what they took on a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long files: a file stays on one worker, and the last should be short.

    The others come by how many tests they have, as xdist itself would order them.
    """
    missing = [name for name in LONGEST_FIRST if not (Path(__file__).parent / name).exists()]
    assert not missing, missing
    place = {name: number for number, name in enumerate(LONGEST_FIRST)}
    tests = Counter(item.path.name for item in items)
    items.sort(key=lambda item: (place.get(item.path.name, len(place)), -tests[item.path.name]))
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
