"""Tables that somebody removed while the log has messages: a start says which, and what to do."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play
from pop_harness import TOPIC
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

TABLES = ("topics", "subscriptionGroup", "consumerOffset")
SAYINGS = {
    "topics": "topics.json was lost: topics may be missing",
    "subscriptionGroup": "subscriptionGroup.json is missing, but the store has messages",
    "consumerOffset": "consumerOffset.json is missing, but the store has messages",
}


async def sent(it: Cluster) -> None:
    assert (await it.send(TOPIC)).code == 0
    await dispatched(it)


async def used(it: Cluster) -> None:
    await sent(it)
    await it.pull(TOPIC, 0, consumerGroup="g")
    fields = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0", "commitOffset": "1"}
    answer = await it.call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=fields))
    assert answer.code == 0


async def nothing(it: Cluster) -> None:
    del it


def said(caplog: pytest.LogCaptureFixture) -> set[str]:
    """Return the tables that were said to be missing."""
    return {table for table, text in SAYINGS.items() if text in caplog.text}


@pytest.mark.parametrize("gone", [(), *((table,) for table in TABLES), TABLES])
def test_table_that_was_removed_under_messages_is_said_at_the_start(
    tmp_path: Path, gone: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    play(tmp_path, used)
    for table in gone:
        for name in (f"{table}.json", f"{table}.json.bak"):
            (tmp_path / "broker-a" / "config" / name).unlink(missing_ok=True)
    caplog.clear()
    play(tmp_path, nothing)
    assert said(caplog) == set(gone)


def test_store_that_no_group_has_read_misses_no_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    play(tmp_path, nothing)
    play(tmp_path, sent)
    play(tmp_path, nothing)
    assert not said(caplog)


async def read_without_a_commit(it: Cluster) -> None:
    await sent(it)
    await it.pull(TOPIC, 0, consumerGroup="g")


@pytest.mark.parametrize("is_killed", [False, True])
def test_store_that_a_group_read_without_a_commit_misses_no_table(
    tmp_path: Path, is_killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stopped, killed = tmp_path / "stopped", tmp_path / "killed"

    async def read(it: Cluster) -> None:
        await read_without_a_commit(it)
        # What a kill at this moment leaves: nothing was saved at a stop or by a timer.
        shutil.copytree(stopped / "broker-a", killed / "broker-a")

    play(stopped, read)
    caplog.clear()
    play(killed if is_killed else stopped, nothing)
    assert "consumerOffset" not in said(caplog)
