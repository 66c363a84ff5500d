"""Our web console over the Java name server and broker: every page, and the main actions."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING

import pytest

from console_harness import Browser
from interop_world import registered, until
from roquet.base.clock import SystemClock
from roquet.client import connect
from roquet.console import table
from roquet.console.app import build
from roquet.console.config import ConsoleConfig
from roquet.console.roles import Role
from roquet.testing.java import BrokerPlan, free_port, java_broker, java_name_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.java


@pytest.fixture
def java_cluster(jars: Path, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Addresses of a Java name server and of a Java broker with it."""
    chance = random.Random(str(tmp_path))
    namesrv = f"127.0.0.1:{free_port(chance)}"
    server = java_name_server(jars, tmp_path / "n", int(namesrv.rpartition(":")[2])).start()
    # Without its timer wheel the Java broker deletes no topic: it looks for its counts (5.5.0).
    wheel = {"timerWheelEnable": "true"}
    plan = BrokerPlan("java", free_port(chance), namesrv, tmp_path / "store", wheel)
    broker = java_broker(jars, tmp_path / "b", plan)
    try:
        broker.start()
        # It says that it has started before the name server knows it.
        until("the registration", partial(registered, namesrv, "java"))
        yield namesrv, plan.address
    finally:
        broker.kill()
        server.kill()


def test_the_console_works_with_a_java_cluster(java_cluster: tuple[str, str]) -> None:
    namesrv, address = java_cluster
    asyncio.run(_story(namesrv, address))


async def _story(namesrv: str, address: str) -> None:
    clock = SystemClock()
    settings = ConsoleConfig(port=0, cluster=namesrv)
    console = build(settings, connect(f"rmq://{namesrv}"), clock, lambda _: None)
    async with console.app:
        now_s = clock.steady_ms() / 1000
        key = console.sessions.begin("ana", Role.ADMINISTRATOR, now_s)
        session = console.sessions.find(key, now_s)
        assert session is not None
        who = Browser(console.server.port, cookie=f"roquet_console={key}", csrf=session.csrf)
        await _actions(who, address)
        await _pages(who, address)


async def _actions(who: Browser, address: str) -> None:
    for path, given in (
        ("/topic/create", {"name": "t", "queues": 2, "type": "NORMAL"}),
        ("/group/create", {"name": "g", "retries": 3}),
        ("/topic/publish", {"topic": "t", "body": '{"a": 1}', "keys": "k", "tag": "x"}),
        ("/topic/alter", {"name": "t", "queues": 3}),
        ("/group/alter", {"name": "g", "retries": 5}),
        ("/broker/set", {"address": address, "key": "waitTimeMillsInPullQueue", "value": "4000"}),
        ("/broker/drain", {"name": "java"}),
        ("/broker/undrain", {"name": "java"}),
    ):
        answer = await who.call(path, **given)
        assert answer.status == 200, (path, answer.text)
    seen = await who.get("/api/group/seek", group="g", topic="t", to="earliest")
    assert seen.status == 200, seen.text
    moved = await who.call("/group/seek", group="g", topic="t", exact=seen.json["exact"])
    assert moved.status == 200, moved.text
    end_s = SystemClock().steady_ms() + 20_000
    rows: list[dict[str, str]] = []
    while not rows and SystemClock().steady_ms() < end_s:
        rows = (await who.get("/api/messages", topic="t", key="k")).json["rows"]
    again = await who.call("/message/resend", topic="t", id=rows[0]["id"])
    assert again.status == 200, again.text
    shown = (await who.get("/api/broker", address=address)).json
    values = {it["name"]: it["value"] for it in shown["settings"]}
    assert values["waitTimeMillsInPullQueue"] == "4000"


async def _pages(who: Browser, address: str) -> None:
    (row, *_) = (await who.get("/api/messages", topic="t", key="k")).json["rows"]
    given = {
        "/topic": {"name": "t"},
        "/publish": {"topic": "t"},
        "/group": {"name": "g"},
        "/group/seek": {"group": "g", "topic": "t", "to": "latest"},
        "/message": {"topic": "t", "id": row["id"]},
        "/broker": {"address": address, "all": "true"},
    }
    for view in table.VIEWS:
        if view.path in ("/group/member", "/dead/group"):
            continue
        page = await who.get(view.path, **given.get(view.path, {}))
        assert page.status == 200, (view.path, page.text)
        assert "Incomplete" not in page.text, view.path
    gone = await who.call("/topic/delete", name="t", confirm="t")
    assert gone.status == 200, gone.text
