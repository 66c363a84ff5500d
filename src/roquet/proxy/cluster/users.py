"""The users and policies of the brokers of a cluster, as the proxy judges its clients by them.

Each broker keeps its own, and `mqadmin` tells all of them one after the other. So the proxy has a
copy of each broker's: a client is let in, and may do something, where every copy says so. A right
that is taken away at one broker is gone; one that is given counts once all brokers have it.

Invariant: a copy counts for as long as its broker has confirmed it lately (`users_expire_s`), and
nothing is asked of a broker in a client's name without such a copy. Where there is none at all
nobody is let in.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from roquet.auth.bodies import Unreadable
from roquet.auth.directory import AuthFault, Directory
from roquet.auth.keeping.fetching import fetch
from roquet.auth.keeping.store import directory_of
from roquet.base.errors import Refused, RoquetError
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.service.background import Tasks
from roquet.service.lifecycle import Timer
from roquet.service.ratelog import RateLog, one_line
from roquet.service.slices import read_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.base.clock import Clock

log = logging.getLogger(__name__)

EVERY_S = 0.5
APART_S = 3.0
"""Brokers are told of a change one after the other: for so long they may disagree."""
LISTS_EVERY_S = 5.0
"""RocketMQ's brokers cannot say that nothing has changed: they give their lists as often."""
CALL_S = 5.0
START_S = 3.0
"""The port opens so late at the most: until then nobody could be let in."""
UNKNOWN = "no broker has said lately which users and policies there are"


class Asked(Protocol):
    """Connections to brokers."""

    async def masters(self) -> Mapping[str, str]:
        """Return broker name -> address of the masters that there are."""
        ...

    async def call(self, broker: str, command: Command, timeout_s: float) -> Command:
        """Ask a broker's master; return its answer, whatever its code."""
        ...


class _Copy(NamedTuple):
    """What one broker has said last."""

    heard_ms: int
    digest: str = ""
    directory: Directory | None = None
    """None: the broker keeps no users."""
    again_ms: int = 0
    """It is not asked before."""


