"""The broker's calls to name servers: it registers with all of them, and takes its leave.

Settled in docs: in parallel to every configured name server at start, every 30 s, and when topics
change; the unreachable are tried again next round; nothing is sent once a shutdown has begun.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

from roquet.base.config import setting
from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable
from roquet.model.data_version import DataVersion
from roquet.model.topic import READ_WRITE
from roquet.protocol.bodies.stats import decode_kv_table
from roquet.protocol.bodies.topics import TopicTableBody, encode_data_version
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers.namesrv import (
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnRegisterBrokerRequest,
)
from roquet.protocol.hosts import split_addresses
from roquet.protocol.registration.body import RegisterBody, crc32_of
from roquet.service.background import Tasks
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from roquet.base.clock import Clock
    from roquet.broker.network.name_server_scan import NameServerScan
    from roquet.broker.state import BrokerState, Identity
    from roquet.model.topic import TopicConfig
    from roquet.store.tables.topics import TopicTable

log = logging.getLogger(__name__)

T = TypeVar("T")

UNREGISTER_S = 3.0
PAUSES_MS = (1_000, 2_000, 4_000, 8_000, 16_000)
"""After each further failure to reach such a name server."""
_REMARK_MAX = 500
AT_ONCE = 400
"""Topics above which a registration is encoded in a thread: some four milliseconds."""


def _addresses_fault(text: str | None) -> str | None:
    try:
        split_addresses(text or "")
    except ValueError as error:
        return f"{error}; a list looks like 192.168.0.1:9876;192.168.0.2:9876"
    return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationConfig:
    """Where, how often and how the broker registers."""

    name_servers: str | None = setting(
        "namesrvAddr", None, "Name servers, separated by `;`.", check=_addresses_fault
    )
    period_ms: int = setting(
        "registerNameServerPeriod", 30_000, "Between registrations (10 s to 60 s).", unit="ms"
    )
    timeout_ms: int = setting(
        "registerBrokerTimeoutMills",
        24_000,
        "Limit of a registration.",
        unit="ms",
        low=1,
        live=True,
    )
    force: bool = setting(
        "forceRegister",
        True,
        "Whether every round registers, also when nothing changed.",
        live=True,
    )
    compressed: bool = setting(
        "compressedRegister", False, "Whether the body is compressed.", live=True
    )
    scans: bool = setting(
        "isScanAvailableNameSrv",
        True,
        "Whether the broker connects to its name servers at the start and every"
        " `connectTimeoutMillis`, ten times a second at most, and registers only with those that"
        " it reached.",
    )

    @property
    def period_s(self) -> float:
        """The period in seconds, within Java's limits."""
        return min(max(self.period_ms, 10_000), 60_000) / 1000


