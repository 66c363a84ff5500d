"""What people look at messages with: filters of the live tail, packed bodies, delays, offsets."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import zlib
from typing import TYPE_CHECKING

from console_harness import World, a_console
from roquet.client import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from console_harness import Browser


def play(folder: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with a_console(folder) as world:
            await world.administrator.call("/topic/create", name="t", queues=1)
            await story(world)

    asyncio.run(whole())


def test_the_live_tail_takes_tags_and_sql92(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        wrong = await keeper.get("/api/tail", topic="t", sql="amount >")
        assert (wrong.status, "filter cannot be used" in wrong.text) == (400, True)
        reader, writer = await asyncio.open_connection("127.0.0.1", keeper.port)
        query = "topic=t&tag=a%20%7C%7C%20b&sql=n%20%3E%205"
        writer.write(
            f"GET /api/tail?{query} HTTP/1.1\r\nHost: localhost\r\n"
            f"Cookie: {keeper.cookie}\r\n\r\n".encode()
        )
        await asyncio.wait_for(reader.readuntil(b"event: ready"), 30)
        for body, tag, number in (
            ("other-tag", "c", 9),
            ("too-small", "a", 1),
            ("wanted-1", "a", 6),
            ("wanted-2", "b", 7),
        ):
            given = {"body": body, "tag": tag, "properties": f"n={number}"}
            assert (await keeper.call("/topic/publish", topic="t", **given)).status == 200
        seen = await asyncio.wait_for(reader.readuntil(b"wanted-2"), 30)
        writer.close()
        assert b"wanted-1" in seen
        assert b"other-tag" not in seen
        assert b"too-small" not in seen

    play(tmp_path, story)


async def _shown(who: Browser, number: int) -> dict[str, object]:
    """Return the body of the message at an offset as its page has it."""
    for _ in range(200):
        rows = (await who.get("/api/messages", topic="t")).json["rows"]
        found = [it["id"] for it in rows if it["offset"] == number]
        if found:
            page = await who.get("/message", topic="t", id=found[0])
            assert page.status == 200
            answer = await who.get("/api/message", topic="t", id=found[0])
            body: dict[str, object] = answer.json["body"]
            return body
        await asyncio.sleep(0.05)
    raise AssertionError("the message did not arrive")


def test_packed_bodies_are_unpacked_as_far_as_they_are_shown(tmp_path: Path) -> None:
    document = json.dumps({"order": 7}).encode()
    bodies = (
        gzip.compress(document),
        zlib.compress(document),
        gzip.compress(b"\0" * 50_000_000),
        b"\x1f\x8b\x08 not gzip",
        b"x is text",
    )

    async def story(world: World) -> None:
        async with (
            connect(f"rmq://{world.cluster.name_servers}") as mq,
            mq.producer() as producer,
        ):
            for body in bodies:
                await producer.send("t", body)
        keeper = world.administrator
        found = [await _shown(keeper, number) for number in range(len(bodies))]
        assert [it["packed"] for it in found] == ["gzip", "zlib", "gzip", "", ""]
        for it in found[:2]:
            assert json.loads(str(it["json"])) == {"order": 7}
        assert (found[2]["cut"], len(str(found[2]["text"]))) == (True, 16 * 1024)
        assert (found[3]["text"], found[4]["text"]) == (None, "x is text")

    play(tmp_path, story)


def test_a_message_is_published_with_a_delay_in_seconds(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        both = await keeper.call("/topic/publish", topic="t", body="x", delay=5, delay_level=1)
        assert (both.status, "delay level, or" in both.text) == (400, True)
        done = await keeper.call("/topic/publish", topic="t", body="later", keys="k", delay=3600)
        assert done.status == 200, done.text
        rows: list[dict[str, object]] = []
        for _ in range(200):
            query = {"topic": "rmq_sys_wheel_timer", "key": "k"}
            rows = (await keeper.get("/api/messages", **query)).json["rows"]
            if rows:
                break
            await asyncio.sleep(0.05)
        assert [it["preview"] for it in rows] == ["later"]
        assert (await keeper.get("/api/messages", topic="t")).json["rows"] == []

    play(tmp_path, story)


def test_single_offsets_are_changed_on_the_page_of_the_preview(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/group/create", name="g")
        for number in range(5):
            await keeper.call("/topic/publish", topic="t", body=f"m{number}")
        page = await keeper.get("/group/seek", group="g", topic="t", to="earliest")
        exact = re.findall(r'name="exact" value="([^"]+)"', page.text)
        assert exact == ["broker-a:0:0"]
        assert 'type="hidden" name="exact"' not in page.text
        done = await keeper.post("/group/seek", group="g", topic="t", exact="broker-a:0:3")
        assert done.status == 303, done.text
        (row,) = (await keeper.get("/api/group", name="g")).json["queues"]
        assert row["offset"] == 3

    play(tmp_path, story)
