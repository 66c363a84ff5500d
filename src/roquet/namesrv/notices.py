"""Telling brokers that the lowest id under their name has changed (905; spec: namesrv).

A slave that has become the lowest serves what only the first of a name may do, until it hears that
a lower one is back. Only names with an acting master are told, and only when the setting is on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from roquet.base.errors import RoquetError
from roquet.namesrv.table import BrokerKey
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.headers.broker import NotifyMinBrokerIdChangeRequest
from roquet.service.background import Tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from roquet.namesrv.config import Settings
    from roquet.namesrv.table import BrokerEntry, RouteTable
    from roquet.remoting.client import Client

log = logging.getLogger(__name__)

SEND_S = 0.3


class Notice(NamedTuple):
    """One broker to tell, and what."""

    address: str
    header: NotifyMinBrokerIdChangeRequest


def lowest(table: RouteTable, names: Iterable[str]) -> dict[str, int]:
    """Return the lowest id of each of the names that somebody is registered under."""
    entries = ((name, table.brokers.get(name)) for name in names)
    return {name: min(it.addresses) for name, it in entries if it is not None and it.addresses}


def after_registration(table: RouteTable, before: Mapping[str, int]) -> Iterator[Notice]:
    """Return who has to be told after a registration: all but the new lowest."""
    for name, old in before.items():
        entry = table.brokers.get(name)
        if entry is not None and entry.addresses and min(entry.addresses) < old:
            yield from _notices(table, entry, None)


def after_departure(
    table: RouteTable, before: Mapping[str, int], gone: Mapping[str, str]
) -> Iterator[Notice]:
    """Return who has to be told after departures: all that remain. `gone`: name -> address."""
    for name, old in before.items():
        entry = table.brokers.get(name)
        if entry is not None and entry.addresses and min(entry.addresses) > old:
            yield from _notices(table, entry, gone.get(name))


def _notices(table: RouteTable, entry: BrokerEntry, offline: str | None) -> Iterator[Notice]:
    if not entry.acting_master:
        return
    first = min(entry.addresses)
    address = entry.addresses[first]
    live = table.live.get(BrokerKey(entry.cluster, address))
    header = NotifyMinBrokerIdChangeRequest(
        min_broker_id=first,
        broker_name=entry.name,
        min_broker_addr=address,
        offline_broker_addr=offline,
        ha_broker_addr=None if live is None else live.ha_address,
    )
    everybody = offline is not None or len(entry.addresses) == 1
    for broker_id, told in entry.addresses.items():
        if everybody or broker_id != first:
            yield Notice(told, header)


class MinimumNotices:
    """Sends the notices, one way, beside the loop's other work. A service."""

    def __init__(self, settings: Settings, client: Client) -> None:
        self._settings = settings
        self._client = client
        self._tasks = Tasks()

    @property
    def is_on(self) -> bool:
        """Whether brokers are told at all (notifyMinBrokerIdChanged)."""
        return self._settings.now.notify_min_broker_id

    async def start(self) -> None:
        """Be able to connect."""
        await self._client.start()

    async def stop(self) -> None:
        """End what is under way."""
        await self._tasks.stop(SEND_S)
        await self._client.stop()

    def send(self, notices: Iterable[Notice]) -> None:
        """Send them; a broker that cannot be reached finds out by its own looks."""
        for notice in notices:
            self._tasks.spawn(self._send(notice), f"notice to {notice.address}")

    async def _send(self, notice: Notice) -> None:
        command = Command(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, notice.header.encode())
        try:
            await self._client.call_one_way(notice.address, command, SEND_S)
        except RoquetError as error:
            log.info("%s was not told of the lowest id: %s", notice.address, error)
