"""The duties of a running broker, and `grant`, which changes them.

A change is done in the steps of `change_plan`, one change at a time. It is repeatable: the same
role again does nothing, and after a failure it goes on from where the broker is. A step that fails
ends the change: the broker falls back to what is safe, says so, and is not ready until a change
succeeds.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.base.errors import RoquetError, UsageError
from roquet.broker.replication.change_plan import Act, Step, check, plan, retreat
from roquet.service.duties import MASTER, SLAVE, Duty, names

if TYPE_CHECKING:
    from roquet.service.http.health import Health
    from roquet.service.lifecycle import App

log = logging.getLogger(__name__)

HEALTH = "duties"
ROLES = {"ASYNC_MASTER": MASTER, "SYNC_MASTER": MASTER, "SLAVE": SLAVE}


class ChangeFailed(RoquetError):  # noqa: N818  (as Refused)
    """A change of duties failed half-way; the text says where the broker is now."""


@dataclasses.dataclass(frozen=True, slots=True)
class Role:
    """What a broker is for others: its role as in `brokerRole`, and its id in the group."""

    name: str
    broker_id: int

    @property
    def duties(self) -> Duty:
        """The duties of the role."""
        return ROLES[self.name]

    def check(self) -> None:
        """Raise UsageError for a role that there is not, or an id that does not go with it."""
        if self.name not in ROLES:
            raise UsageError(f"brokerRole = {self.name[:40]!r}: must be one of {', '.join(ROLES)}")
        if self.duties == SLAVE and not 0 < self.broker_id < 2**31:
            raise UsageError("brokerRole = 'SLAVE': Slave's brokerId must be > 0")
        if self.duties != SLAVE and self.broker_id != 0:
            raise UsageError(f"brokerId = '{self.broker_id}': must be 0 for a master")


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What a change has done."""

    duties: Duty
    changed: bool
    notes: tuple[str, ...] = ()
    """What went wrong without making the change fail."""


class Hands(Protocol):
    """Does the steps that are not about parts. Each may be done twice."""

    async def note(self, role: Role) -> None:
        """Write the role down durably. Raises OSError, UsageError."""
        ...

    async def announce(self, role: Role) -> None:
        """Have name servers know the broker under a role; one that is away hears later."""
        ...

    def close(self) -> None:
        """Refuse what clients send from now on."""
        ...

    async def drain(self) -> list[str]:
        """Answer what was taken; return what could not be. Raises StoreFault."""
        ...

    def fence(self) -> None:
        """Refuse every append from now on but copies. Raises StoreFault."""
        ...

    async def hand_over(self) -> list[str]:
        """Let slaves copy the end of the log; return which did not."""
        ...

    async def lead(self) -> None:
        """Take appends from now on, and no copies. Raises StoreFault, OSError."""
        ...

    async def adopt(self, role: Role) -> None:
        """Let the settings that a role stands for take effect."""
        ...

    def open(self) -> None:
        """Take what clients send from now on."""
        ...

    def why_not(self, role: Role) -> str | None:
        """Return why the broker may not have a role now."""
        ...


