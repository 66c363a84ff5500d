"""A transactional write of the Spark sink to a Java broker and to ours, without a Spark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from sink_harness import ROWS, Query, bodies, finished, interrupted, wanted

if TYPE_CHECKING:
    from pathlib import Path

    from interop_world import World


@pytest.mark.parametrize("name", ["java", "ours"])
def test_transactional_rows_come_once_through_aborts_and_broken_commits(
    world: World, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = world.java if name == "java" else world.ours
    topic, servers = world.topic(f"SparkTx-{name}", side), side.namesrv
    query = Query(servers, topic, tmp_path, monkeypatch)
    query.writer.abort([query.task(0)], 0)
    lost = query.task(0)
    time.sleep(2.0)
    assert lost.rows == ROWS
    assert bodies(servers, topic) == []
    query.writer.commit([query.task(0)], 0)
    assert sorted(bodies(servers, topic)) == wanted((0, 0))
    for epoch, executed in ((1, False), (2, True)):
        seen = interrupted(servers, topic, tmp_path, monkeypatch, epoch, 11, executed)
        assert 11 <= seen < ROWS
        assert finished(servers, topic, tmp_path, monkeypatch, epoch) == ROWS - seen
        # Spark had not noted that it was committed.
        assert finished(servers, topic, tmp_path, monkeypatch, epoch) == 0
    # Rounds of checks come and go.
    time.sleep(8.0)
    assert sorted(bodies(servers, topic)) == wanted((0, 0), (1, 0), (2, 0))
