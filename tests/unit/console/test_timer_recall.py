"""A timer message that waits, taken back on its page; and what cannot be, with the reason."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from console_harness import World, console_over
from roquet.base.clock import SystemClock
from roquet.client import connect
from roquet.console.roles import Role
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from console_harness import Browser

TIMERS = "rmq_sys_wheel_timer"


def play(folder: Path, story: Callable[[World], Awaitable[None]], recall: str = "true") -> None:
    async def whole() -> None:
        async with (
            cluster(folder, recallMessageEnable=recall, timerPrecisionMs="100") as world,
            console_over(world) as console,
        ):
            await console.administrator.call("/topic/create", name="later", queues=1)
            await story(console)

    asyncio.run(whole())


async def sent(world: World, key: str, delay: float, **more: Any) -> str:
    async with (
        connect(f"rmq://{world.cluster.name_servers}") as mq,
        mq.producer() as producer,
    ):
        made = await producer.send("later", key.encode(), keys=key, delay=delay, **more)
        return made.message_id


async def waiting(who: Browser, key: str, count: int) -> list[dict[str, Any]]:
    """Wait until a search finds so many messages: the index has them a moment later."""
    end_s = time.monotonic() + 20
    found: list[dict[str, Any]] = []
    while time.monotonic() < end_s:
        answer = await who.get("/api/messages", topic=TIMERS, key=key)
        assert answer.status == 200, answer.text
        found = answer.json["rows"]
        if len(found) == count:
            return found
    pytest.fail(f"{key}: {found}")


async def arrived(who: Browser, count: int) -> list[str]:
    end_s = time.monotonic() + 30
    found: list[str] = []
    while len(found) < count and time.monotonic() < end_s:
        answer = await who.get("/api/messages", topic="later")
        found = [it["preview"] for it in answer.json["rows"]]
    return found


def test_a_recalled_message_is_gone_from_its_page_and_never_comes(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper, operator = world.administrator, world.as_role(Role.OPERATOR, "olga")
        viewer = world.as_role(Role.VIEWER, "vera")
        await sent(world, "k1", 8)
        await sent(world, "k2", 8)
        unique = (await waiting(keeper, "k1", 1))[0]["unique"]
        (row,) = await waiting(keeper, "k1", 1)
        page = await operator.get("/message", topic=TIMERS, id=row["id"])
        assert "Recall it" in page.text
        assert "for later, until" in page.text
        seen = await viewer.get("/message", topic=TIMERS, id=row["id"])
        assert ("Recall it" in seen.text, "An operator can recall it" in seen.text) == (False, True)
        assert (await viewer.post("/waiting/recall", id=row["id"])).status == 403
        forged = operator.csrf
        operator.csrf = "guess"
        assert (await operator.post("/waiting/recall", id=row["id"])).status == 403
        operator.csrf = forged
        assert await waiting(keeper, "k1", 1), "refused: it still waits"
        done = await operator.post("/waiting/recall", id=row["id"])
        assert (done.status, done.headers["location"]) == (303, "/waiting"), done.text
        assert (
            f"{unique} is recalled: it will not come to later"
            in (await operator.get("/waiting")).text
        )
        gone = (await keeper.get("/api/messages", topic=TIMERS, key="k1")).json
        assert (gone["rows"], gone["recalled"]) == ([], 1)
        assert (
            "1 left out: recalled" in (await keeper.get("/messages", topic=TIMERS, key="k1")).text
        )
        page = await operator.get("/message", topic=TIMERS, id=row["id"])
        assert "It cannot be recalled: it was recalled." in page.text
        again = await operator.call("/waiting/recall", id=row["id"])
        assert (again.status, "it was recalled" in again.text) == (400, True)
        await waiting(keeper, "k2", 1)
        assert await arrived(keeper, 1) == ["k2"]
        await SystemClock().sleep(0.5)
        assert await arrived(keeper, 1) == ["k2"], "the recalled one stays away"
        rows = (await keeper.get("/api/audit", q="/waiting/recall")).json["rows"]
        outcomes = [(it["who"], it["outcome"].partition(":")[0]) for it in rows]
        assert ("olga", "done") in outcomes
        assert ("vera", "refused") in outcomes

    play(tmp_path, story)


def test_what_cannot_be_recalled_says_why(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await sent(world, "soon", 1)
        (row,) = await waiting(keeper, "soon", 1)
        assert await arrived(keeper, 1) == ["soon"]
        late = await keeper.call("/waiting/recall", id=row["id"])
        assert (late.status, "was delivered then" in late.text) == (400, True), late.text
        (there,) = (await keeper.get("/api/messages", topic="later")).json["rows"]
        other = await keeper.call("/waiting/recall", id=there["id"])
        assert (other.status, "no timer message: it lies in later" in other.text) == (400, True)
        assert (await keeper.get("/api/message", topic="later", id=there["id"])).json[
            "timer"
        ] is None
        unknown = await keeper.call("/waiting/recall", id="0" * 32)
        assert unknown.status == 404, unknown.text

    play(tmp_path, story)


def test_a_broker_that_takes_nothing_back_is_said_with_the_setting(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await sent(world, "k1", 600)
        (row,) = await waiting(keeper, "k1", 1)
        page = await keeper.get("/message", topic=TIMERS, id=row["id"])
        assert "Recall it" not in page.text
        assert "takes nothing back: set recallMessageEnable to true on its page" in page.text
        refused = await keeper.call("/waiting/recall", id=row["id"])
        assert (refused.status, "recallMessageEnable" in refused.text) == (400, True)
        address = world.cluster.address
        await keeper.call("/broker/set", address=address, key="recallMessageEnable", value="true")
        done = await keeper.call("/waiting/recall", id=row["id"])
        assert done.status == 200, done.text
        assert done.json["id"] == row["unique"]

    play(tmp_path, story, recall="false")
