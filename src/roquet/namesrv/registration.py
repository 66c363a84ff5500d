"""Brokers that come, live and leave: requests 103, 104, 322 and 904, lost connections, silence."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.model.data_version import DataVersion
from roquet.namesrv.checks import check_registration, invalid
from roquet.namesrv.kv import ORDER_TOPICS
from roquet.namesrv.notices import after_departure, after_registration, lowest
from roquet.namesrv.table import BrokerKey, Departure, Registration
from roquet.protocol.bodies.stats import encode_kv_table
from roquet.protocol.bodies.topics import TopicTableBody, decode_data_version, encode_data_version
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import reply_to
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers import broker as broker_headers
from roquet.protocol.headers import namesrv as headers
from roquet.protocol.registration import departed
from roquet.protocol.registration.body import RegisterBody, RegisterBodyError, crc32_of
from roquet.remoting.router import Route
from roquet.service.background import give_way
from roquet.service.process.collector import long_work
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.namesrv.config import Settings
    from roquet.namesrv.kv import KeyValues
    from roquet.namesrv.notices import MinimumNotices
    from roquet.namesrv.table import RouteTable
    from roquet.protocol.command import Command
    from roquet.remoting.router import Peer, Request

log = logging.getLogger(__name__)

LANE = "default"
LONG = 64 * 1024
"""Bytes of a body (some 400 topics) above which it is read in a thread."""
ZONE_FIELD = "__ZONE_NAME"
_NOTHING = RegisterBody(table=TopicTableBody(topics={}, version=DataVersion()))
"""What a registration without a body says."""


class Departures:
    """Brokers on their way out: gathered in one turn of the loop, forgotten in one step.

    Whoever registers applies them first, so a broker that left and came back at once stays.
    """

    def __init__(
        self, table: RouteTable, queue_max: int, notices: MinimumNotices, clock: Clock
    ) -> None:
        """Work on `table`; hold at most `queue_max` (Java: unRegisterBrokerQueueCapacity)."""
        self._table = table
        self._clock = clock
        self._notices = notices
        self._queue_max = queue_max
        self._waiting: list[Departure] = []

    def add(self, leaving: Departure) -> bool:
        """Queue one; return False when the queue is full."""
        if len(self._waiting) >= self._queue_max:
            return False
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.apply)
        self._waiting.append(leaving)
        return True

    def apply(self) -> None:
        """Forget those that wait."""
        leaving, self._waiting = self._waiting, []
        if leaving:
            log.info("forgetting %s", ", ".join(f"{d.name}@{d.address}" for d in leaving))
            before = lowest(self._table, {one.name for one in leaving})
            self._table.depart(leaving, self._clock.steady_ms())
            self._finish()
            if self._notices.is_on:
                gone = {one.name: one.address for one in leaving}
                self._notices.send(after_departure(self._table, before, gone))

    def _finish(self) -> None:
        """Do what is left of long departures, a step in each turn of the loop."""
        if self._table.advance():
            asyncio.get_running_loop().call_soon(self._finish)


class Registrations:
    """Handlers of what brokers send."""

    def __init__(
        self,
        table: RouteTable,
        settings: Settings,
        order: KeyValues,
        clock: Clock,
        notices: MinimumNotices,
    ) -> None:
        """Keep `table`; tell brokers the order topics of `order`, and who is the lowest."""
        self._notices = notices
        self._table = table
        self._settings = settings
        self._order = order
        self._clock = clock
        self._departures = Departures(table, settings.now.unregister_queue_max, notices, clock)
        self._peers: dict[int, Peer] = {}
        self._warnings = RateLog(log, clock)
        self._order_of_arrival = asyncio.Lock()

    def routes(self) -> list[Route]:
        """Return the rows of the request table."""
        return [
            Route((RequestCode.REGISTER_BROKER,), self.register, LANE),
            Route((RequestCode.UNREGISTER_BROKER,), self.unregister, LANE),
            Route((RequestCode.QUERY_DATA_VERSION,), self.query_version, LANE),
            Route((RequestCode.BROKER_HEARTBEAT,), self.heartbeat, LANE),
        ]

    async def start(self) -> None:
        """Nothing to acquire: what is known comes from brokers."""

    async def stop(self) -> None:
        """Nothing to keep: it comes again from brokers."""
        self._departures.apply()

    async def register(self, request: Request) -> Command:
        """Take a broker's registration in (103).

        A long body is read beside the loop, where clients' questions go on being answered;
        registrations and departures keep their order all the same.
        """
        command = request.command
        header = headers.RegisterBrokerRequest.decode(command.ext)
        async with self._order_of_arrival:
            port_min = self._settings.now.broker_port_min
            if not is_long(command):
                return await self._taken(request, read_checked(command, header, port_min))
            with long_work():
                said = await asyncio.to_thread(read_long, command, header, port_min)
                return await self._taken(request, said)

    async def _taken(self, request: Request, said: Registration) -> Command:
        if not request.peer.is_open:
            # It left while its body was read: nobody would ever notice that it is gone.
            raise Refused(ResponseCode.SYSTEM_ERROR, "the connection has ended")
        answer = self._take(request, said)
        # Answered, it is known whole, and later requests of the broker find it so.
        while self._table.advance():
            await give_way()
        return answer

    def _take(self, request: Request, said: Registration) -> Command:
        self._departures.apply()
        is_new = said.key not in self._table.live
        before = lowest(self._table, (said.name,))
        rival = self._rival_of(said.key, said.name, said.broker_id)
        answer = self._table.register(said, self._clock.steady_ms(), request.peer.key)
        if answer is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "register broker failed")
        if is_new and said.key in self._table.live:
            log.info(
                "broker %s/%s:%d at %s registered %d topics",
                *(said.cluster, said.name, said.broker_id, said.address, len(said.topics)),
            )
        if self._notices.is_on:
            self._notices.send(after_registration(self._table, before))
        self._peers[request.peer.key] = request.peer
        response = headers.RegisterBrokerResponse(
            ha_server_addr=answer.ha_address, master_addr=answer.master_address
        )
        body = self._order_topics()
        return reply_to(request.command, remark=rival, ext=response.encode(), body=body)

    def _rival_of(self, key: BrokerKey, name: str, broker_id: int) -> str | None:
        """Say which other living broker holds this name and id, if one does.

        Clients reach the one with the later state alone, and messages of the other are out of
        their reach. As with Java that is no error; an answer has a remark, which brokers of ours
        log, and the log here has a line.
        """
        entry = self._table.brokers.get(name)
        if entry is None or entry.cluster != key.cluster:
            return None
        holder = entry.addresses.get(broker_id)
        if holder is None or holder == key.address:
            return None
        if BrokerKey(key.cluster, holder) not in self._table.live:
            return None
        text = (
            f"{holder} and {key.address} are both broker {name}:{broker_id} of {key.cluster}:"
            " clients reach only one of them; stop one, or give it another brokerName"
        )
        self._warnings.warning((key.cluster, name, broker_id), text)
        return text

    def _order_topics(self) -> bytes:
        if not self._settings.now.return_order_topics:
            return b""
        values = self._order.namespace(ORDER_TOPICS)
        return b"" if values is None else encode_kv_table(values)

    async def unregister(self, request: Request) -> Command:
        """Have a broker forgotten (104); answered before it is.

        An operator may have one that left missed no more (`protocol.registration.departed`).
        """
        header = headers.UnRegisterBrokerRequest.decode(request.command.ext)
        if departed.asked(request.command.ext):
            log.info("%s is not missed any more, says %s", header.broker_name, request.peer.address)
            self._table.departed.back(header.broker_name)
            return reply_to(request.command)
        leaving = Departure(header.cluster_name, header.broker_name, header.broker_addr)
        async with self._order_of_arrival:
            if not self._departures.add(leaving):
                raise Refused(ResponseCode.SYSTEM_ERROR, "Unable to submit the unregister request")
        return reply_to(request.command)

    def query_version(self, request: Request) -> Command:
        """Say whether a broker's topics changed (322); asking is a sign of life."""
        command = request.command
        header = headers.QueryDataVersionRequest.decode(command.ext)
        key = BrokerKey(header.cluster_name, header.broker_addr)
        try:
            version = decode_data_version(command.body)
        except JsonError as error:
            raise invalid(f"the body is no data version: {error}") from error
        response = headers.QueryDataVersionResponse(
            changed=self._table.version_differs(key, version)
        )
        self._table.touch(key, self._clock.steady_ms())
        known = self._table.version_of(key)
        body = b"" if known is None else encode_data_version(known)
        rival = self._rival_of(key, header.broker_name, header.broker_id)
        return reply_to(command, remark=rival, ext=response.encode(), body=body)

    def heartbeat(self, request: Request) -> Command:
        """Note that a broker is alive (904); one that is not known stays so, and is told 0."""
        header = broker_headers.BrokerHeartbeatRequest.decode(request.command.ext)
        key = BrokerKey(header.cluster_name, header.broker_addr)
        self._table.touch(key, self._clock.steady_ms())
        return reply_to(request.command)

    def on_close(self, peer: Peer) -> None:
        """Forget the brokers that registered over a connection which has ended."""
        if self._peers.pop(peer.key, None) is None:
            return
        for leaving in self._table.on_channel(peer.key):
            self._forget(leaving)

    async def scan(self) -> None:
        """Forget brokers not heard of for too long, and close their connections."""
        now_ms = self._clock.steady_ms()
        self._table.departed.expire(now_ms - self._settings.now.departed_keep_ms)
        for leaving in self._table.silent(now_ms):
            log.warning("broker %s at %s has expired", leaving.name, leaving.address)
            self._forget(leaving)
            peer = self._peers.get(leaving.channel or 0)
            if peer is not None:
                peer.close("the broker has not been heard of for too long")

    def _forget(self, leaving: Departure) -> None:
        if not self._departures.add(leaving):
            # Only requests of strangers fill the queue; what we know ourselves is not dropped.
            self._departures.apply()
            self._departures.add(leaving)


