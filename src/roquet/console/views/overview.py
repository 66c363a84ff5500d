"""The state of the cluster, problems first; rates; and who did what."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from roquet.admin.health import address_trouble, troubles
from roquet.base.errors import RoquetError
from roquet.base.times import up_text
from roquet.console.context import each
from roquet.console.sampler import rate

if TYPE_CHECKING:
    from roquet.console.audit import Entry
    from roquet.console.context import Context
    from roquet.console.declared import Data
    from roquet.model.route import BrokerData

_BEHIND = 10
_ENTRIES = 50
_TARGET_MAX = 300


async def overview(context: Context, _: Data) -> Data:
    """Show problems, brokers with their traffic, and the groups that are behind most."""
    sampler = context.parts.sampler
    sampler.watched()
    found = await troubles(context.admin)
    problems = [row for row in found if row[0] != "fine"]
    behind = await _behind(context)
    problems += [
        ("warning", row["group"], f"behind by {row['lag']} messages with no member online")
        for row in behind
        if not row["members"]
    ]
    if not context.session.is_account:
        problems += [
            ("warning", it.subject, it.text)
            for it in list(context.parts.watch.alerts.open.values())[:_BEHIND]
            if it.kind == "lag"
        ]
    problems.sort(key=lambda row: row[0] != "problem")
    return {
        "problems": [{"level": it[0], "place": it[1], "text": it[2]} for it in problems],
        "brokers": await broker_rows(context),
        "behind": behind,
        "groups_seen": 0 if context.session.is_account else len(sampler.groups),
        "groups_known": 0 if context.session.is_account else sampler.known_groups,
        "is_sampled": not context.session.is_account,
        "now_ms": context.now_ms(),
    }


async def _behind(context: Context) -> list[dict[str, Any]]:
    """Return the groups that are behind most.

    Which they are the console has seen by its own account. An account of the cluster gets those of
    them that it may read, with the figures that it is given itself.
    """
    rows = context.parts.sampler.most_behind(_BEHIND)
    if not context.session.is_account:
        return rows
    groups = context.admin.groups
    lags = await each(groups.lag(row["group"]) for row in rows)
    online = await each(groups.connection(row["group"]) for row in rows)
    found: list[dict[str, Any]] = []
    for row, lag, members in zip(rows, lags, online, strict=True):
        if isinstance(lag, RoquetError) or isinstance(members, RoquetError) or not lag:
            continue
        count = 0 if members is None else len(members.connections)
        found.append({**row, "lag": lag, "members": count, "seen_ms": context.now_ms()})
    return found


async def rates(context: Context, _: Data) -> Data:
    """Return messages a second of the last minutes, in and out, of all masters together.

    An account of the cluster gets them where it may read the figures of every master.
    """
    context.parts.sampler.watched()
    points = list(context.parts.sampler.points)
    if context.session.is_account:
        brokers = context.admin.brokers
        masters = (await brokers.masters()).values()
        read = await each(brokers.runtime(it) for it in masters)
        if any(isinstance(it, RoquetError) for it in read):
            points = []
    return {
        "time_ms": [it[0] for it in points],
        "in": [it[1] for it in points],
        "out": [it[2] for it in points],
    }


async def broker_rows(context: Context) -> list[dict[str, Any]]:
    """Return each broker with its traffic, disk and replication."""
    known = (await context.admin.brokers.cluster()).brokers
    drained = await context.admin.brokers.drained()
    places = [
        (name, data, number, address)
        for name, data in sorted(known.items())
        for number, address in sorted(data.addresses.items())
    ]
    rows = await each(
        _broker_row(context, name, data, number, address, is_drained=name in drained)
        for name, data, number, address in places
    )
    return [it for it in rows if not isinstance(it, RoquetError)]


def role_text(number: int) -> str:
    """Return what a broker with this id is."""
    return "master" if number == 0 else f"slave {number}"


async def _broker_row(
    context: Context, name: str, data: BrokerData, number: int, address: str, *, is_drained: bool
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": name,
        "cluster": data.cluster,
        "role": role_text(number),
        "address": address,
        "drained": is_drained and number == 0,
        "version": "",
        "in": None,
        "out": None,
        "disk": None,
        "up": "",
        "replication": "",
        "error": "",
    }
    try:
        found = await context.admin.brokers.runtime(address)
    except RoquetError as error:
        wrong = address_trouble(address, context.admin.name_servers.addresses, error)
        return {**row, "error": str(error) if wrong is None else f"{error}; {wrong}"}
    return {
        **row,
        "version": found.get("brokerVersionDesc", "?"),
        "in": rate(found, "putTps"),
        "out": rate(found, "getTransferredTps"),
        "disk": _share(found.get("commitLogDiskRatio", "")),
        "up": up_text(found.get("runtime", "")),
        "replication": await _replication(context, address),
    }


async def _replication(context: Context, address: str) -> str:
    try:
        found = await context.admin.brokers.ha_status(address)
    except RoquetError as error:
        return f"unknown: {error}"
    if not found.is_master:
        return f"copies {found.follow.master_address}" if found.follow.master_address else "-"
    if not found.slaves:
        return "no slave"
    behind = max(it.behind for it in found.slaves)
    return f"{found.in_sync} of {len(found.slaves)} slaves in sync, {behind} bytes behind at most"


def _share(text: str) -> float | None:
    try:
        return round(float(text), 4)
    except ValueError:
        return None


async def audit(context: Context, given: Data) -> Data:
    """Return what was done, the newest first."""
    rows = context.parts.audit.rows()
    if given["q"]:
        rows = [it for it in rows if given["q"] in f"{it.who} {it.action} {it.target}"]
    return {
        "rows": [_entry(it) for it in rows[:_ENTRIES]],
        "q": given["q"],
        "count": len(rows),
        "broken": context.parts.audit.broken,
    }


def _entry(it: Entry) -> dict[str, Any]:
    target = " ".join(f"{name}={value}" for name, value in it.target.items())
    return {**dataclasses.asdict(it), "target": target[:_TARGET_MAX]}
