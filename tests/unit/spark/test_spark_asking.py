"""Functions of administration that are run without a loop: rounds of questions and answers."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from roquet.admin import Admin
from roquet.base.errors import Refused, Unreachable
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.spark.cluster import asking
from roquet.spark.cluster.asking import Questions, first_of, run, run_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

NAME_SERVERS = ("n1:1", "n2:1")
BROKER = ("master:1", "slave:1")


class Answering:
    """Answers by `answer`, and notes who was asked, round by round."""

    def __init__(self, answer: Callable[[Command], Command]) -> None:
        self._answer = answer
        self.rounds: list[list[tuple[tuple[str, ...], int]]] = []

    def call(self, addresses: Iterable[str], command: Command) -> Command:
        return self.call_all([(tuple(addresses), command)])[0]

    def call_all(self, wanted: Sequence[tuple[Sequence[str], Command]]) -> list[Command]:
        self.rounds.append([(tuple(addresses), command.code) for addresses, command in wanted])
        return [self._answer(command) for _, command in wanted]


def runtime(key: str) -> Command:
    return Command(ResponseCode.SUCCESS, body=b'{"table":{"who":"%s"}}' % key.encode())


async def twice(admin: Admin, address: str) -> tuple[str, str]:
    """Ask two things, one after the other."""
    first = await admin.brokers.runtime(address)
    second = await admin.brokers.runtime(address)
    return first["who"], second["who"]


async def nothing() -> str:
    return "nothing"


def test_slaves_may_answer_for_their_broker_and_for_no_other() -> None:
    answering = Answering(lambda _: runtime("x"))
    admin = Admin(Questions(NAME_SERVERS, BROKER))
    assert run(answering, admin.brokers.runtime("master:1")) == {"who": "x"}
    assert run(answering, admin.brokers.runtime("other:1")) == {"who": "x"}
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    assert answering.rounds == [[(BROKER, code)], [(("other:1",), code)]]


def test_name_servers_are_asked_in_turn() -> None:
    answering = Answering(lambda _: Command(ResponseCode.TOPIC_NOT_EXIST, remark="no"))
    admin = Admin(Questions(NAME_SERVERS))
    found = run(answering, admin.topics.presence("t"))
    assert (found.route, found.departed, found.remark) == (None, None, "no")
    with pytest.raises(Refused, match="no"):
        run(answering, admin.topics.queues("t"))
    assert {addresses for (asked,) in answering.rounds for addresses, _ in [asked]} == {
        NAME_SERVERS
    }


@pytest.mark.parametrize(("together", "rounds"), [(10_000, [3, 3]), (2, [2, 2, 1, 1])])
def test_many_are_asked_at_once_and_return_in_their_order(
    together: int, rounds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "TOGETHER_MAX", together)
    count = iter(range(100))
    answering = Answering(lambda _: runtime(str(next(count))))
    admin = Admin(Questions(NAME_SERVERS))
    found = run_all(answering, (twice(admin, f"b{number}:1") for number in range(3)))
    assert [len(asked) for asked in answering.rounds] == rounds
    if together > 3:
        assert found == [("0", "3"), ("1", "4"), ("2", "5")]
    else:
        assert found == [("0", "2"), ("1", "3"), ("4", "5")]


def test_one_that_asks_nothing_returns_beside_others() -> None:
    answering = Answering(lambda _: runtime("x"))
    assert run(answering, nothing()) == "nothing"
    assert answering.rounds == []
    assert run_all(answering, [nothing(), nothing()]) == ["nothing", "nothing"]
    assert run_all(answering, []) == []


def test_the_first_refusal_ends_all() -> None:
    def answer(command: Command) -> Command:
        if command.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            return runtime("x")
        return Command(ResponseCode.NO_PERMISSION, remark="not you", ext={"why": "rights"})

    admin = Admin(Questions(NAME_SERVERS))
    work = [
        admin.brokers.runtime("b:1"),
        admin.brokers.config("b:1"),
        admin.brokers.runtime("b:1"),
    ]
    with pytest.raises(Refused, match="not you") as caught:
        run_all(Answering(answer), work)
    assert caught.value.fields == {"why": "rights"}
    assert {inspect.getcoroutinestate(it) for it in work} == {inspect.CORO_CLOSED}, (
        "none is left under way"
    )


def test_a_broker_without_an_address_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="no address"):
        first_of(())
