"""The pair as tools and other brokers see it: 905 to 908 (spec: ha §4, broker (c))."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.admin import MasterAddresses
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.broker import (
    ExchangeHAInfoRequest,
    ExchangeHAInfoResponse,
    NotifyMinBrokerIdChangeRequest,
    ResetMasterFlushOffsetRequest,
)
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.admin.replication import ReplicationAdmin


class ReplicationAdapter:
    """Shows the pair, and takes what other brokers and name servers say about it."""

    def __init__(self, replication: ReplicationAdmin, callers: Callers) -> None:
        self._replication = replication
        self._callers = callers

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
        body = self._replication.status(self._callers.of(request))
        return reply_to(request.command, body=body.encode())

    def exchange(self, request: Request) -> Command:
        """Take the master's addresses, or give one's own."""
        header = ExchangeHAInfoRequest.decode(request.command.ext)
        caller = self._callers.of(request)
        if header.master_ha_address is None:
            own = self._replication.addresses(caller)
            answer = ExchangeHAInfoResponse(
                master_ha_address=own.ha_address,
                master_flush_offset=own.flushed,
                master_address=own.address,
            )
            return reply_to(request.command, ext=answer.encode())
        master = MasterAddresses(
            address=header.master_address,
            ha_address=header.master_ha_address,
            flushed=header.master_flush_offset,
        )
        self._replication.follow_master(master, caller)
        return reply_to(request.command)

    def min_id_changed(self, request: Request) -> Command:
        """Take a name server's word of who leads the group now."""
        header = NotifyMinBrokerIdChangeRequest.decode(request.command.ext)
        master = MasterAddresses(address=header.min_broker_addr, ha_address=header.ha_broker_addr)
        self._replication.min_id_changed(header.broker_name, header.min_broker_id, master)
        return reply_to(request.command)

    def flush_offset(self, request: Request) -> Command:
        """Take the master's flushed offset."""
        header = ResetMasterFlushOffsetRequest.decode(request.command.ext)
        self._replication.note_flushed(header.master_flush_offset)
        return reply_to(request.command)
