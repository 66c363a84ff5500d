"""Rules of the relay: nobody hears of himself, silence ends at its time, long lists take turns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar, cast

import pytest

from relay_harness import RawServer, looped, settings, until, world
from roquet.base.clock import SystemClock
from roquet.relay.app import build
from roquet.relay.codes import RelayCode
from roquet.relay.master import events as e
from roquet.relay.master.machine import _SHOWN_IDS, DIALS_A_TICK, WAIT_ADD_A_TICK, Machine, Periods
from roquet.relay.master.master import EFFECTS_AT_ONCE
from roquet.relay.peers import packets
from roquet.relay.servers import Entry, ServerList
from roquet.relay.web.calls import ROWS_AT_ONCE
from roquet.service.http.server import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from pathlib import Path
    from typing import Any

T = TypeVar("T")


def heard(server: RawServer, code: RelayCode) -> list[int]:
    """Return the ids that a server was told with packets of one code."""
    said = [command for command in server.got if command.code == code]
    if code == RelayCode.SERVER_MAP:
        return [other for one in said for other in packets.read_server_map(one)]
    return [packets.read_new_server(one).server_id for one in said]


@looped
async def test_relay_tells_a_server_of_all_others_and_never_of_itself(tmp_path: Path) -> None:
    async with world(tmp_path) as made, RawServer(1, 3) as one, RawServer(2, 3) as two:
        made.publish(one.entry)
        relay = await made.relay(workers=1)
        await until(lambda: relay.view.health().registered == 1)
        made.publish(one.entry, two.entry)
        await until(lambda: relay.view.health().registered == 2)
        await until(lambda: bool(heard(one, RelayCode.NEW_SERVER)))
        await until(lambda: bool(heard(two, RelayCode.SERVER_MAP)))
        assert heard(one, RelayCode.SERVER_MAP) == []
        assert heard(one, RelayCode.NEW_SERVER) == [2]
        assert heard(two, RelayCode.SERVER_MAP) == [1]
        # Registered anew, while the link before is in the table still.
        assert await relay.master.ask("reconnect", 2)
        await until(lambda: len(heard(two, RelayCode.SERVER_MAP)) == 2)
        await until(lambda: heard(one, RelayCode.NEW_SERVER) == [2, 2])
        assert heard(two, RelayCode.SERVER_MAP) == [1, 1]
        assert heard(two, RelayCode.NEW_SERVER) == []
        # On a newer link, while the older one is owned still.
        (worker,) = relay.view._workers
        worker.handle([e.NewServerNotice(packets.Other(2, 3, 0))])
        await until(lambda: heard(one, RelayCode.NEW_SERVER) == [2, 2, 2])
        worker.handle([e.NewServerNotice(packets.Other(1, 3, 0))])
        await until(lambda: heard(two, RelayCode.NEW_SERVER) == [1])
        assert heard(one, RelayCode.NEW_SERVER) == [2, 2, 2]


@looped
async def test_relay_ends_a_silent_link_after_the_timeout_and_not_before(tmp_path: Path) -> None:
    async with world(tmp_path) as made, RawServer(1, 3) as silent:
        silent.beats = False
        made.publish(silent.entry)
        # Longer than the test: only steps of the clock bring it about.
        relay = await made.relay(workers=1, heartbeat_ms=60_000, heartbeat_timeout_ms=600_000)
        (worker,) = relay.view._workers
        await until(lambda: 1 in worker.owned)
        await worker.watch()
        for _ in range(2):
            made.clock.shift_ms += 280_000
            await worker.watch()
            assert list(worker.owned) == [1], "it is not silent for so long yet"
        made.clock.shift_ms += 60_000
        await worker.watch()
        await until(lambda: 1 not in worker.owned)


@looped
async def test_relay_whose_wall_clock_is_set_ends_no_link(tmp_path: Path) -> None:
    async with world(tmp_path) as made, RawServer(1, 3) as silent:
        silent.beats = False
        made.publish(silent.entry)
        relay = await made.relay(workers=1, heartbeat_ms=60_000, heartbeat_timeout_ms=600_000)
        (worker,) = relay.view._workers
        await until(lambda: 1 in worker.owned)
        for _ in range(4):
            # Steps that do not look like a process that slept.
            made.clock.set_by_ms += 280_000
            await worker.watch()
        assert list(worker.owned) == [1]


@looped
async def test_relay_that_slept_judges_nobody_by_its_first_look(tmp_path: Path) -> None:
    async with world(tmp_path) as made, RawServer(1, 3) as server:
        made.publish(server.entry)
        relay = await made.relay(workers=1, heartbeat_ms=60_000, heartbeat_timeout_ms=600_000)
        (worker,) = relay.view._workers
        await until(lambda: 1 in worker.owned)
        made.clock.shift_ms += 700_000
        await worker.watch()
        assert list(worker.owned) == [1]


def listed(ids: Iterable[int], host: str = "h") -> ServerList:
    """Return a list of servers with these ids."""
    return ServerList(1, {number: Entry(number, 1, host, 1) for number in ids})


def dials(machine: Machine, now_ms: int, *inputs: e.Input) -> list[e.Dial]:
    """Take one tick and return the connects that it begins."""
    return [one for one in machine.tick(now_ms, inputs) if isinstance(one, e.Dial)]


def run(work: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """Run to the end what only gives way; return its result and how often it did."""
    turns = 0
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            return cast("T", end.value), turns
        turns += 1


def test_relay_dials_a_long_list_in_parts_and_each_server_once() -> None:
    machine = Machine(Periods())
    machine.refresh(listed(range(1, 2 * DIALS_A_TICK + 4)))
    begun = [dials(machine, 50 * turn) for turn in range(5)]
    assert [len(part) for part in begun] == [DIALS_A_TICK, DIALS_A_TICK, 3, 0, 0]
    assert [one.id for part in begun for one in part] == [*range(1, 2 * DIALS_A_TICK + 4)]
    assert len({one.attempt for part in begun for one in part}) == 2 * DIALS_A_TICK + 3


def test_relay_server_that_waits_to_be_dialled_says_so_and_is_forgotten_with_the_list() -> None:
    machine = Machine(Periods())
    machine.refresh(listed(range(1, DIALS_A_TICK + 3)))
    dials(machine, 0)
    assert machine.waiting()["wait_dial"] == 2
    assert machine.by_state() == {"dialling": DIALS_A_TICK, "waiting": 2}
    machine.refresh(listed(range(1, DIALS_A_TICK + 2)))
    assert [one.id for one in dials(machine, 50)] == [DIALS_A_TICK + 1]
    assert machine.waiting()["wait_dial"] == 0


def test_relay_dials_a_new_server_before_many_that_failed() -> None:
    machine = Machine(Periods(reconnect_ms=100))
    many = range(1, 3 * DIALS_A_TICK)
    machine.refresh(listed(many))
    attempts = [one.attempt for turn in range(3) for one in dials(machine, turn)]
    assert dials(machine, 10, *(e.ConnectFailed(one, "no") for one in attempts)) == []
    again = dials(machine, 110)
    assert len(again) == DIALS_A_TICK
    assert machine.waiting()["wait_dial"] == len(many) - DIALS_A_TICK
    machine.refresh(listed([*many, 1000]))
    assert machine.waiting()["wait_dial"] == len(many) - DIALS_A_TICK + 1
    following = dials(machine, 111)
    assert following[0].id == 1000
    assert len(following) == DIALS_A_TICK
    rest = dials(machine, 112)
    dialled = [one.id for one in (*again, *following, *rest)]
    assert sorted(dialled) == [*many, 1000], "each once"


def test_relay_registered_server_whose_link_is_lost_is_dialled_again_after_all() -> None:
    machine = Machine(Periods(reconnect_ms=100))
    machine.refresh(listed([1, 2]))
    first, second = dials(machine, 0)
    machine.tick(1, [e.Connected(first.attempt, 11), e.Connected(second.attempt, 12)])
    machine.tick(2, [e.Answered(11, 5), e.Answered(12, 5)])
    assert machine.by_state() == {"registered": 2}
    # An end of a link that nobody has any more changes nothing.
    machine.tick(3, [e.Closed(11, "cut"), e.Closed(11, "cut"), e.Closed(99, "cut")])
    assert machine.by_state() == {"waiting": 1, "registered": 1}
    assert [one.id for one in dials(machine, 200)] == [1]


def test_relay_server_that_comes_while_it_waits_is_not_dialled_again() -> None:
    machine = Machine(Periods(reconnect_ms=100))
    machine.refresh(listed([1]))
    (first,) = dials(machine, 0)
    machine.tick(1, [e.ConnectFailed(first.attempt, "no")])
    assert machine.waiting()["wait_reconnect"] == 1
    machine.tick(2, [e.CameIn(21, 1)])
    machine.tick(3, [e.Answered(21, 5)])
    assert machine.by_state() == {"registered": 1}
    assert not any(machine.waiting().values())
    assert dials(machine, 500) == []


def test_relay_connect_that_fails_after_its_server_came_is_not_tried_again() -> None:
    machine = Machine(Periods(reconnect_ms=100))
    machine.refresh(listed([1]))
    (first,) = dials(machine, 0)
    machine.tick(1, [e.CameIn(21, 1)])
    machine.tick(2, [e.Answered(21, 5)])
    machine.tick(3, [e.ConnectFailed(first.attempt, "no")])
    assert dials(machine, 500) == []
    assert machine.by_state() == {"registered": 1}
    assert not any(machine.waiting().values())


def test_relay_server_that_leaves_the_list_while_it_registers_is_not_registered() -> None:
    machine = Machine(Periods(register_timeout_ms=1_000))
    machine.refresh(listed([1, 2], host=""))
    machine.tick(0, [e.CameIn(11, 1), e.CameIn(12, 2)])
    assert machine.waiting()["wait_register"] == 2
    machine.refresh(listed([2], host=""))
    assert machine.waiting()["wait_register"] == 1
    machine.tick(999, [e.Answered(11, 5)])
    assert machine.by_state() == {"registering": 1}
    machine.tick(1_000, [e.Answered(12, 5)])
    assert [*machine.present] == [2]


def test_relay_server_that_does_not_answer_in_time_is_closed() -> None:
    machine = Machine(Periods(register_timeout_ms=1_000))
    machine.refresh(listed([1], host=""))
    machine.tick(0, [e.CameIn(11, 1)])
    assert machine.by_state() == {"registering": 1}
    machine.tick(999, [])
    assert machine.by_state() == {"registering": 1}
    effects = machine.tick(1_000, [])
    assert e.CloseLink(11, "no answer within 1000 ms") in effects
    assert machine.by_state() == {"forgotten": 1}


def test_relay_server_that_has_left_the_list_is_a_stranger_without_a_failure() -> None:
    machine = Machine(Periods())
    machine.refresh(listed([1, 2]))
    first, _ = dials(machine, 0)
    machine.tick(1, [e.ConnectFailed(first.attempt, "no")])
    assert machine.failures == {1: "no"}
    machine.refresh(listed([2]))
    assert machine.failures == {}
    assert e.CloseLink(21, "not configured") in machine.tick(2, [e.CameIn(21, 1)])


def test_relay_server_that_leaves_before_it_is_asked_to_register_is_closed() -> None:
    machine = Machine(Periods())
    ids = range(1, WAIT_ADD_A_TICK + 3)
    machine.refresh(listed(ids, host=""))
    machine.tick(0, [e.CameIn(100 + number, number) for number in ids])
    assert machine.waiting()["wait_add"] == 2
    machine.refresh(listed(ids[:-1], host=""))
    assert machine.waiting()["wait_add"] == 1
    asked = [one.id for one in machine.tick(1, []) if isinstance(one, e.SendRegister)]
    assert asked == [WAIT_ADD_A_TICK + 1]


def test_relay_dials_what_failed_once_a_period() -> None:
    machine = Machine(Periods(reconnect_ms=100))
    machine.refresh(listed([1]))
    (first,) = dials(machine, 0)
    assert dials(machine, 10, e.ConnectFailed(first.attempt, "no")) == []
    (second,) = dials(machine, 110)
    assert dials(machine, 120, e.ConnectFailed(second.attempt, "no")) == []
    assert dials(machine, 209) == []
    assert [one.id for one in dials(machine, 210)] == [1]


@pytest.mark.parametrize("more", [0, 2])
def test_relay_names_the_first_servers_that_cannot_be_reached(more: int) -> None:
    machine = Machine(Periods())
    ids = range(1, _SHOWN_IDS + 1 + more)
    machine.refresh(listed(ids))
    attempts = [one.attempt for one in dials(machine, 0)]
    assert len(attempts) == len(ids)
    said = machine.tick(1, [e.ConnectFailed(one, "no") for one in attempts])
    shown = ", ".join(map(str, ids[:_SHOWN_IDS])) + (f" and {more} more" if more else "")
    assert [one.text for one in said if isinstance(one, e.Say)] == [
        f"cannot connect to {shown}, trying again: no"
    ]


@looped
async def test_relay_carries_out_a_long_tick_in_slices(tmp_path: Path) -> None:
    relay = build(settings(tmp_path), SystemClock())
    strangers = 10 * EFFECTS_AT_ONCE
    for number in range(strangers):
        relay.master.book(e.CameIn(number, number + 1))
    try:
        # A line for the log and a link to close each, and the question for the list.
        assert run(relay.master.tick())[1] == 2 * strangers // EFFECTS_AT_ONCE
    finally:
        await relay.master.links.stop()


def test_relay_page_of_servers_is_whole_while_the_list_changes(tmp_path: Path) -> None:
    relay = build(settings(tmp_path), SystemClock())
    count = 4 * ROWS_AT_ONCE
    relay.master.machine.refresh(listed(range(1, count + 1)))
    page = relay.http.servers(HttpRequest("GET", "/servers", {}, {}, b""), 0)
    page.send(None)
    # The rest of the second part leaves, the third leaves whole, one comes.
    left = [*range(1, ROWS_AT_ONCE + 2), *range(3 * ROWS_AT_ONCE + 1, count + 1)]
    relay.master.machine.refresh(listed([*left, count + 1]))
    answer, turns = run(page)
    assert turns == 3, "others have a turn after each part"
    assert [row["id"] for row in json.loads(answer.body)] == left


def test_relay_page_of_no_servers_is_an_empty_list(tmp_path: Path) -> None:
    relay = build(settings(tmp_path), SystemClock())
    page = relay.http.servers(HttpRequest("GET", "/servers", {}, {}, b""), 0)
    answer, turns = run(page)
    assert (json.loads(answer.body), turns) == ([], 0)
