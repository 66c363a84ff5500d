"""No request costs the others more than its share: bodies are bounded, long work is in slices.

What is asserted is that the loop has turns while the longest request of a kind is carried out, not
how long that takes; `python -m tools.budget` measures the lag.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from tools.worst_bodies import WORST, heartbeat

from broker_harness import play
from roquet.broker.body_limits import BODY_LIMITS, NO_BODY, body_max
from roquet.model.topic import TopicConfig
from roquet.namesrv.checks import BODY_LIMITS as NAME_SERVER_LIMITS
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.codec import FRAME_SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from roquet.testing.cluster import Cluster

QUEUES = 10_000


@contextlib.asynccontextmanager
async def turns() -> AsyncIterator[list[int]]:
    """Count the turns of the loop while the block runs."""
    count = [0]

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)
            count[0] += 1

    spinning = asyncio.ensure_future(spin())
    try:
        yield count
    finally:
        spinning.cancel()


def test_body_limits_longer_bodies_are_refused_before_they_are_read(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        unlisted = (RequestCode.PULL_MESSAGE, RequestCode.CONSUMER_SEND_MSG_BACK)
        for code in (*BODY_LIMITS, *unlisted, RequestCode.GET_CONSUMER_LIST_BY_GROUP):
            most = body_max(code)
            if most >= FRAME_SIZE_MAX:
                continue
            answer = await it.call(Command(code, ext={}, body=b" " * (most + 1)))
            assert (answer.code, answer.remark) == (
                ResponseCode.INVALID_PARAMETER,
                f"request {int(code)} has a body of {most + 1} bytes: it may have {most}",
            )
            answer = await it.call(Command(code, ext={}, body=b" " * most))
            assert "it may have" not in (answer.remark or "")
        unknown = await it.call(Command(9_999, body=bytes(NO_BODY + 1)))
        assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        name_server = f"127.0.0.1:{it.name_server.server.port}"
        for number in (*NAME_SERVER_LIMITS, int(RequestCode.GET_ROUTEINFO_BY_TOPIC)):
            most = NAME_SERVER_LIMITS.get(number, (NO_BODY, ""))[0]
            if most < FRAME_SIZE_MAX:
                answer = await it.call(Command(number, body=bytes(most + 1)), name_server)
                assert answer.code == ResponseCode.INVALID_PARAMETER

    play(tmp_path, tell)


@pytest.mark.parametrize("name", WORST)
def test_worst_body_of_a_code_at_its_limit_leaves_the_loop_to_others(
    tmp_path: Path, name: str
) -> None:
    code, body = WORST[name]()
    assert len(body) <= body_max(code)

    async def tell(it: Cluster) -> None:
        async with turns() as count:
            await it.call(Command(code, ext={}, body=body))
        assert count[0] > 50

    play(tmp_path, tell)


@pytest.mark.parametrize(
    ("code", "ext"),
    [
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "wide"}),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", "topic": "wide"}),
        (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "wide", "group": "g"}),
        (
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            {"topic": "wide", "group": "g", "timestamp": "-1", "isForce": "true"},
        ),
    ],
)
def test_request_over_all_queues_of_a_wide_topic_is_answered_in_slices(
    tmp_path: Path, code: RequestCode, ext: dict[str, str]
) -> None:
    async def tell(it: Cluster) -> None:
        tables = it.broker.metadata
        tables.topics.put(TopicConfig(name="wide", read_queues=QUEUES, write_queues=QUEUES))
        tables.groups.find("g")
        tables.offsets.commit("g", "wide", 0, 0)
        async with turns() as count:
            answer = await it.call(Command(code, ext=ext))
        assert answer.code == 0
        assert answer.body.count(b'"wide"') >= QUEUES
        assert count[0] >= QUEUES // 100

    play(tmp_path, tell)


def test_heartbeat_of_two_hundred_groups_is_taken(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        body = heartbeat(200, topics=5)
        answer = await it.call(Command(RequestCode.HEART_BEAT, ext={}, body=body))
        assert answer.code == 0
        ids = await it.call(
            Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext={"consumerGroup": "g199"})
        )
        assert b"one" in ids.body

    play(tmp_path, tell)
