"""`grant` over a real table of parts: each step may fail, and the broker says where it is then."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import UsageError
from roquet.broker.replication.duties import ChangeFailed, Duties, Role
from roquet.service.duties import MASTER, SLAVE, Duty
from roquet.service.http.health import Health
from roquet.service.lifecycle import App, Part
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LEADS, FOLLOWS = Role("ASYNC_MASTER", 0), Role("SLAVE", 1)


@dataclasses.dataclass
class World:
    """A broker whose parts and steps only say that they were called; `broken` ones fail."""

    role: Role
    said: list[str] = dataclasses.field(default_factory=list[str])
    broken: set[str] = dataclasses.field(default_factory=set[str])
    pause: asyncio.Event | None = None
    refused: str | None = None
    durable: Role | None = None

    def __post_init__(self) -> None:
        self.health = Health()
        self.duties = Duties(self, self.role, self.health)
        parts = [
            Part("store", _Named(self, "store")),
            Part("timers", _Named(self, "timers"), ("store",), Duty.TIMERS),
            Part("revive", _Named(self, "revive"), ("timers",), Duty.TIMERS | Duty.REVIVE),
            Part("slaves", _Named(self, "slaves"), ("store",), Duty.FEEDS),
            Part("master", _Named(self, "master"), ("store",), Duty.COPIES),
        ]
        self.app = App(parts, FakeClock(), self.role.duties)
        self.duties.of(self.app)
        self.is_open = self.leads = Duty.WRITES in self.role.duties

    def _do(self, what: str) -> None:
        if what in self.broken:
            raise OSError(f"{what} is broken")
        self.said.append(what)

    async def note(self, role: Role) -> None:
        if self.pause is not None:
            await self.pause.wait()
        self._do("note")
        self.durable = role

    async def announce(self, role: Role) -> None:
        self._do("announce")
        self.said[-1] += f" {role.name}"

    def close(self) -> None:
        self._do("close")
        self.is_open = False

    async def drain(self) -> list[str]:
        self._do("drain")
        return []

    def fence(self) -> None:
        self._do("fence")
        assert not self.is_open
        self.leads = False

    async def hand_over(self) -> list[str]:
        self._do("hand over")
        return ["no slave has the last 7 bytes of the log"]

    async def lead(self) -> None:
        self._do("lead")
        self.leads = True

    async def adopt(self, role: Role) -> None:
        self._do("adopt")
        self.said[-1] += f" {role.name}"

    def open(self) -> None:
        self._do("open")
        assert self.leads
        self.is_open = True

    def why_not(self, role: Role) -> str | None:
        del role
        return self.refused


class _Named:
    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name

    async def start(self) -> None:
        self._world._do(f"+{self._name}")

    async def stop(self) -> None:
        self._world._do(f"-{self._name}")


def serves(world: World) -> bool:
    """Tell whether messages are taken."""
    return world.is_open and world.leads


def running(world: World) -> tuple[str, ...]:
    """Return the parts that run now."""
    return world.app.running


def run(world: World, story: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        async with world.app:
            world.said.clear()
            await story(world)
            world.broken.clear()

    asyncio.run(main())


def test_a_master_becomes_a_slave_and_a_master_again() -> None:
    async def story(world: World) -> None:
        outcome = await world.duties.become(FOLLOWS)
        assert outcome.duties == SLAVE
        assert outcome.notes == ("no slave has the last 7 bytes of the log",)
        assert world.said == [
            *("note", "announce SLAVE", "close", "drain", "-revive", "-timers", "fence"),
            *("hand over", "-slaves", "adopt SLAVE", "+master"),
        ]
        assert running(world) == ("store", "master")
        world.said.clear()
        await world.duties.become(LEADS)
        assert world.said == [
            *("-master", "lead", "adopt ASYNC_MASTER", "+timers", "+revive", "+slaves"),
            *("note", "open", "announce ASYNC_MASTER"),
        ]
        assert world.duties.role == LEADS
        assert world.duties.changes == 2

    run(World(LEADS), story)


def test_the_same_role_again_does_nothing() -> None:
    async def story(world: World) -> None:
        assert not (await world.duties.become(LEADS)).changed
        assert world.said == []

    run(World(LEADS), story)


def test_other_copies_are_a_change_without_a_pause() -> None:
    async def story(world: World) -> None:
        await world.duties.become(Role("SYNC_MASTER", 0))
        assert world.said == ["note", "adopt SYNC_MASTER", "announce SYNC_MASTER"]
        assert world.is_open

    run(World(LEADS), story)


GIVE_UP = ("announce", "drain", "fence", "hand over", "adopt", "+master")
TAKE_OVER = ("lead", "adopt", "+timers", "+revive", "+slaves", "note", "open", "announce")


@pytest.mark.parametrize("step", GIVE_UP)
def test_a_step_that_fails_on_the_way_down_leaves_no_writer_and_is_said(step: str) -> None:
    async def story(world: World) -> None:
        world.broken.add(step)
        with pytest.raises(ChangeFailed, match=f"{step[1:]} is broken"):
            await world.duties.become(FOLLOWS)
        assert world.durable == FOLLOWS
        assert running(world) == ("store",)
        assert not world.is_open
        assert world.duties.held == Duty.NONE
        assert "duties now: none" in world.health.explain()
        world.broken.clear()
        await world.duties.become(FOLLOWS)
        assert running(world) == ("store", "master")
        assert not world.is_open
        assert not world.leads
        assert world.health.is_ready

    run(World(LEADS), story)


def test_a_role_that_cannot_be_noted_changes_nothing() -> None:
    async def story(world: World) -> None:
        world.broken.add("note")
        with pytest.raises(ChangeFailed, match="note is broken; nothing has changed"):
            await world.duties.become(FOLLOWS)
        assert world.said == []
        assert world.is_open
        assert world.duties.role == LEADS
        assert world.health.is_ready

    run(World(LEADS), story)


@pytest.mark.parametrize("step", TAKE_OVER)
def test_a_step_that_fails_on_the_way_up_makes_a_slave_again_and_is_said(step: str) -> None:
    async def story(world: World) -> None:
        world.broken.add(step)
        with pytest.raises(ChangeFailed, match="is broken"):
            await world.duties.become(LEADS)
        assert not world.is_open
        assert not world.leads
        assert world.duties.role == FOLLOWS
        assert world.durable in {FOLLOWS, None}
        if step not in {"note", "adopt", "announce"}:
            assert running(world) == ("store", "master")
            assert world.health.is_ready
        world.broken.clear()
        await world.duties.become(LEADS)
        assert serves(world)
        assert world.duties.held == MASTER
        assert world.health.is_ready
        assert world.duties.trouble is None

    run(World(FOLLOWS), story)


@pytest.mark.parametrize("part", ["-revive", "-timers", "-slaves"])
def test_a_part_that_does_not_stop_cleanly_is_said_and_the_change_goes_on(part: str) -> None:
    async def story(world: World) -> None:
        world.broken.add(part)
        outcome = await world.duties.become(FOLLOWS)
        assert f"{part[1:]} did not stop cleanly" in outcome.notes
        assert running(world) == ("store", "master")

    run(World(LEADS), story)


def test_what_may_not_lead_is_refused_before_anything_changes() -> None:
    async def story(world: World) -> None:
        world.refused = "the log here is not to lead"
        with pytest.raises(UsageError, match="not to lead"):
            await world.duties.become(LEADS)
        assert world.said == []

    run(World(FOLLOWS), story)


@pytest.mark.parametrize(
    "role", [Role("SLAVE", 0), Role("ASYNC_MASTER", 1), Role("CAPTAIN", 0), Role("SLAVE", 2**31)]
)
def test_roles_that_there_are_not_are_refused(role: Role) -> None:
    async def story(world: World) -> None:
        with pytest.raises(UsageError):
            await world.duties.become(role)
        assert world.said == []

    run(World(LEADS), story)


def test_who_asked_may_leave_and_a_stop_waits_for_the_change() -> None:
    async def story(world: World) -> None:
        world.pause = asyncio.Event()
        asking = asyncio.create_task(world.duties.become(FOLLOWS))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        leaving = asyncio.create_task(world.app.__aexit__())
        await asyncio.sleep(0)
        assert "-store" not in world.said
        world.pause.set()
        await leaving
        assert world.said.index("+master") < world.said.index("-store")
        with pytest.raises(UsageError, match="is stopping"):
            await world.duties.become(LEADS)

    run(World(LEADS), story)


def test_changes_come_one_after_the_other() -> None:
    async def story(world: World) -> None:
        await asyncio.gather(world.duties.become(FOLLOWS), world.duties.become(LEADS))
        assert world.said.index("+master") < world.said.index("lead")
        assert world.duties.role == LEADS

    run(World(LEADS), story)


def test_a_set_of_duties_without_a_name_can_be_granted() -> None:
    async def story(world: World) -> None:
        await world.duties.grant(MASTER & ~Duty.REVIVE)
        assert running(world) == ("store", "timers", "slaves")
        assert world.is_open
        world.broken.add("+revive")
        with pytest.raises(ChangeFailed, match="revive is broken"):
            await world.duties.grant(MASTER)
        assert world.is_open
        assert world.duties.held == MASTER & ~Duty.REVIVE

    run(World(LEADS), story)
