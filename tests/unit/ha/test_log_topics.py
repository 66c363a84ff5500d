"""Topics travel with the log: what a slave has messages of can be read after a fail-over."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import pytest

from pair_harness import PairWorld, caught_up, pair_world, until
from roquet.broker.replication.log_topics import LOOK_S
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.store.records import read_records
from roquet.testing.cluster import pull_command, send_command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.broker.app import Broker

NEVER = {"slaveSyncInterval": "3600000"}


async def send(world: PairWorld, to: Broker, topic: str, queue_id: int) -> None:
    command = send_command(topic, b"%d" % queue_id, queue_id)
    assert (await world.client.call(to.identity.address, command, 20.0)).code == 0


async def promote(world: PairWorld, folder: str = "slave") -> None:
    (world.folder / "master").rename(world.folder / "lost")
    (world.folder / folder).rename(world.folder / "master")


@pytest.mark.parametrize("saved", [True, False], ids=["stopped", "killed before it was saved"])
def test_a_topic_made_just_before_a_fail_over_is_there(tmp_path: Path, saved: bool) -> None:
    async def run() -> None:
        async with pair_world(tmp_path) as world:
            async with world.master() as master, world.slave(of=master, **NEVER) as slave:
                for queue_id in (0, 3, 1):
                    await send(world, master, "Late", queue_id)
                await send(world, master, "%RETRY%late", 0)
                await caught_up(master, slave)
                known = slave.metadata.topics.get
                await until(lambda: known("%RETRY%late"), "the topics are made")
                late = known("Late")
                assert late is not None
                assert (late.read_queues, late.write_queues, late.perm) == (4, 4, 6)
            if not saved:
                for path in (tmp_path / "slave" / "config").glob("topics.json*"):
                    path.unlink()
            await promote(world)
            async with world.master() as master:
                pulled = await world.client.call(
                    master.identity.address, pull_command("Late", 0, queueId="3")
                )
                assert pulled.code == ResponseCode.SUCCESS, pulled.remark
                assert [it.body for it in read_records(pulled.body)] == [b"3"]
                saved_topics = json.loads((tmp_path / "master/config/topics.json").read_text())
                assert "Late" in saved_topics["topicConfigTable"]
                assert not (tmp_path / "master" / "config" / "replica.json").exists()

    asyncio.run(run())


def test_the_next_copy_of_the_table_corrects_a_topic_and_deleted_ones_stay_deleted(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with pair_world(tmp_path) as world:
            async with world.master() as master, world.slave() as slave:
                known = slave.metadata.topics.get
                await send(world, master, "Gone", 0)
                await send(world, master, "Kept", 0)
                await until(lambda: known("Gone") and known("Kept"), "both are there")
                await until(
                    lambda: known("Kept") == master.metadata.topics.get("Kept"), "as the master's"
                )
                gone = await world.ask(master, RequestCode.DELETE_TOPIC_IN_BROKER, topic="Gone")
                assert gone.code == ResponseCode.SUCCESS
                await until(lambda: known("Gone") is None, "the slave forgets it")
                note = tmp_path / "slave" / "config" / "replica.json"
                await until(
                    lambda: json.loads(note.read_text())["coveredByTables"] > 0,
                    "the table covers the log",
                )
            await promote(world)
            async with world.master() as master:
                assert master.metadata.topics.get("Gone") is None
                kept = master.metadata.topics.get("Kept")
                assert kept is not None
                assert kept.read_queues == 4

    asyncio.run(run())


def test_a_copy_that_grows_wakes_the_loop_by_the_clock_and_not_by_the_message(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master() as master,
            world.slave(of=master, **NEVER) as slave,
        ):
            known = slave.metadata.topics.get
            heard: list[object] = []
            slave.store.arrivals.on_all(heard.append, lambda: False)
            begun = time.monotonic()
            for number in range(200):
                await send(world, master, "Busy", number % 4)
            await send(world, master, "Last", 0)
            await until(lambda: known("Last") and known("Busy"), "the topics are made")
            # News of a flush bring those of the queues along.
            looks = (time.monotonic() - begun) / LOOK_S
            assert 1 <= len(heard) <= 2 * looks + 5
            assert len(heard) < 200
            await send(world, master, "BehindAPause", 0)
            await until(lambda: known("BehindAPause"), "its topic is made")

    asyncio.run(run())
