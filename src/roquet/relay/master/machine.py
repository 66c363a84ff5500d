"""The master service's six steps as a pure state machine: inputs in, effects out.

No socket, clock or file. `tick` books the inputs, then takes the steps in their order; a step only
appends effects, which the shell (`master.py`) carries out in that order.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from roquet.relay.master import events as e
from roquet.relay.peers.packets import Other

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roquet.relay.servers import Entry, ServerList

WAIT_ADD_A_TICK = 32
DIALS_A_TICK = 64
"""So many connects begin at once: each costs the loop some 0.1 ms, and thousands may be due."""
HTTP_A_TICK = 10
FIRST_BACK_OFF_MS = 500
_SHOWN_IDS = 20

STEPS = (
    ("tick_config", "ask the configuration server every load_config_ms; refresh by its answer"),
    ("tick_wait_add", f"at most {WAIT_ADD_A_TICK} new links: send the register packet"),
    ("tick_register", "newest first: flush, then take the register answer"),
    ("tick_future", "outstanding connects: done, or wait to be dialled again"),
    (
        "tick_reconnect",
        f"every reconnect_ms: dial what waits and is configured; at most {DIALS_A_TICK} dials",
    ),
    ("tick_http", f"at most {HTTP_A_TICK} finished HTTP callbacks"),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """The machine's settings; times are milliseconds."""

    workers: int = 4
    load_config_ms: int = 10_000
    reconnect_ms: int = 3_000
    register_timeout_ms: int = 5_000


@dataclasses.dataclass(slots=True)
class _Waiting:
    """A link whose server is not registered yet."""

    link: int
    id: int
    type: int
    remaining_ms: int
    max_online: int | None = None
    failure: str = ""


@dataclasses.dataclass(slots=True)
class _Future:
    """An outstanding connect."""

    id: int
    link: int | None = None
    failure: str | None = None


@dataclasses.dataclass(slots=True)
class Present:
    """A registered server."""

    link: int
    server: Other
    worker: int
    drains: bool = False


class Stages(NamedTuple):
    """The ids of servers on their way to be registered."""

    registering: frozenset[int]
    connected: frozenset[int]
    dialling: frozenset[int]