class ClusterUsers:
    """Asks all masters for their users again and again. A service."""

    def __init__(self, client: Asked, clock: Clock, expire_s: int) -> None:
        """Ask by `client`, whose account has to be that of a super user."""
        self._client = client
        self._clock = clock
        self._expire_ms = expire_s * 1000
        self._copies: dict[str, _Copy] = {}
        self._asking: set[str] = set()
        self._tasks = Tasks()
        self._log = RateLog(log, clock)
        self._in_force: tuple[Directory, ...] = ()
        self._until_ms: int | None = None
        self._apart_ms: int | None = None
        """When brokers that disagree are named; None while they agree."""
        self.timers = (Timer("ask for users", self.tick, EVERY_S, EVERY_S),)

    async def start(self) -> None:
        """Ask each broker once, for as long as a start may take."""
        await self.tick()
        await self._tasks.stop(START_S)
        if not self.now:
            log.warning("nobody is let in: %s", UNKNOWN)

    async def stop(self) -> None:
        """End what is being asked."""
        await self._tasks.stop()

    @property
    def now(self) -> tuple[Directory, ...]:
        """The users and policies that are in force, each different one once; none: nobody's."""
        if self._until_ms is not None and self._clock.steady_ms() >= self._until_ms:
            self._settle()
        return self._in_force

    def is_known(self, broker: str) -> bool:
        """Tell whether a broker has said lately who its users are."""
        copy = self._copies.get(broker)
        return copy is not None and not self._is_old(copy)

    async def tick(self) -> None:
        """Ask each broker that is not being asked: the action of a timer."""
        self._warn_apart()
        try:
            masters = await self._client.masters()
        except RoquetError as error:
            self._log.warning("masters", f"users of brokers are not heard: {error}")
            return
        for name in self._copies.keys() - masters.keys():
            if self._is_old(self._copies[name]):
                del self._copies[name]
        now_ms = self._clock.steady_ms()
        for name in masters:
            copy = self._copies.get(name)
            if name in self._asking or (copy is not None and now_ms < copy.again_ms):
                continue
            self._asking.add(name)
            self._tasks.spawn(self._refresh(name), f"users of {name}")

    async def _refresh(self, name: str) -> None:
        try:
            copy = await self._asked(name)
        except (RoquetError, ValueError) as error:
            kept = "those of before stay in force a while" if self.is_known(name) else "none counts"
            text = f"users and policies of broker {name} are not heard, {kept}: {error}"
            self._log.warning(name, one_line(text)[:512])
        else:
            self._take(name, copy)
        finally:
            self._asking.discard(name)

    # --- what a broker has -----------------------------------------------------------------------

    async def _asked(self, name: str) -> _Copy:
        """Return what a broker has. Raises RoquetError and ValueError."""
        before = self._copies.get(name)
        asked_ms = self._clock.steady_ms()

        async def ask(ext: dict[str, str]) -> Command | None:
            return await self._ask(name, RequestCode.GET_USERS, ext)

        fetched = await fetch(ask, before.digest if before is not None else "")
        if fetched is None:
            lists = await self._lists(name)
            # As soon as it has none, it is asked as often as others: it may get some.
            pause_ms = 0 if lists is None else int(LISTS_EVERY_S * 1000)
            return _Copy(asked_ms, "", lists, asked_ms + pause_ms)
        if fetched.directory is None:
            assert before is not None, "only a copy can be what a broker has still"
            return before._replace(heard_ms=asked_ms)
        return _Copy(asked_ms, fetched.digest, fetched.directory)

    async def _lists(self, name: str) -> Directory | None:
        """Return what a broker of RocketMQ has; None where it knows no such requests."""
        users = await self._ask(name, RequestCode.AUTH_LIST_USER, {"filter": ""})
        if users is None:
            return None
        acls = await self._ask(name, RequestCode.AUTH_LIST_ACL, {})
        policies = b"" if acls is None else acls.body
        found = await read_body(lambda body: _read_lists(body, policies), users.body)
        if not found.users:
            raise ValueError("it has no users")
        return found

    async def _ask(self, name: str, code: RequestCode, ext: dict[str, str]) -> Command | None:
        """Return an answer; None where the broker does not know the request."""
        answer = await self._client.call(name, Command(int(code), ext), CALL_S)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise Refused(answer.code, answer.remark or "")
        return answer

    def _take(self, name: str, copy: _Copy) -> None:
        before, found = self._copies.get(name), copy.directory
        if found is not None:
            # Equal ones are one and the same, so that requests are judged by each once.
            others = [it.directory for it in self._copies.values() if it.directory is not None]
            found = next((it for it in others if it is found or it.has_same(found)), found)
            copy = copy._replace(directory=found)
        self._copies[name] = copy
        if before is None or before.directory is not found:
            self._say(name, found)
        self._settle()

    def _say(self, name: str, found: Directory | None) -> None:
        if found is None:
            log.warning(
                "broker %s keeps no users (authenticationEnabled is not true there): clients of"
                " this proxy are judged by those of the other brokers",
                one_line(name),
            )
            return
        counts = len(found.users), len(found.acls)
        log.info("broker %s has %d users, %d with policies", one_line(name), *counts)

    def _warn_apart(self) -> None:
        """Warn once of brokers that disagree for longer than it takes to tell all of them."""
        if len(self.now) < 2:
            self._apart_ms = None
        elif self._apart_ms is None:
            self._apart_ms = self._clock.steady_ms() + int(APART_S * 1000)
        elif self._clock.steady_ms() >= self._apart_ms:
            names: dict[int, str] = {}
            for name, copy in sorted(self._copies.items()):
                if copy.directory is not None and not self._is_old(copy):
                    names.setdefault(id(copy.directory), name)
            # Hours of the same are one line in a while.
            self._log.warning(
                "apart",
                f"brokers {one_line(', '.join(names.values()))[:300]} have different users or"
                " policies: only what all of them allow is allowed here",
            )

    # --- what is in force ------------------------------------------------------------------------

    def _is_old(self, copy: _Copy) -> bool:
        return self._clock.steady_ms() - copy.heard_ms >= self._expire_ms

    def _fresh(self) -> list[_Copy]:
        return [copy for copy in self._copies.values() if not self._is_old(copy)]

    def _settle(self) -> None:
        """Work out what is in force; the same is the same object."""
        fresh = self._fresh()
        found = {id(it.directory): it.directory for it in fresh if it.directory is not None}
        wanted = tuple(found[key] for key in sorted(found))
        if not _are_same(wanted, self._in_force):
            self._in_force = wanted
            if not wanted:
                log.warning("nobody is let in: no broker has confirmed its users lately")
        heard_ms = min((it.heard_ms for it in fresh), default=None)
        self._until_ms = None if heard_ms is None else heard_ms + self._expire_ms


def _are_same(one: tuple[Directory, ...], other: tuple[Directory, ...]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _read_lists(users: bytes, acls: bytes) -> Directory:
    """Read the answers to 3005 and 3010. Raises ValueError, which shows nothing of them."""
    try:
        source = {"users": fastjson.read(users or b"[]"), "acls": fastjson.read(acls or b"[]")}
        return directory_of(fields.objects(source, "users"), fields.objects(source, "acls"))
    except (AuthFault, Unreadable) as error:
        raise ValueError(f"its lists cannot be read: {error}") from None
    except ValueError:
        raise ValueError("its lists of users and policies cannot be read") from None