class Caller(Protocol):
    """Asks peers: what else talks to one needs no more of the remoting client."""

    async def call(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
        """Ask the peer at `host:port`."""
        ...


class NameServers(Caller, Protocol):
    """What registration needs of the remoting client."""

    def key_of(self, address: str) -> int | None:
        """Return what tells the open connection to `host:port` from others; None: none is open."""
        ...


@dataclasses.dataclass(slots=True)
class _Missed:
    """A name server that could not be told."""

    failures: int = 0
    next_ms: int = 0
    """When it is tried again, by the steady clock."""


class Registration:
    """Keeps the name servers informed."""

    def __init__(
        self,
        *,
        caller: NameServers,
        identity: Identity,
        topics: TopicTable,
        state: BrokerState,
        rules: RegistrationConfig,
        clock: Clock,
        on_result: Callable[[str | None], None],
        on_master: Callable[[str | None, str | None], None] | None = None,
        scan: NameServerScan | None = None,
    ) -> None:
        """`on_result` is told after each round: None, or why no name server knows the broker.

        `on_master` is told the addresses of a slave's master for clients and for slaves. Rounds
        leave out name servers that the last `scan` did not reach.
        """
        self._scan = scan
        self._on_master = on_master
        self._caller = caller
        self._identity = identity
        self._topics = topics
        self._state = state
        self._rules = rules
        self._on_result = on_result
        self._addresses = split_addresses(rules.name_servers or "")
        self._tasks = Tasks()
        self._changed: set[str] = set()
        self._all_changed = False
        self._telling = False
        self._stopped = True
        self._clock = clock
        self._told: dict[str, int | None] = {}
        """By name server, the connection by which it was told last."""
        self._missed: dict[str, _Missed] = {}
        self._started_ms = clock.now_ms()
        self._body: tuple[object, bytes] | None = None
        self._encoding = asyncio.Lock()
        self._warnings = RateLog(log, clock)

    def follow(self, rules: RegistrationConfig) -> None:
        """Register by other settings from now on; the name servers stay those of the start."""
        self._rules = rules
        self._body = None

    async def start(self) -> None:
        """Register for the first time; a name server that is away is tried again later."""
        self._stopped = False
        if not self._addresses:
            log.warning("no name server is known (namesrvAddr): no client finds this broker")
        await self.scan()
        await self.register()

    async def stop(self) -> None:
        """Say goodbye to every name server, three seconds each, and send nothing afterwards."""
        self._stopped = True
        await self._tasks.stop()
        await self._all(self._unregister, UNREGISTER_S, "unregister from")

    async def scan(self) -> None:
        """Connect to name servers that have no connection: the action of a timer."""
        if self._scan is None or self._stopped:
            return
        for address in await self._scan.look(self._addresses):
            # It is registered with at the next second, however long the pause had become.
            self._missed.pop(address, None)

    async def register(self) -> None:
        """Tell every name server all topics: the action of a timer."""
        if self._stopped:
            return
        if not self._addresses:
            self._on_result(None)
            return
        timeout_s = self._rules.timeout_ms / 1000
        tables = await self._all(self._register_with, timeout_s, "register with")
        self._on_result(None if tables else "no name server took the registration")
        orders = next((table for table in tables if table is not None), None)
        if orders is not None:
            self._topics.mark_ordered(orders)

    async def register_again(self) -> None:
        """Tell name servers that were missed or lost their connection: the action of a timer."""
        if self._stopped:
            return
        now_ms = self._clock.steady_ms()
        due = [it for it in self._addresses if self._is_lost(it) and self._is_due(it, now_ms)]
        if not due:
            return
        timeout_s = self._rules.timeout_ms / 1000
        if await self._all(self._register_with, timeout_s, None, due):
            self._on_result(None)
        for address in due:
            if self._is_lost(address):
                missed = self._missed.setdefault(address, _Missed())
                pause_ms = PAUSES_MS[min(missed.failures, len(PAUSES_MS) - 1)]
                missed.next_ms = self._clock.steady_ms() + pause_ms
                missed.failures += 1
            else:
                self._missed.pop(address, None)
                log.info("registered again with %s", address)

    def _is_lost(self, address: str) -> bool:
        told_by = self._told.get(address)
        return told_by is None or told_by != self._caller.key_of(address)

    def _is_due(self, address: str, now_ms: int) -> bool:
        missed = self._missed.get(address)
        return missed is None or now_ms >= missed.next_ms

    def use(self, addresses: tuple[str, ...]) -> None:
        """Register with these name servers from now on, and do it soon."""
        self._addresses = addresses
        self.topics_changed(())

    def topics_changed(self, names: Collection[str]) -> None:
        """Tell the name servers soon about these topics (none named: about all)."""
        self._changed.update(names)
        self._all_changed |= not names
        if not self._telling and not self._stopped and self._addresses:
            self._telling = True
            self._tasks.spawn(self._tell_changes(), "register changed topics")

    async def _tell_changes(self) -> None:
        try:
            while self._telling and not self._stopped:
                changed, self._changed = self._changed, set()
                whole, self._all_changed = self._all_changed, False
                known = {name: it for name in changed if (it := self._topics.get(name))}
                if whole or not known:
                    await self.register()
                else:
                    body = await self._encoded(known)
                    send = functools.partial(self._send, body)
                    await self._all(send, self._rules.timeout_ms / 1000, "register topics with")
                self._telling = bool(self._changed) or self._all_changed
        finally:
            self._telling = False

    # --- one name server ---------------------------------------------------------------------

    async def _register_with(self, address: str) -> Mapping[str, str] | None:
        # Forgotten first: who is not reached now is tried again, however long its line stands.
        self._told.pop(address, None)
        orders = None
        if self._rules.force or await self._is_news_for(address):
            orders = await self._send(await self._full_body(), address)
        self._told[address] = self._caller.key_of(address)
        return orders

    async def _is_news_for(self, address: str) -> bool:
        """Ask whether this name server's table differs; no answer counts as yes."""
        header = QueryDataVersionRequest(
            broker_name=self._identity.name,
            broker_addr=self._identity.address,
            cluster_name=self._identity.cluster,
            broker_id=self._identity.broker_id,
        )
        command = Command(
            RequestCode.QUERY_DATA_VERSION,
            ext=header.encode(),
            body=encode_data_version(self._topics.version),
            language="JAVA",
        )
        try:
            answer = await self._caller.call(address, command)
            self._say_remark(address, answer)
            return bool(QueryDataVersionResponse.decode(answer.ext).changed)
        except (RoquetError, ValueError):
            return True

    async def _send(self, body: bytes, address: str) -> Mapping[str, str] | None:
        header = RegisterBrokerRequest(
            broker_name=self._identity.name,
            broker_addr=self._identity.address,
            cluster_name=self._identity.cluster,
            ha_server_addr=self._identity.ha_address,
            broker_id=self._identity.broker_id,
            enable_acting_master=False,
            compressed=self._rules.compressed,
            body_crc32=crc32_of(body),
        )
        command = Command(
            RequestCode.REGISTER_BROKER, ext=header.encode(), body=body, language="JAVA"
        )
        if self._stopped:
            # A round that was under way: after the goodbye nothing may bring the broker back.
            raise Unreachable("the broker is stopping")
        answer = await self._caller.call(address, command, self._rules.timeout_ms / 1000)
        if answer.code != ResponseCode.SUCCESS:
            raise Refused(answer.code, answer.remark or "")
        self._say_remark(address, answer)
        if self._on_master is not None:
            told = RegisterBrokerResponse.decode(answer.ext)
            if told.master_addr:
                self._on_master(told.master_addr, told.ha_server_addr)
        if not answer.body:
            return None
        try:
            return decode_kv_table(answer.body)
        except JsonError as error:
            log.warning("order configuration of %s is not used: %s", address, error)
            return None

    def _say_remark(self, address: str, answer: Command) -> None:
        """Log what a name server of ours remarks: that another broker has this name and id."""
        if answer.remark:
            self._warnings.warning(address, f"name server {address}: {answer.remark[:_REMARK_MAX]}")

    async def _unregister(self, address: str) -> None:
        header = UnRegisterBrokerRequest(
            broker_name=self._identity.name,
            broker_addr=self._identity.address,
            cluster_name=self._identity.cluster,
            broker_id=self._identity.broker_id,
        )
        command = Command(RequestCode.UNREGISTER_BROKER, ext=header.encode(), language="JAVA")
        await self._caller.call(address, command, UNREGISTER_S)

    # --- all name servers --------------------------------------------------------------------

    async def _all(
        self,
        ask: Callable[[str], Awaitable[T]],
        timeout_s: float,
        what: str | None,
        addresses: Collection[str] | None = None,
    ) -> list[T]:
        """Ask all name servers, or those given, at once; return the answers.

        The others are named in one line, where `what` says what could not be done.
        """
        missed: list[str] = []
        # Those that are called again by themselves are tried whatever the scan says.
        scan = self._scan if addresses is None and not self._stopped else None

        async def one(address: str) -> list[T]:
            why = None if scan is None else scan.why_not(address)
            if why is not None:
                self._told.pop(address, None)
                missed.append(f"{address} ({why})")
                return []
            try:
                async with asyncio.timeout(timeout_s):
                    return [await ask(address)]
            except (Unreachable, OutcomeUnknown, Refused, TimeoutError, OSError) as error:
                missed.append(f"{address} ({str(error) or 'too late'})")
                return []

        answers = await asyncio.gather(*(one(address) for address in addresses or self._addresses))
        if missed and what:
            log.warning("could not %s %s", what, ", ".join(missed))
        return [answer for found in answers for answer in found]

    # --- the body ----------------------------------------------------------------------------

    async def _full_body(self) -> bytes:
        """Return all topics, encoded once for as long as they do not change."""
        async with self._encoding:
            topics = self._topics.all()
            key = (topics, self._state.permission)
            if self._body is None or self._body[0] != key:
                self._body = (key, await self._encoded(topics))
            return self._body[1]

    async def _encoded(self, topics: Mapping[str, TopicConfig]) -> bytes:
        """Return the body of a registration; clients do not wait while a long one is encoded."""
        # What other threads must not see change is looked at here.
        said = (topics, self._topics.version, self._state.permission)
        if len(topics) <= AT_ONCE:
            return self._encode(*said)
        return await asyncio.to_thread(self._encode, *said)

    def _encode(self, topics: Mapping[str, TopicConfig], version: DataVersion, mask: int) -> bytes:
        if mask != READ_WRITE:
            topics = {
                name: dataclasses.replace(config, perm=config.perm & mask)
                for name, config in topics.items()
            }
        table = TopicTableBody(
            topics=topics,
            version=version,
            mapping_version=DataVersion(timestamp=self._started_ms),
        )
        return RegisterBody(table=table).encode(compressed=self._rules.compressed)
