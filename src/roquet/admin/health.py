"""What is wrong with a cluster, the worst first: for people, by whatever front they look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, RoquetError
from roquet.base.times import up_text
from roquet.protocol.hosts import host_of, is_within, networks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.admin import Admin

_LEFT = (
    "it left and is not back: what only it has cannot be read; start it, or if it was taken away"
    " for good: roquet broker forget {}"
)

_LOOPBACK = networks_of("127.0.0.0/8,::1/128")
_DOCKER = networks_of("172.17.0.0/16")
_NOWHERE = networks_of("0.0.0.0/32,::/128")
_CURE = "tell clients another: roquet broker -s brokerIP1=ADDRESS, or brokerIP1 in its file"


def address_trouble(
    address: str, name_servers: Iterable[str], error: RoquetError | None
) -> str | None:
    """Return what is wrong with the address that a broker tells clients, and what to type.

    `error` is how a request to it failed, if it did. What reaches us may still be out of reach of
    clients elsewhere: a loopback address, where name servers are on other machines, or one of
    Docker's own network.
    """
    if isinstance(error, (Refused, OutcomeUnknown)):
        error = None  # somebody is there
    host = host_of(address)
    asked = [host_of(it) for it in name_servers]
    wrong = ""
    if is_within(host, _NOWHERE):
        wrong = f"{host} is no address that anybody can connect to"
    elif is_within(host, _LOOPBACK):
        is_local = any(it == "localhost" or is_within(it, _LOOPBACK) for it in asked)
        if error is not None or not is_local:
            wrong = f"{host} is loopback, where other machines reach only themselves"
    elif is_within(host, _DOCKER):
        if error is not None or not any(is_within(it, _DOCKER) for it in asked):
            wrong = f"{host} is of Docker's own network, which other machines do not reach"
    elif error is not None:
        wrong = f"if the broker runs, nobody reaches it at {host} from here"
    return f"{wrong}: {_CURE}" if wrong else None


async def troubles(admin: Admin) -> list[tuple[str, str, str]]:
    """Return level (problem, warning, fine), place and text, the worst first."""
    rows: list[tuple[str, str, str]] = []
    known = await admin.brokers.cluster()
    if not known.brokers:
        rows.append(("problem", "cluster", "no broker is registered; start one: roquet broker"))
    rows += [
        ("problem", name, _LEFT.format(name))
        for name in await admin.brokers.departed()
        if name not in known.brokers
    ]
    drained = await admin.brokers.drained()
    for name, data in sorted(known.brokers.items()):
        if data.master is None:
            rows.append(("problem", name, "it has no master: nothing can be sent to it"))
        for number, address in sorted(data.addresses.items()):
            where = f"{name}:{number}"
            rows += [(level, where, text) for level, text in await _looked(admin, address)]
        if data.master is not None and name in drained:
            text = f"drained: producers send it nothing; back: roquet broker undrain {name}"
            rows.append(("warning", name, text))
    rows.sort(key=lambda row: ("problem", "warning", "fine").index(row[0]))
    return rows


async def _looked(admin: Admin, address: str) -> list[tuple[str, str]]:
    """Return what there is to say of one broker, each as level and text."""
    servers = admin.name_servers.addresses
    try:
        found = await admin.brokers.runtime(address)
    except RoquetError as error:
        said = "refuses to say how it is" if isinstance(error, Refused) else "does not answer"
        wrong = address_trouble(address, servers, error)
        more = "" if wrong is None else f"; {wrong}"
        return [("problem", f"{address} {said}: {error}{more}")]
    wrong = address_trouble(address, servers, None)
    rows = _said(found)
    if wrong is not None:
        return [row for row in rows if row[0] != "fine"] + [("warning", f"{address}: {wrong}")]
    return rows


def _said(found: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what a broker's own figures say of it."""
    rows: list[tuple[str, str]] = []
    full = float(found.get("commitLogDiskRatio") or 0)
    if full >= 0.85:
        rows.append(("problem", f"its disk is full to {full:.0%}: sends are refused from 90 % on"))
    elif full >= 0.75:
        rows.append(("warning", f"its disk is full to {full:.0%}: old files are deleted early"))
    damaged = int(found.get("damagedReads") or 0) + int(found.get("queueConflicts") or 0)
    if damaged:
        text = f"{damaged} damaged messages were passed over; see: roquet store check"
        rows.append(("problem", text))
    waits = int(found.get("timerWaits") or 0)
    if waits:
        rows.append(("warning", f"due timers had to wait {waits} times for the store"))
    up = up_text(found.get("runtime", "")) or "?"
    return rows or [("fine", f"{found.get('brokerVersionDesc', '?')}, up {up}")]
