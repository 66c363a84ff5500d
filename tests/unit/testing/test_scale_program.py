"""The program of scale: small runs of each kind, with the shape of what it says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tools.scale.__main__ import WORKERS, connections
from tools.scale.churn import churn
from tools.scale.topics import REGISTRATIONS, STARTS, topics

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("pulls", "tls"), [(8, False), (1, True)])
def test_every_pull_that_waits_is_answered(tmp_path: Path, pulls: int, tls: bool) -> None:
    found = asyncio.run(connections(40, tmp_path, pulls, tls=tls))
    assert found["pulls_answered"] == (40 + WORKERS) * pulls
    assert (found["connections"], found["tls"]) == (40, tls)


def test_clients_that_come_and_go_leave_nothing(tmp_path: Path) -> None:
    found = asyncio.run(churn(2, 30, tmp_path))
    assert (found["connections"], found["failures"]) == (60, 0)
    # The line of the sends beside may be on its way out.
    assert found["sockets_after"] <= found["sockets_before"] + 1


def test_topics_are_there_after_each_start_and_registered_each_time(tmp_path: Path) -> None:
    found = asyncio.run(topics(30, 2, tmp_path))
    assert (found["queues"], found["messages"]) == (240, 480)
    assert len(found["warm_start_s"]) == STARTS
    assert len(found["registration_s"]) == REGISTRATIONS
