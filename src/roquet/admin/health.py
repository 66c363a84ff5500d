"""What is wrong with a cluster, the worst first: for people, by whatever front they look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import Refused, RoquetError
from roquet.base.times import up_text

if TYPE_CHECKING:
    from roquet.admin import Admin


_LEFT = (
    "it left and is not back: what only it has cannot be read; start it, or if it was taken away"
    " for good: roquet broker forget {}"
)


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
            rows += [(level, where, text) for level, text in await _look(admin, address)]
        if data.master is not None and name in drained:
            text = f"drained: producers send it nothing; back: roquet broker undrain {name}"
            rows.append(("warning", name, text))
    rows.sort(key=lambda row: ("problem", "warning", "fine").index(row[0]))
    return rows


async def _look(admin: Admin, address: str) -> list[tuple[str, str]]:
    """Return what there is to say of one broker, each as level and text."""
    try:
        found = await admin.brokers.runtime(address)
    except RoquetError as error:
        said = "refuses to say how it is" if isinstance(error, Refused) else "does not answer"
        return [("problem", f"{address} {said}: {error}")]
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
