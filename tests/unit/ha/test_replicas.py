"""Which slaves have what: who is told, what is released, and what nobody has proven to have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from roquet.ha.replicas import ReplicaConfig, Replicas
from roquet.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

OK = (PutStatus.PUT_OK, "")
NO_PROOF = (PutStatus.FLUSH_SLAVE_TIMEOUT, "no slave has proven to have a copy")
TOO_FEW = (PutStatus.SLAVE_NOT_AVAILABLE, "too few slaves follow this master")


class World:
    """The slaves of a master, and what its parts hear of them."""

    def __init__(self, slaves: int = 1, gap_max: int = 1000, timeout_s: float = 60.0) -> None:
        self.replicas = Replicas(ReplicaConfig(slaves, timeout_s, gap_max))
        self.told: list[int] = []
        self.lapsed: list[int] = []
        self.replicas.listen(self.told.append)
        self.replicas.on_lapse(self.lapsed.append)
        self.sends: list[asyncio.Task[tuple[PutStatus, str]]] = []

    async def send(self, *ends: int) -> None:
        """Have sends wait for copies up to each of these."""
        self.sends += [asyncio.ensure_future(self.replicas.copied(end)) for end in ends]
        await asyncio.sleep(0)

    async def answers(self) -> list[tuple[PutStatus, str] | None]:
        """Return what became of each send; None while it waits."""
        for _ in range(5):
            await asyncio.sleep(0)
        return [send.result() if send.done() else None for send in self.sends]


def play(tell: Callable[[], Awaitable[None]]) -> None:
    async def told() -> None:
        await tell()

    asyncio.run(told())


# --- who is told --------------------------------------------------------------------------------


def test_watermark_is_told_when_it_rises_and_when_slaves_come_or_go() -> None:
    it = World(slaves=1)
    it.replicas.acked("a", "slave a", 10)
    assert it.told == [10]
    it.replicas.acked("a", "slave a", 10)
    it.replicas.acked("a", "slave a", 9)
    assert it.told == [10], "reports that change nothing are many"
    it.replicas.acked("a", "slave a", 11)
    it.replicas.acked("b", "slave b", 3)
    it.replicas.left("b")
    it.replicas.left("b")
    it.replicas.left("stranger")
    assert it.told == [10, 11, 11, 11]
    assert it.replicas.by_slave() == {"slave a": 11}


def test_slaves_that_nobody_waits_for_raise_no_watermark() -> None:
    it = World(slaves=0)
    assert (it.replicas.wanted, it.replicas.lacks_slaves(10**9)) == (0, False)
    it.replicas.came("a", "slave a", 10, proven=False)
    for offset in (11, 12):
        it.replicas.acked("a", "slave a", offset)
    assert (it.replicas.watermark, it.told, it.lapsed) == (0, [0], [])
    assert it.replicas.has(10**9)
    assert it.replicas.by_slave() == {"slave a": 12}


def test_slave_without_a_proof_that_came_before_copies_were_asked_for_proves_no_more_then() -> None:
    it = World(slaves=0)
    it.replicas.came("gone", "slave g", 90, proven=False)
    it.replicas.left("gone")
    it.replicas.came("j", "slave j", 20, proven=False, doubt=25)
    it.replicas.came("k", "slave k", 10, proven=False)
    it.replicas.follow(ReplicaConfig(slaves=0))
    assert it.lapsed == []
    it.replicas.follow(ReplicaConfig(slaves=1))
    assert it.lapsed == [25]
    assert not any(it.replicas.has(end) for end in (1, 10, 20, 25))
    it.replicas.acked("j", "slave j", 30)
    assert [it.replicas.has(end) for end in (10, 25, 26, 30, 31)] == [
        False,
        False,
        True,
        True,
        False,
    ]
    it.replicas.follow(ReplicaConfig(slaves=1))
    assert it.lapsed == [25], "once"
    it.replicas.came("a", "slave a", 40, proven=True)
    assert it.replicas.has(10)
    it.replicas.follow(ReplicaConfig(slaves=0))
    it.replicas.follow(ReplicaConfig(slaves=1))
    assert (it.lapsed, it.replicas.has(10)) == ([25], True), "one that has proven it is there"


def test_two_connections_of_one_slave_are_one_copy_as_far_as_the_better_one() -> None:
    it = World(slaves=2)
    for link, offset in (("a1", 30), ("a2", 50), ("a3", 40)):
        it.replicas.acked(link, "slave a", offset)
    assert it.replicas.by_slave() == {"slave a": 50}
    assert (it.replicas.watermark, it.replicas.following(60)) == (0, 1)
    it.replicas.acked("b", "slave b", 20)
    assert (it.replicas.watermark, it.replicas.lacks_slaves(60)) == (20, False)


def test_settings_that_change_count_other_copies_at_once() -> None:
    async def tell() -> None:
        it = World(slaves=2)
        it.replicas.acked("a", "slave a", 10)
        it.replicas.acked("b", "slave b", 5)
        await it.send(8)
        assert await it.answers() == [None]
        it.replicas.follow(ReplicaConfig(1, 60.0, 1000))
        assert await it.answers() == [OK]
        assert (it.replicas.wanted, it.replicas.watermark, it.told[-1]) == (1, 10, 10)

    play(tell)


# --- what is released ---------------------------------------------------------------------------


def test_sends_are_answered_as_far_as_the_copies_go() -> None:
    async def tell() -> None:
        it = World()
        it.replicas.acked("a", "slave a", 10)
        await it.send(30, 10, 20, 20, 21)
        assert await it.answers() == [None, OK, None, None, None]
        # One of those that wait has gone: the others are answered still.
        it.sends[2].cancel()
        await asyncio.wait(it.sends[2:3])
        it.replicas.acked("a", "slave a", 20)
        del it.sends[2]
        assert await it.answers() == [None, OK, OK, None]
        it.replicas.acked("a", "slave a", 30)
        assert await it.answers() == [OK] * 4

    play(tell)


def test_send_that_no_slave_could_copy_soon_is_answered_at_once() -> None:
    async def tell() -> None:
        it = World()
        await it.send(5)
        assert await it.answers() == [TOO_FEW]
        it.replicas.acked("a", "slave a", 0)
        await it.send(1000, 999)
        assert await it.answers() == [TOO_FEW, TOO_FEW, None]

    play(tell)


def test_send_waits_as_long_as_the_settings_say() -> None:
    async def tell() -> None:
        it = World(timeout_s=0.0)
        it.replicas.acked("a", "slave a", 0)
        found = await asyncio.wait_for(it.replicas.copied(5), 30)
        assert found == (PutStatus.FLUSH_SLAVE_TIMEOUT, "no slave had a copy in time")
        # What waits no more is released later without harm.
        it.replicas.acked("a", "slave a", 5)
        assert it.replicas.has(5)

    play(tell)


# --- what nobody has proven ---------------------------------------------------------------------


def test_slave_without_a_proof_releases_nothing_up_to_its_first_report() -> None:
    async def tell() -> None:
        it = World()
        it.replicas.came("a", "slave a", 10, proven=True)
        await it.send(15, 20, 21)
        it.replicas.left("a")
        it.replicas.came("java", "slave j", 20, proven=False)
        assert it.lapsed == [20]
        assert await it.answers() == [NO_PROOF, NO_PROOF, None]
        assert [it.replicas.has(end) for end in (10, 11, 20)] == [True, False, False]
        # Nobody waits for what cannot be proven.
        await it.send(11, 20)
        assert (await it.answers())[3:] == [NO_PROOF, NO_PROOF]
        # From there on its word counts.
        it.replicas.acked("java", "slave j", 21)
        assert (await it.answers())[2] == OK
        assert [it.replicas.has(end) for end in (20, 21, 22)] == [False, True, False]

    play(tell)


@pytest.mark.parametrize("first", [0, 9, 10])
def test_first_report_of_what_is_copied_already_gives_up_nothing(first: int) -> None:
    it = World()
    it.replicas.came("a", "slave a", 10, proven=True)
    it.replicas.came("java", "slave j", first, proven=False)
    assert it.lapsed == []
    assert (it.replicas.watermark, it.replicas.has(10)) == (10, True)


def test_second_report_without_a_proof_gives_up_from_the_first_on() -> None:
    it = World()
    it.replicas.came("j", "slave j", 20, proven=False)
    it.replicas.came("k", "slave k", 30, proven=False)
    assert it.lapsed == [20, 30]
    assert [it.replicas.has(end) for end in (0, 1, 20, 21, 30, 31)] == [
        True,
        False,
        False,
        False,
        False,
        False,
    ]
    it.replicas.acked("k", "slave k", 40)
    assert [it.replicas.has(end) for end in (30, 31, 40)] == [False, True, True]


def test_slaves_with_a_proof_make_certain_what_was_given_up() -> None:
    it = World()
    it.replicas.came("j", "slave j", 20, proven=False)
    it.replicas.came("a", "slave a", 19, proven=True)
    assert not it.replicas.has(19)
    # Its own reports have to reach the end of what was given up.
    it.replicas.acked("a", "slave a", 20)
    assert [it.replicas.has(end) for end in (1, 19, 20)] == [True, True, True]
    it.replicas.acked("j", "slave j", 25)
    assert it.replicas.has(25)


@pytest.mark.parametrize(
    ("wanted", "proven", "certain"),
    [
        (1, [("a", 30)], True),
        (1, [("a", 29)], False),
        (2, [("a", 30)], False),
        (2, [("a", 30), ("b", 29)], False),
        (2, [("a", 40), ("b", 30)], True),
        # The second connection of a slave is no second copy.
        (2, [("a", 40), ("a", 30)], False),
        (2, [("a", 40), ("a", 10), ("b", 30)], True),
    ],
)
def test_as_many_proven_slaves_as_are_asked_for_make_certain_what_was_given_up(
    wanted: int, proven: list[tuple[str, int]], *, certain: bool
) -> None:
    it = World(slaves=wanted)
    it.replicas.came("j", "slave j", 30, proven=False)
    assert it.lapsed == [30]
    for link, (slave, offset) in enumerate(proven):
        it.replicas.came(link, slave, offset, proven=True)
    assert it.replicas.has(30) is certain
    # What was not given up is as it was.
    assert it.replicas.has(31) is False


def test_slaves_that_have_nothing_make_nothing_certain() -> None:
    for proven in (False, True):
        it = World()
        if proven:
            it.replicas.came("a", "slave a", 0, proven=True)
        it.replicas.came("j", "slave j", 1, proven=False)
        it.replicas.acked("j", "slave j", 1)
        assert (it.lapsed, it.replicas.has(1)) == ([1], False)
        if proven:
            it.replicas.acked("a", "slave a", 1)
            assert it.replicas.has(1)


def test_first_byte_is_copied_once_a_slave_says_so_and_not_before() -> None:
    it = World()
    assert [it.replicas.has(end) for end in (0, 1)] == [True, False]
    it.replicas.came("a", "slave a", 0, proven=False)
    assert not it.replicas.has(1)
    it.replicas.acked("a", "slave a", 1)
    assert (it.replicas.has(1), it.lapsed) == (True, [])


def test_reports_that_raise_nothing_are_not_told_while_something_is_unproven() -> None:
    it = World()
    it.replicas.came("j", "slave j", 20, proven=False)
    told = list(it.told)
    it.replicas.acked("j", "slave j", 20)
    assert it.told == told
    it.replicas.acked("j", "slave j", 21)
    assert it.told == [*told, 21]


def test_proof_of_a_connection_ends_with_it() -> None:
    it = World()
    it.replicas.came("a", "slave a", 10, proven=True)
    it.replicas.left("a")
    it.replicas.came("a", "slave a", 20, proven=False)
    assert (it.lapsed, it.replicas.has(20)) == ([20], False)
    it.replicas.acked("a", "slave a", 20)
    assert not it.replicas.has(20)
