"""The master's tables: why a server is not there, who is dialled, what operators change."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

from roquet.relay.master import events as e
from roquet.relay.master.machine import DIALS_A_TICK, WAIT_ADD_A_TICK, Machine, Periods
from roquet.relay.servers import Entry, ServerList

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

T = TypeVar("T")


def listed(ids: Iterable[int], host: str = "h") -> ServerList:
    """Return a list of servers with these ids."""
    return ServerList(1, {number: Entry(number, 1, host, 1) for number in ids})


def of(kind: type[T], effects: Sequence[e.Effect]) -> list[T]:
    """Return the effects of one kind."""
    return [one for one in effects if isinstance(one, kind)]


def dials(machine: Machine, now_ms: int, *inputs: e.Input) -> list[e.Dial]:
    """Take one tick and return the connects that it begins."""
    return of(e.Dial, machine.tick(now_ms, inputs))


def registered(machine: Machine, now_ms: int, *places: tuple[int, int]) -> None:
    """Have servers, (link, id) each, dial the relay and register."""
    machine.tick(now_ms, [e.CameIn(link, number) for link, number in places])
    machine.tick(now_ms, [e.Answered(link, 5) for link, _ in places])
    assert {number for _, number in places} <= machine.present.keys()


def test_relay_keeps_why_each_server_is_not_there_until_it_registers_or_leaves_the_list() -> None:
    machine = Machine(Periods(reconnect_ms=100))
    machine.refresh(listed([1, 2]))
    first, second = dials(machine, 0)
    machine.tick(1, [e.ConnectFailed(first.attempt, "no"), e.Connected(second.attempt, 12)])
    machine.tick(2, [e.Answered(12, 5)])
    assert machine.failures == {1: "no"}
    (again,) = dials(machine, 101)
    machine.tick(102, [e.Connected(again.attempt, 11)])
    assert machine.failures == {1: "no"}
    machine.tick(103, [e.Answered(11, 5)])
    assert machine.failures == {}
    machine.tick(104, [e.Closed(12, "cut")])
    assert machine.failures == {2: "cut"}
    machine.refresh(listed([1, 2], host="moved"))
    assert machine.failures == {1: "its address or type has changed", 2: "cut"}
    machine.refresh(listed([]))
    assert machine.failures == {}


def test_relay_registered_server_that_leaves_the_list_leaves_no_failure() -> None:
    machine = Machine(Periods())
    machine.refresh(listed([1], host=""))
    registered(machine, 0, (11, 1))
    machine.refresh(listed([]))
    assert (machine.failures, machine.present, machine.by_state()) == ({}, {}, {})


def test_relay_second_link_that_fails_is_no_failure_of_its_server() -> None:
    machine = Machine(Periods())
    machine.refresh(listed([1], host=""))
    registered(machine, 0, (11, 1))
    machine.tick(1, [e.CameIn(12, 1)])
    effects = machine.tick(2, [e.Closed(12, "reset")])
    assert of(e.CloseLink, effects) == [e.CloseLink(12, "reset")]
    assert (machine.failures, machine.present[1].link) == ({}, 11)
    # Its configuration stays: it may dial again.
    assert of(e.SendRegister, machine.tick(3, [e.CameIn(13, 1)])) == [e.SendRegister(13, 1, 1)]


def test_relay_failure_of_the_configuration_stays_until_its_server_answers() -> None:
    machine = Machine(Periods())
    found = [(machine.config_failure, machine.version, machine.config_source)]
    machine.load_failed("refused")
    found.append((machine.config_failure, machine.version, machine.config_source))
    machine.refresh(listed([1]), "copy")
    found.append((machine.config_failure, machine.version, machine.config_source))
    machine.refresh(listed([1]))
    found.append((machine.config_failure, machine.version, machine.config_source))
    assert found == [
        ("", None, ""),
        ("refused", None, ""),
        ("refused", 1, "copy"),
        ("", 1, "server"),
    ]


def test_relay_without_a_list_asks_at_the_latest_after_the_usual_time() -> None:
    machine = Machine(Periods(load_config_ms=1500))
    now_ms = 0
    assert of(e.Fetch, machine.tick(now_ms, []))
    for pause_ms in (500, 1000, 1500, 1500):
        machine.load_failed("refused")
        assert not of(e.Fetch, machine.tick(now_ms, []))
        assert not of(e.Fetch, machine.tick(now_ms + pause_ms - 1, []))
        now_ms += pause_ms
        assert of(e.Fetch, machine.tick(now_ms, []))


def test_relay_with_a_list_asks_at_the_usual_time_after_a_failure() -> None:
    machine = Machine(Periods(load_config_ms=5000))
    machine.refresh(listed([1], host=""))
    assert of(e.Fetch, machine.tick(0, []))
    machine.load_failed("refused")
    assert not of(e.Fetch, machine.tick(4999, []))
    assert of(e.Fetch, machine.tick(5000, []))


def test_relay_gives_a_server_to_a_worker_by_its_id_and_tells_it_of_the_others() -> None:
    machine = Machine(Periods(workers=3))
    machine.refresh(listed(range(1, 5), host=""))
    machine.tick(0, [e.CameIn(10 + number, number) for number in range(1, 5)])
    effects = machine.tick(1, [e.Answered(10 + number, number) for number in range(1, 5)])
    notices = of(e.RegisterNotice, effects)
    assert [(one.worker, one.link, one.server.server_id) for one in notices] == [
        (1, 14, 4),
        (0, 13, 3),
        (2, 12, 2),
        (1, 11, 1),
    ]
    assert [[*one.others] for one in notices] == [[], [4], [4, 3], [4, 3, 2]]
    assert {number: one.worker for number, one in machine.present.items()} == {
        4: 1,
        3: 0,
        2: 2,
        1: 1,
    }


def test_relay_older_link_of_a_server_that_ends_changes_nothing_and_the_newer_one_does() -> None:
    machine = Machine(Periods())
    machine.refresh(listed([1], host=""))
    registered(machine, 0, (11, 1))
    machine.tick(1, [e.CameIn(12, 1)])
    effects = machine.tick(2, [e.Answered(12, 7)])
    assert e.CloseLink(11, "a newer link has taken its place") in effects
    assert of(e.RegisterNotice, effects)[0].others == {}
    assert machine.tick(3, [e.Closed(11, "closed")]) == []
    assert machine.present[1].link == 12
    assert e.GoneNotice(1, 12, "cut") in machine.tick(4, [e.Closed(12, "cut")])
    # It dials the relay: nobody waits to dial it.
    assert (machine.by_state(), machine.waiting()["wait_reconnect"]) == ({"awaited": 1}, 0)


def test_relay_link_that_ends_before_it_is_registered_fails_for_its_first_reason() -> None:
    machine = Machine(Periods())
    machine.refresh(listed([1, 2], host=""))
    machine.tick(0, [e.CameIn(11, 1), e.CameIn(12, 2)])
    # Also with an answer before it.
    ends: list[e.Input] = [e.Answered(11, 5), e.Closed(11, "reset"), e.Closed(11, "late")]
    effects = machine.tick(1, ends)
    assert of(e.CloseLink, effects) == [e.CloseLink(11, "reset")]
    assert (machine.failures, machine.present) == ({1: "reset"}, {})
    assert machine.by_state() == {"forgotten": 1, "registering": 1}


def test_relay_connect_that_is_through_is_closed_not_given_up_when_it_is_wanted_anew() -> None:
    machine = Machine(Periods())
    machine.refresh(listed([1, 2]))
    first, second = dials(machine, 0)
    asked: list[bool] = []
    again = [e.Asked("reconnect", number, asked.append) for number in (1, 2)]
    effects = machine.tick(1, [e.Connected(first.attempt, 11), *again])
    assert of(e.CancelDial, effects) == [e.CancelDial(second.attempt)]
    assert of(e.CloseLink, effects) == [e.CloseLink(11, "an operator wants it connected anew")]
    assert [one.id for one in of(e.Dial, effects)] == [1, 2]
    assert asked == [True, True]
    assert machine.waiting()["futures"] == 2


def test_relay_server_that_came_or_failed_while_it_waits_to_be_dialled_is_not_dialled() -> None:
    machine = Machine(Periods())
    last = 3 * DIALS_A_TICK + 3
    machine.refresh(listed(range(1, last + 1)))
    begun = dials(machine, 0)
    begun += dials(machine, 1, e.CameIn(900, last), e.CameIn(901, last - 1))
    begun += dials(machine, 2, e.Answered(900, 5), e.Closed(901, "reset"))
    assert len(begun) == 3 * DIALS_A_TICK
    assert [one.id for one in dials(machine, 3)] == [last - 2]
    assert machine.waiting()["wait_dial"] == 0
    assert (machine.state(last), machine.state(last - 1)) == ("registered", "forgotten")


def test_relay_names_each_stage_of_a_server() -> None:
    machine = Machine(Periods())
    machine.refresh(listed(range(1, WAIT_ADD_A_TICK + 2), host=""))
    assert machine.state(1) == "awaited"
    machine.tick(0, [e.CameIn(100 + one, one) for one in range(1, WAIT_ADD_A_TICK + 2)])
    assert machine.by_state() == {"registering": WAIT_ADD_A_TICK, "connected": 1}
    assert machine.stages().connected == {WAIT_ADD_A_TICK + 1}
    machine.tick(1, [e.Answered(101, 5), e.Closed(102, "reset")])
    machine.tick(2, [e.Asked("drain", 1, lambda _: None)])
    assert [machine.state(one) for one in (1, 2, 3, 999)] == [
        "draining",
        "forgotten",
        "registering",
        "forgotten",
    ]


@pytest.mark.parametrize("what", ["drain", "undrain"])
def test_relay_drains_only_a_registered_server(what: str) -> None:
    machine = Machine(Periods())
    machine.refresh(listed([1], host=""))
    asked: list[bool] = []
    machine.tick(0, [])
    assert machine.tick(1, [e.Asked(what, 1, asked.append)]) == []
    assert asked == [False]


def test_relay_drain_is_told_when_it_changes_and_ends_with_the_link() -> None:
    machine = Machine(Periods())
    machine.refresh(listed([1], host=""))
    registered(machine, 0, (11, 1))
    told: list[list[e.Drain]] = []
    asked: list[bool] = []
    for what in ("undrain", "drain", "drain", "undrain", "drain"):
        effects = machine.tick(1, [e.Asked(what, 1, asked.append)])
        told.append(of(e.Drain, effects))
        assert len(of(e.Say, effects)) == len(told[-1])
    assert told == [[], [e.Drain(1, True)], [], [e.Drain(1, False)], [e.Drain(1, True)]]
    assert asked == [True] * 5
    assert machine.state(1) == "draining"
    registered(machine, 2, (12, 1))
    assert machine.state(1) == "registered"


def test_relay_reload_by_an_operator_waits_for_the_question_under_way() -> None:
    machine = Machine(Periods(load_config_ms=1000))
    asked: list[bool] = []
    assert of(e.Fetch, machine.tick(0, []))
    assert machine.tick(1, [e.Asked("reload", 0, asked.append)]) == []
    machine.refresh(listed([1], host=""))
    assert of(e.Fetch, machine.tick(2, []))
    assert asked == [True]


def test_relay_reconnect_of_a_server_that_dials_itself_closes_its_link_and_dials_nobody() -> None:
    machine = Machine(Periods(reconnect_ms=100))
    machine.refresh(listed([1], host=""))
    registered(machine, 0, (11, 1))
    effects = machine.tick(1, [e.Asked("reconnect", 1, lambda _: None)])
    assert of(e.CloseLink, effects) == [e.CloseLink(11, "an operator wants it connected anew")]
    assert of(e.Dial, effects) == []
    assert machine.by_state() == {"awaited": 1}
    assert dials(machine, 1000, e.Closed(11, "closed")) == []
    registered(machine, 1001, (12, 1))
