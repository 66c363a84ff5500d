"""The table of routes, and the calls in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remoting_harness import ECHO, FAIL, Handlers
from roquet.base.errors import DiskFull, Refused, UsageError
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.connections.in_flight import InFlight
from roquet.remoting.router import Ports, Request, Route, Router
from roquet.service.lanes import LaneConfig, Lanes
from roquet.testing.clock import FakeClock
from roquet.testing.peer import FakePeer

if TYPE_CHECKING:
    from collections.abc import Coroutine


def test_explain_names_code_lane_and_handler() -> None:
    clock, handlers = FakeClock(), Handlers()
    lanes = Lanes([LaneConfig("work", 1, 1)], clock)
    default = Route((), handlers.soon, "work")
    main = Router(handlers.routes(), default, lanes, clock).explain()
    assert "     11 PULL_MESSAGE" in main
    assert "Handlers.slow" in main
    assert "every other" in main
    assert "GET_ALL_TOPIC_CONFIG" in main
    fast = Router(handlers.routes(), None, lanes, clock, Ports.FAST).explain()
    assert "GET_ALL_TOPIC_CONFIG" not in fast
    assert "PULL_MESSAGE" in fast


def test_wrong_tables_are_refused() -> None:
    clock, handlers = FakeClock(), Handlers()
    lanes = Lanes([LaneConfig("work", 1, 1)], clock)
    twice = [Route((ECHO,), handlers.echo, "work"), Route((FAIL, ECHO), handlers.fail, "work")]
    with pytest.raises(UsageError, match="SEND_MESSAGE is routed twice"):
        Router(twice, None, lanes, clock)
    with pytest.raises(UsageError, match="no lane"):
        Router([Route((ECHO,), handlers.echo, "play")], None, lanes, clock)


def test_a_plain_handler_that_makes_a_coroutine_is_an_error_that_says_how_to_mend_it() -> None:
    clock, handlers = FakeClock(), Handlers()
    lanes = Lanes([LaneConfig("work", 1, 1)], clock)
    made: list[Coroutine[object, object, Command]] = []

    def plain(request: Request) -> Coroutine[object, object, Command]:
        made.append(handlers.soon(request))
        return made[0]

    router = Router([Route((ECHO,), plain, "work")], None, lanes, clock)
    answers: list[Command] = []
    router.dispatch(Request(Command(ECHO), FakePeer(), 0, answers.append))
    made[0].close()
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR]
    assert "plain returns an awaitable; make it `async def`" in (answers[0].remark or "")


def test_numbers_wrap_and_skip_those_in_use() -> None:
    calls: InFlight[str] = InFlight(calls_max=3, first=2**31 - 2)
    assert calls.begin("a", 100) == 2**31 - 2
    assert calls.begin("b", 200) == 2**31 - 1
    assert calls.begin("c", 300) == 0
    assert calls.begin("d", 300) is None
    assert calls.end(2**31 - 1) == "b"
    assert calls.end(2**31 - 1) is None
    wrapped: InFlight[str] = InFlight(first=0)
    assert wrapped.begin("first", 1) == 0
    wrapped._next = 0
    assert wrapped.begin("second", 1) == 1


def test_expired_and_abandoned() -> None:
    calls: InFlight[str] = InFlight()
    for waiter, deadline_ms in (("a", 100), ("b", 200), ("c", 300)):
        calls.begin(waiter, deadline_ms)
    assert calls.expire(100) == []
    assert calls.expire(201) == ["a", "b"]
    assert calls.abandon() == ["c"]
    assert len(calls) == 0


def test_a_full_disk_is_answered_in_words_and_logged_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    lanes = Lanes([LaneConfig("work", 1, 1)], clock)

    def full(request: Request) -> Command:
        del request
        raise DiskFull("no room to write topics.json")

    router = Router([Route((ECHO,), full, "work")], None, lanes, clock)
    answers: list[Command] = []
    router.dispatch(Request(Command(ECHO), FakePeer(), 0, answers.append))
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR]
    assert answers[0].remark == "no room to write topics.json"
    assert "refused: no room to write topics.json" in caplog.text
    assert "Traceback" not in caplog.text


def test_refused_codes_that_nobody_knows_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def nobody(command: Command, address: str) -> bool:
        raise Refused(ResponseCode.NO_PERMISSION, f"{command.code} from {address}")

    clock, handlers = FakeClock(), Handlers()
    lanes = Lanes([LaneConfig("work", 1, 1)], clock)
    router = Router(handlers.routes(), None, lanes, clock, guard=nobody)
    answers: list[Command] = []
    for code in (*range(600_000, 600_500), ECHO, FAIL):
        router.dispatch(Request(Command(code), FakePeer(), 0, answers.append))
    assert {answer.code for answer in answers} == {ResponseCode.NO_PERMISSION}
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" of ")[0] for line in lines] == [
        "request 600000",
        f"request {int(ECHO)}",
        f"request {int(FAIL)}",
    ]