class Machine:
    """Who is configured, connecting, registering, registered, or waited for."""

    def __init__(self, periods: Periods) -> None:
        """Know nobody; the first tick asks the configuration server."""
        self.present: dict[int, Present] = {}
        """The table of registered servers by id."""
        self.listed: Mapping[int, Entry] = {}
        """The last good answer, forgotten entries included."""
        self.failures: dict[int, str] = {}
        """Why the last attempt of a server that is not there failed."""
        self.version: int | None = None
        self.config_source = ""
        """`server`, `copy`, or nothing while there is no configuration."""
        self.config_failure = ""
        """Why the last question was not answered well."""
        self._periods = periods
        self._configs: dict[int, Entry] = {}
        self._wait_add: deque[_Waiting] = deque()
        self._wait_register: list[_Waiting] = []
        self._futures: dict[int, _Future] = {}
        self._wait_reconnect: dict[int, None] = {}
        self._new: dict[int, None] = {}
        """To be dialled for the first time, before all others."""
        self._due: dict[int, None] = {}
        """To be dialled again."""
        self._by_link: dict[int, int] = {}
        """Link -> the server that is registered on it."""
        self._http: deque[e.HttpDone] = deque()
        self._attempt = 0
        self._last_ms: int | None = None
        self._load_in_ms = 0
        self._back_off_ms = FIRST_BACK_OFF_MS
        self._fetching = False
        self._reconnect_in_ms = periods.reconnect_ms
        self._out: list[e.Effect] = []

    def tick(self, now_ms: int, inputs: Sequence[e.Input]) -> list[e.Effect]:
        """Take one round; `now_ms` may jump, time only ever passes forward."""
        passed_ms = 0 if self._last_ms is None else max(0, now_ms - self._last_ms)
        self._last_ms = now_ms
        self._out = []
        for one in inputs:
            self._book(one)
        self._tick_config(passed_ms)
        self._tick_wait_add()
        self._tick_register(passed_ms)
        self._tick_future()
        self._tick_reconnect(passed_ms)
        self._tick_http()
        self._begin_dials()
        return self._out

    def stages(self) -> Stages:
        """Return who is on its way now: for many calls of `state`."""
        return Stages(
            frozenset(one.id for one in self._wait_register),
            frozenset(one.id for one in self._wait_add),
            frozenset(one.id for one in self._futures.values()),
        )

    def state(self, server_id: int, stages: Stages | None = None) -> str:
        """Return in a word what is known of a listed server; `stages` must be those of now."""
        if server_id in self.present:
            return "draining" if self.present[server_id].drains else "registered"
        stages = stages or self.stages()
        if server_id in stages.registering:
            return "registering"
        if server_id in stages.connected:
            return "connected"
        if server_id in stages.dialling:
            return "dialling"
        if any(server_id in ids for ids in (self._wait_reconnect, self._due, self._new)):
            return "waiting"
        return "forgotten" if server_id not in self._configs else "awaited"

    def by_state(self) -> Mapping[str, int]:
        """Return how many listed servers are in each state."""
        stages = self.stages()
        return Counter(self.state(server_id, stages) for server_id in self.listed)

    def waiting(self) -> dict[str, int]:
        """Return how many there are in each list."""
        return {
            "wait_add": len(self._wait_add),
            "wait_register": len(self._wait_register),
            "wait_dial": len(self._new) + len(self._due),
            "futures": len(self._futures),
            "wait_reconnect": len(self._wait_reconnect),
            "http": len(self._http),
        }

    # --- what HTTP callbacks do -------------------------------------------------------------------

    def refresh(self, servers: ServerList, source: str = "server") -> None:
        """Take a new list: dial what is new, close what is gone, both for what has moved."""
        self._fetching = False
        before, self.listed = self.listed, servers.servers
        self.version, self.config_source = servers.version, source
        if source == "server":
            self.config_failure = ""
        gone = [server_id for server_id in self._configs if server_id not in servers.servers]
        moved: dict[int, Entry] = {}
        for server_id, entry in servers.servers.items():
            known = self._configs.get(server_id)
            if known is not None and known is not entry and not known.same_place(entry):
                moved[server_id] = entry
        self._forget(
            dict.fromkeys(gone, "it is not configured any more")
            | dict.fromkeys(moved, "its address or type has changed")
        )
        for server_id in gone:
            del self._configs[server_id]
        for server_id in before.keys() - servers.servers.keys():
            self.failures.pop(server_id, None)
        for server_id, entry in servers.servers.items():
            known = self._configs.get(server_id)
            self._configs[server_id] = entry
            if known is None or server_id in moved:
                self._dial(entry)
        if before.keys() != servers.servers.keys():
            self._out.append(e.Known(tuple(servers.servers)))

    def load_failed(self, why: str) -> None:
        """End a question without an answer; without any configuration, ask again soon."""
        self._fetching = False
        self.config_failure = why
        if self.version is None:
            self._load_in_ms = min(self._back_off_ms, self._periods.load_config_ms)
            self._back_off_ms *= 2
        self._say("warning", f"the configuration server gave no list: {why}")

    # --- inputs -----------------------------------------------------------------------------------

    def _book(self, one: e.Input) -> None:
        match one:
            case e.Connected(attempt, link):
                self._connected(attempt, link)
            case e.ConnectFailed(attempt, why) if attempt in self._futures:
                self._futures[attempt].failure = why
            case e.ConnectFailed():
                pass  # it was given up
            case e.CameIn(link, server_id):
                self._new_connected(server_id, link)
            case e.Answered(link, max_online):
                self._answered(link, max_online)
            case e.Closed(link, why):
                self._closed(link, why)
            case e.HttpDone():
                self._http.append(one)
            case e.Asked(what, server_id, done):
                done(self._asked(what, server_id))

    def _connected(self, attempt: int, link: int) -> None:
        future = self._futures.get(attempt)
        if future is None:
            self._out.append(e.CloseLink(link, "nobody wants this connection any more"))
        else:
            future.link = link
            self._new_connected(future.id, link)

    def _answered(self, link: int, max_online: int) -> None:
        for waiting in self._wait_register:
            if waiting.link == link:
                waiting.max_online = max_online

    def _new_connected(self, server_id: int, link: int) -> None:
        entry = self._configs.get(server_id)
        if entry is None:
            self._say("warning", f"server {server_id} is not configured: its link is closed")
            self._out.append(e.CloseLink(link, "not configured"))
            return
        left_ms = self._periods.register_timeout_ms
        self._wait_add.append(_Waiting(link, server_id, entry.type, left_ms))

    def _closed(self, link: int, why: str) -> None:
        for waiting in (*self._wait_add, *self._wait_register):
            if waiting.link == link:
                waiting.failure = waiting.failure or why
        server_id = self._by_link.get(link)
        if server_id is not None:
            self._say("warning", f"server {server_id} has gone: {why}")
            self._gone(server_id, why)
            self._wait(server_id)

    def _asked(self, what: str, server_id: int) -> bool:
        if what == "reload":
            self._load_in_ms = 0
            return True
        if what == "reconnect":
            entry = self.listed.get(server_id)
            if entry is None:
                return False
            self._configs[server_id] = entry
            self._forget({server_id: "an operator wants it connected anew"})
            self._dial(entry)
            return True
        present = self.present.get(server_id)
        if present is None:
            return False
        drains = what == "drain"
        if present.drains != drains:
            present.drains = drains
            self._out.append(e.Drain(server_id, drains))
            self._say("info", f"server {server_id} {'drains' if drains else 'takes packets again'}")
        return True

    # --- the six steps ----------------------------------------------------------------------------

    def _tick_config(self, passed_ms: int) -> None:
        self._load_in_ms -= passed_ms
        if self._load_in_ms <= 0 and not self._fetching:
            self._load_in_ms = self._periods.load_config_ms
            self._fetching = True
            self._out.append(e.Fetch())

    def _tick_wait_add(self) -> None:
        for _ in range(min(WAIT_ADD_A_TICK, len(self._wait_add))):
            waiting = self._wait_add.popleft()
            self._wait_register.append(waiting)
            self._out.append(e.SendRegister(waiting.link, waiting.id, waiting.type))

    def _tick_register(self, passed_ms: int) -> None:
        staying: list[_Waiting] = []
        for waiting in reversed(self._wait_register):
            self._out.append(e.FlushLink(waiting.link))
            waiting.remaining_ms -= passed_ms
            if not waiting.failure and waiting.max_online is None and waiting.remaining_ms <= 0:
                waiting.failure = f"no answer within {self._periods.register_timeout_ms} ms"
            if waiting.failure:
                self._not_registered(waiting)
            elif waiting.max_online is not None:
                self._registered(waiting, waiting.max_online)
            else:
                staying.append(waiting)
        staying.reverse()
        self._wait_register = staying

    def _tick_future(self) -> None:
        failed: list[int] = []
        for attempt, future in [*self._futures.items()]:
            if future.failure is not None:
                failed.append(future.id)
                self.failures[future.id] = future.failure
                self._wait(future.id)
            if future.link is not None or future.failure is not None:
                del self._futures[attempt]
        if failed:
            shown = ", ".join(map(str, failed[:_SHOWN_IDS]))
            more = f" and {len(failed) - _SHOWN_IDS} more" if len(failed) > _SHOWN_IDS else ""
            why = self.failures[failed[0]]
            self._say("warning", f"cannot connect to {shown}{more}, trying again: {why}")

    def _tick_reconnect(self, passed_ms: int) -> None:
        if not self._wait_reconnect:
            return
        self._reconnect_in_ms -= passed_ms
        if self._reconnect_in_ms > 0:
            return
        self._reconnect_in_ms = self._periods.reconnect_ms
        waiting = [*self._wait_reconnect]
        self._wait_reconnect.clear()
        for server_id in reversed(waiting):
            entry = self._configs.get(server_id)
            if entry is None:
                self._say("info", f"server {server_id} is not configured any more: not dialled")
            elif server_id not in self._new:
                self._due[server_id] = None

    def _begin_dials(self) -> None:
        begun = [*islice(chain(self._new, self._due), DIALS_A_TICK)]
        for server_id in begun:
            self._new.pop(server_id, None)
            self._due.pop(server_id, None)
            entry = self._configs.get(server_id)
            if entry is not None and server_id not in self.present:
                self._attempt += 1
                self._futures[self._attempt] = _Future(server_id)
                self._out.append(e.Dial(self._attempt, server_id, entry.host, entry.port))

    def _tick_http(self) -> None:
        for _ in range(min(HTTP_A_TICK, len(self._http))):
            done = self._http.popleft()
            try:
                done.callback(self)
            except Exception as error:  # noqa: BLE001  (one bad answer must not stop the others)
                self._say("warning", f"HTTP callback {done.name} failed: {error}")

    # --- inside -----------------------------------------------------------------------------------

    def _registered(self, waiting: _Waiting, max_online: int) -> None:
        server_id = waiting.id
        older = self.present.pop(server_id, None)
        if older is not None:
            self._say("warning", f"server {server_id} is registered on two links: the newer stays")
            self._by_link.pop(older.link, None)
            self._out.append(e.CloseLink(older.link, "a newer link has taken its place"))
        server = Other(server_id, waiting.type, max_online)
        worker = server_id % self._periods.workers
        others = {other_id: one.server for other_id, one in self.present.items()}
        self.present[server_id] = Present(waiting.link, server, worker)
        self._by_link[waiting.link] = server_id
        self.failures.pop(server_id, None)
        self._wait_reconnect.pop(server_id, None)
        self._out.append(e.NewServerNotice(server))
        self._out.append(e.RegisterNotice(worker, waiting.link, server, others))
        self._say("info", f"server {server_id} of type {waiting.type} is registered")

    def _not_registered(self, waiting: _Waiting) -> None:
        self._say("warning", f"server {waiting.id} did not register: {waiting.failure}")
        self._out.append(e.CloseLink(waiting.link, waiting.failure))
        if waiting.id not in self.present:
            self.failures[waiting.id] = waiting.failure
            self._configs.pop(waiting.id, None)

    def _forget(self, whys: Mapping[int, str]) -> None:
        """Close every link of these servers and end every attempt to get one."""
        if not whys:
            return
        for attempt, future in [*self._futures.items()]:
            if future.id in whys:
                del self._futures[attempt]
                if future.link is None:
                    self._out.append(e.CancelDial(attempt))
        for waiting in (*self._wait_add, *self._wait_register):
            if waiting.id in whys:
                self._out.append(e.CloseLink(waiting.link, whys[waiting.id]))
        self._wait_add = deque(one for one in self._wait_add if one.id not in whys)
        self._wait_register = [one for one in self._wait_register if one.id not in whys]
        for server_id, why in whys.items():
            for waits in (self._wait_reconnect, self._due, self._new):
                waits.pop(server_id, None)
            if server_id in self.present:
                link = self.present[server_id].link
                self._gone(server_id, why)
                self._out.append(e.CloseLink(link, why))
                self._say("info", f"server {server_id} is closed: {why}")

    def _gone(self, server_id: int, why: str) -> None:
        present = self.present.pop(server_id)
        self._by_link.pop(present.link, None)
        self.failures[server_id] = why
        self._out.append(e.GoneNotice(server_id, present.link, why))

    def _wait(self, server_id: int) -> None:
        entry = self._configs.get(server_id)
        if entry is None or entry.host:
            self._wait_reconnect[server_id] = None

    def _dial(self, entry: Entry) -> None:
        """Connect, now or when a tick has room for it."""
        if entry.host:
            self._new[entry.id] = None

    def _say(self, level: str, text: str) -> None:
        self._out.append(e.Say(level, text))