class Duties:
    """What a broker is charged with, from the start on."""

    def __init__(self, hands: Hands, role: Role, health: Health) -> None:
        """Hold what `role` stands for, once there is a table of parts."""
        self._hands = hands
        self._role = role
        self._health = health
        self._app: App | None = None
        self._trouble: str | None = None
        self._tasks: set[asyncio.Task[Outcome]] = set()
        self.changes = 0
        """Changes that succeeded, since the start."""
        self.failures = 0

    def of(self, app: App) -> App:
        """Change the duties of this table of parts, which is returned."""
        self._app = app
        return app

    @property
    def role(self) -> Role:
        """The role of the moment."""
        return self._role

    @property
    def held(self) -> Duty:
        """The duties of the moment."""
        return Duty.NONE if self._app is None else self._app.duties

    @property
    def trouble(self) -> str | None:
        """Why the last change failed; None when it did not."""
        return self._trouble

    async def become(self, role: Role) -> Outcome:
        """Take a role. Raises UsageError, and ChangeFailed as `grant` does."""
        role.check()
        return await self.grant(role.duties, role)

    async def grant(self, duties: Duty, role: Role | None = None) -> Outcome:
        """Have exactly these duties from now on, under a role (the present one).

        Raises UsageError when the broker may not have them, and nothing has changed then; raises
        ChangeFailed when a step fails. Whoever asked may leave: a change that has begun goes on.
        """
        check(duties)
        task = asyncio.get_running_loop().create_task(self._change(duties, role or self._role))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _change(self, duties: Duty, role: Role) -> Outcome:
        app = self._app
        assert app is not None, "duties are of a table of parts"
        async with app.changing:
            if not app.running:
                raise UsageError("the broker is stopping")
            is_new_role = role != self._role or self._trouble is not None
            steps = plan(app.duties, duties, is_new_role=is_new_role)
            if not steps:
                return Outcome(app.duties, changed=False)
            why_not = self._hands.why_not(role)
            if why_not is not None:
                raise UsageError(why_not)
            return await self._walk(app, steps, duties, role)

    async def _walk(self, app: App, steps: list[Step], duties: Duty, role: Role) -> Outcome:
        before = app.duties
        log.info("duties change from %s to %s", names(before), names(duties))
        notes: list[str] = []
        done: list[Step] = []
        for step in steps:
            try:
                notes += await self._do(app, step, role)
            except Exception as error:
                log.exception("a change of duties failed: %s", step)
                failed = f"cannot {step}: {error}"
                if not done and step.act is Act.NOTE:
                    self.failures += 1
                    raise ChangeFailed(f"{failed}; nothing has changed") from error
                raise await self._failed(app, failed, (before, duties), role) from error
            done.append(step)
        self._role = role
        self._trouble = None
        self.changes += 1
        self._health.ready(HEALTH)
        for note in notes:
            log.warning("%s", note)
        log.info("this broker is %s now: %s", role.name, names(app.duties))
        return Outcome(app.duties, changed=True, notes=tuple(notes))

    async def _do(self, app: App, step: Step, role: Role) -> list[str]:
        """Do a step; return what went wrong without making it fail."""
        if step.act is Act.STOP:
            return [f"{name} did not stop cleanly" for name in await app.end(step.duties)]
        if step.act is Act.START:
            await app.begin(step.duties)
            return []
        hands = self._hands
        at_once = {Act.CLOSE: hands.close, Act.FENCE: hands.fence, Act.OPEN: hands.open}
        if step.act in at_once:
            at_once[step.act]()
            return []
        if step.act is Act.LEAD:
            await hands.lead()
            return []
        waits = {Act.DRAIN: hands.drain, Act.HAND_OVER: hands.hand_over}
        if step.act in waits:
            return await waits[step.act]()
        by_role = {Act.NOTE: hands.note, Act.ANNOUNCE: hands.announce, Act.ADOPT: hands.adopt}
        await by_role[step.act](role)
        return []

    async def _failed(
        self, app: App, why: str, change: tuple[Duty, Duty], role: Role
    ) -> ChangeFailed:
        """Fall back, and return what is to be said."""
        self.failures += 1
        before, wanted = change
        _, steps = retreat(before, wanted, app.duties)
        # A broker that was to give its writes up is no master any more, whatever comes.
        gives_up = Duty.WRITES in before and Duty.WRITES not in wanted
        back = role if gives_up else self._role
        for one in steps:
            try:
                await self._do(app, one, back)
            except Exception:
                log.exception("falling back failed: %s", one)
                why += f"; and it cannot {one}"
        self._role = back
        self._trouble = f"{why}; duties now: {names(app.duties)}"
        if app.duties != before:
            self._health.not_ready(HEALTH, self._trouble)
        log.error("%s", self._trouble)
        return ChangeFailed(self._trouble)
