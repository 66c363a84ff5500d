"""The pair as tools and other brokers see it (spec: ha §4, broker (c))."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.broker.api.admin import MasterAddresses
from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol.bodies.replication import FollowInfo, HaStatusBody, SlaveInfo
from roquet.protocol.hosts import split_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.broker.api.caller import Caller
    from roquet.broker.state import BrokerState, Identity
    from roquet.ha.log import ReplicatedLog
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
        log: ReplicatedLog,
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

    def status(self, caller: Caller) -> HaStatusBody:
        """Return who copies from this broker, or from whom it copies."""
        del caller
        return self._as_slave() if self._state.is_slave else self._as_master()

    def addresses(self, caller: Caller) -> MasterAddresses:
        """Return where this broker is, if it is a master."""
        del caller
        if self._state.is_slave:
            return MasterAddresses()
        return MasterAddresses(
            address=self._identity.address,
            ha_address=self._identity.ha_address,
            flushed=self._log.vouched,
        )

    def follow_master(self, master: MasterAddresses, caller: Caller) -> None:
        """Let a slave copy from a master. Raises Refusal."""
        del caller
        if not self._state.is_slave:
            raise Refusal(Reason.FAILED, "this broker is a master and copies nobody")
        for address in (master.ha_address, master.address):
            _check(address)
        self._learn(master.address, master.ha_address)
        if master.flushed is not None:
            self._master_flush_offset = master.flushed

    def min_id_changed(
        self, broker_name: str | None, broker_id: int | None, master: MasterAddresses
    ) -> None:
        """Take a name server's word of who leads the group now; a slave learns its master.

        Raises Refusal for an address that is none.
        """
        if self._state.is_slave and broker_name == self._identity.name:
            if broker_id == 0:
                for address in (master.ha_address, master.address):
                    _check(address)
                self._learn(master.address, master.ha_address)
            log.info("the lowest broker id of the group is %s", broker_id)

    def note_flushed(self, offset: int) -> None:
        """Take the master's flushed offset; it is shown, nothing depends on it."""
        if self._state.is_slave:
            self._master_flush_offset = offset

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
        raise Refusal(Reason.INVALID_ARGUMENT, f"address: {error}") from error