def is_long(command: Command) -> bool:
    """Tell whether reading the body would keep the loop from its work; zlib hides its length."""
    return len(command.body) > LONG or command.body[:1] == b"\x78"


def read_long(
    command: Command, header: headers.RegisterBrokerRequest, port_min: int
) -> Registration:
    """Read and check a long registration, and make what the table will hold. Raises Refused."""
    return read_checked(command, header, port_min).with_rows()


def read_checked(
    command: Command, header: headers.RegisterBrokerRequest, port_min: int
) -> Registration:
    """Read a registration and check all that it says. Raises Refused."""
    said = read_registration(command, header)
    check_registration(said, port_min)
    return said


def read_registration(command: Command, header: headers.RegisterBrokerRequest) -> Registration:
    """Read a registration in any of its forms. Raises Refused when it is none."""
    if header.body_crc32 and header.body_crc32 != crc32_of(command.body):
        raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    try:
        body = _NOTHING
        if command.body:
            body = RegisterBody.decode(command.body, command.version, compressed=header.compressed)
    except RegisterBodyError as error:
        log.debug("registration of %r: %s", header.broker_name, error)
        raise Refused(ResponseCode.SYSTEM_ERROR, "Failed to decode RegisterBrokerBody") from error
    return Registration(
        cluster=header.cluster_name,
        name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_address=header.ha_server_addr,
        version=body.table.version,
        topics={topic.name: topic for topic in body.table.topics.values()},
        mappings=dict(body.table.mapping_info or {}),
        filter_servers=body.filter_servers,
        timeout_ms=header.heartbeat_timeout_millis,
        acting_master=header.enable_acting_master,
        zone=(command.ext or {}).get(ZONE_FIELD),
    )
