"""A topic is deleted on one broker alone: by the admin API, the console and the command line."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import pytest

import roquet
from cli_harness import roquet as shell
from console_harness import console_over
from roquet.base.errors import NotFound, Refused
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from console_harness import Browser
    from roquet.admin import Admin


async def wrong_places(admin: Admin) -> None:
    with pytest.raises(NotFound, match="no broker nowhere"):
        await admin.topics.delete_on("orders", "nowhere")
    with pytest.raises(Refused, match="no topic nothing on broker-b"):
        await admin.topics.delete_on("nothing", "broker-b")


async def closed_is_shown(mq: roquet.MQ, keeper: Browser) -> None:
    """A topic that nobody may read or write on a broker is there all the same, and is shown."""
    admin = mq.admin()
    async with mq.producer() as producer:
        for queue in await producer.queues("kept"):
            await producer.send("kept", b"before", queue=queue)
    there = await admin.topics.get("kept")
    await admin.topics.put(dataclasses.replace(there["broker-b"], perm=0), brokers=["broker-b"])
    bounds = await admin.topics.offsets("kept")
    assert {queue.broker_name for queue in bounds} == {"broker-a", "broker-b"}
    assert sum(at.max_offset - at.min_offset for at in bounds.values()) == 4
    page = await keeper.get("/topic", name="kept")
    assert page.status == 200
    assert "broker-b" in page.text


def test_topic_deleted_on_one_broker_is_served_by_the_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            asyncio.timeout(90),
            cluster(tmp_path, "broker-a", "broker-b") as it,
            console_over(it) as world,
            roquet.connect(f"rmq://{it.name_servers}") as mq,
        ):
            admin, keeper = mq.admin(), world.administrator
            for name in ("orders", "paid", "kept"):
                await admin.topics.create(name, 2)
            async with mq.producer() as producer:
                for queue in await producer.queues("orders"):
                    await producer.send("orders", b"before", queue=queue)
                    await producer.send("paid", b"before")

            await wrong_places(admin)
            await closed_is_shown(mq, keeper)
            typed = {"name": "orders", "confirm": "orders"}
            page = (await keeper.get("/topic", name="orders")).text
            assert '<option value="broker-b">on broker-b alone</option>' in page
            done = await keeper.call("/topic/delete", **typed, broker="broker-b")
            assert done.status == 200, done.text
            assert done.json["done"] == "topic orders deleted on broker-b"
            assert (await keeper.call("/topic/delete", **typed, broker="broker-b")).status == 404

            # What is asked of the topic is asked of the broker that has it.
            assert (await admin.topics.get("orders")).keys() == {"broker-a"}
            bounds = await admin.topics.offsets("orders")
            assert {queue.broker_name for queue in bounds} == {"broker-a"}
            assert sum(at.max_offset - at.min_offset for at in bounds.values()) == 2
            assert (await keeper.get("/topic", name="orders")).status == 200
            async with roquet.connect(f"rmq://{it.name_servers}") as later:
                async with later.producer() as producer:
                    places = [await producer.send("orders", b"after") for _ in range(8)]
                assert {place.queue.broker_name for place in places} == {"broker-a"}
                async with later.consumer("all", "orders", start="earliest") as consumer:
                    got = [await consumer.receive() for _ in range(10)]
            assert sorted(one.body for one in got if one) == [b"after"] * 8 + [b"before"] * 2

            text = await shell_of(it.name_servers, "topic", "rm", "paid", "--broker", "broker-a")
            assert text.startswith("paid: deleted on broker-a, with ")
            assert (await admin.topics.get("paid")).keys() == {"broker-b"}
            # The last broker's is the topic's end, and it can be made again everywhere.
            await admin.topics.delete_on("paid", "broker-b")
            assert (await admin.topics.presence("paid")).route is None
            assert (await admin.topics.create("paid", 1)).keys() == {"broker-a", "broker-b"}
            assert (await admin.topics.create("orders", 2, brokers=["broker-b"])).keys() == {
                "broker-b"
            }
            assert {queue.broker_name for queue in await admin.topics.offsets("orders")} == {
                "broker-a",
                "broker-b",
            }

    async def shell_of(name_servers: str, *words: str) -> str:
        done = await asyncio.to_thread(shell, tmp_path, *words, "-y", "-n", name_servers)
        assert done.returncode == 0, done.stderr
        return done.stdout

    asyncio.run(story())
