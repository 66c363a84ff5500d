"""A stop during a registration, with a name server that takes its time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remoting_harness import on_loop, until
from roquet.base.clock import SystemClock
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.remoting.router import Request, Route, Router
from roquet.remoting.server import Server
from roquet.service.lanes import LaneConfig, Lanes
from roquet.testing.cluster import running_broker

if TYPE_CHECKING:
    from pathlib import Path

REGISTER, GOODBYE = RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER


@on_loop
async def test_the_goodbye_is_the_last_that_a_name_server_hears(tmp_path: Path) -> None:
    heard: list[int] = []
    answers = asyncio.Event()
    answers.set()

    async def answer(request: Request) -> Command:
        heard.append(request.command.code)
        if request.command.code == REGISTER:
            await answers.wait()
        return reply_to(request.command, ext={})

    clock = SystemClock()
    lanes = Lanes([LaneConfig("work", 8, 100)], clock)
    router = Router([Route((REGISTER, GOODBYE), answer, "work")], None, lanes, clock)
    server = Server(host="127.0.0.1", port=0, router=router, clock=clock)
    await server.start()
    try:
        async with running_broker(tmp_path, f"127.0.0.1:{server.port}") as broker:
            assert heard == [REGISTER]
            answers.clear()
            broker.metadata.topics.put(TopicConfig(name="orders"))
            await until(lambda: heard == [REGISTER, REGISTER], 60)
            # The next round would tell of this one, if there were a next round.
            broker.metadata.topics.put(TopicConfig(name="bills"))
        answers.set()
        assert heard == [REGISTER, REGISTER, GOODBYE]
    finally:
        answers.set()
        await server.stop()
        await lanes.stop()
