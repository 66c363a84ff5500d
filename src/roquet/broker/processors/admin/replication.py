"""The pair as tools and other brokers see it: 905 to 908 (spec: ha §4, broker (c))."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.protocol.bodies.replication import FollowInfo, HaStatusBody, SlaveInfo
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.broker import (
    ExchangeHAInfoRequest,
    ExchangeHAInfoResponse,
    NotifyMinBrokerIdChangeRequest,
    ResetMasterFlushOffsetRequest,
)
from roquet.protocol.hosts import split_address
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.broker.state import BrokerState, Identity
    from roquet.ha.log import Log
    from roquet.ha.master import HaMaster
    from roquet.ha.slave import HaSlave

log = logging.getLogger(__name__)

IN_SYNC_GAP = 256 * 1024 * 1024
"""A slave within it is shown as in sync."""


class ReplicationAdmin:
    """Shows the pair, and takes what other brokers and name servers say about it."""

    def __init__(
        self,
        *,
        identity: Identity,
        state: BrokerState,
        log: Log,
        master: HaMaster,
        slave: HaSlave,
        learn: Callable[[str | None, str | None], None],
    ) -> None:
        """`learn` takes the master's addresses for clients and for slaves."""
        self._identity = identity
        self._state = state
        self._log = log
        self._master = master
        self._slave = slave
        self._learn = learn
        self._master_flush_offset = 0

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.GET_BROKER_HA_STATUS,), self.status, "admin"),
            Route((RequestCode.EXCHANGE_BROKER_HA_INFO,), self.exchange, "admin"),
            Route((RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,), self.min_id_changed, "admin"),
            Route((RequestCode.RESET_MASTER_FLUSH_OFFSET,), self.flush_offset, "admin"),
        ]

    def status(self, request: Request) -> Command:
        """Return who copies from this broker, or from whom it copies."""
        body = self._as_slave() if self._state.is_slave else self._as_master()
        return reply_to(request.command, body=body.encode())

    def exchange(self, request: Request) -> Command:
        """Take the master's addresses, or give one's own."""
        header = ExchangeHAInfoRequest.decode(request.command.ext)
        if header.master_ha_address is None:
            if self._state.is_slave:
                return reply_to(request.command, ext=ExchangeHAInfoResponse().encode())
            answer = ExchangeHAInfoResponse(
                master_ha_address=self._identity.ha_address,
                master_flush_offset=self._log.vouched,
                master_address=self._identity.address,
            )
            return reply_to(request.command, ext=answer.encode())
        if not self._state.is_slave:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is a master and copies nobody")
        for address in (header.master_ha_address, header.master_address):
            _check(address)
        self._learn(header.master_address, header.master_ha_address)
        if header.master_flush_offset is not None:
            self._master_flush_offset = header.master_flush_offset
        return reply_to(request.command)

    def min_id_changed(self, request: Request) -> Command:
        """Take a name server's word of who leads the group now; a slave learns its master."""
        header = NotifyMinBrokerIdChangeRequest.decode(request.command.ext)
        if self._state.is_slave and header.broker_name == self._identity.name:
            if header.min_broker_id == 0:
                for address in (header.ha_broker_addr, header.min_broker_addr):
                    _check(address)
                self._learn(header.min_broker_addr, header.ha_broker_addr)
            log.info("the lowest broker id of the group is %s", header.min_broker_id)
        return reply_to(request.command)

    def flush_offset(self, request: Request) -> Command:
        """Take the master's flushed offset; it is shown, nothing depends on it."""
        header = ResetMasterFlushOffsetRequest.decode(request.command.ext)
        if self._state.is_slave:
            self._master_flush_offset = header.master_flush_offset
        return reply_to(request.command)

    def _as_master(self) -> HaStatusBody:
        end = self._log.limit
        slaves = tuple(
            SlaveInfo(
                address=slave.address,
                acked=slave.acked,
                behind=end - slave.acked,
                in_sync=end - slave.acked < IN_SYNC_GAP,
                bytes_per_second=slave.bytes_per_second,
                position=slave.position,
            )
            for slave in self._master.slaves
        )
        return HaStatusBody(
            is_master=True,
            max_offset=end,
            in_sync=self._master.replicas.following(end),
            slaves=slaves,
        )

    def _as_slave(self) -> HaStatusBody:
        link = self._slave.link
        follow = FollowInfo(
            master_address=self._slave.address or "",
            bytes_per_second=link.bytes_per_second if link else 0,
            max_offset=self._log.written,
            last_read_ms=link.last_read_ms if link else 0,
            last_write_ms=link.last_write_ms if link else 0,
            master_flush_offset=self._master_flush_offset,
        )
        return HaStatusBody(is_master=False, max_offset=0, in_sync=0, follow=follow)


def _check(address: str | None) -> None:
    try:
        split_address(address or "")
    except ValueError as error:
        raise Refused(ResponseCode.INVALID_PARAMETER, f"address: {error}") from error
