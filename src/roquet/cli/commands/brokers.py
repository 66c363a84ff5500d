"""`roquet broker ls|status|config|drain|undrain`, `roquet cluster …`, `roquet ha …`."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from roquet.admin.health import troubles
from roquet.base.errors import NotFound, RoquetError, UsageError
from roquet.base.times import up_text
from roquet.cli import output
from roquet.cli.commands.asking import ask
from roquet.cli.exits import EXIT_LEFT_OUT
from roquet.cli.flags import settings_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from roquet.admin import Admin


async def say_when_none(admin: Admin, options: argparse.Namespace) -> None:
    """Say on the error output that a list is empty, and when no broker is registered that."""
    if not (await admin.brokers.cluster()).brokers:
        where = ";".join(admin.name_servers.addresses)
        output.error(
            f"no broker is registered at {where}: is one running? try: roquet broker -n '{where}'"
        )
    elif options.output == "table":
        output.note(output.NONE)


async def ls(admin: Admin, options: argparse.Namespace) -> int:
    """List brokers with their traffic."""
    rows: list[tuple[object, ...]] = []
    silent = False
    drained = await admin.brokers.drained()
    for name, data in sorted((await admin.brokers.cluster()).brokers.items()):
        for number, address in sorted(data.addresses.items()):
            role = "master" if number == 0 else f"slave {number}"
            try:
                found = await admin.brokers.runtime(address)
            except RoquetError as error:
                silent = True
                shown: tuple[object, ...] = (None, None, None, output.plain(str(error)))
            else:
                shown = (
                    found.get("brokerVersionDesc", "?"),
                    _rate(found, "putTps"),
                    _rate(found, "getTransferredTps"),
                    f"{_share(found, 'commitLogDiskRatio')} of the disk"
                    + (", drained" if number == 0 and name in drained else ""),
                )
            rows.append((data.cluster, name, role, address, *shown))
    head = (
        "cluster",
        "broker",
        "role",
        "address",
        "version",
        "in per second",
        "out per second",
        "state",
    )
    output.listed(head, rows, options.output, none="")
    if not rows:
        await say_when_none(admin, options)
    return EXIT_LEFT_OUT if silent else 0


async def status(admin: Admin, options: argparse.Namespace) -> int:
    """Show what a broker says of itself."""
    found = await admin.brokers.runtime(options.broker)
    if options.output == "table":
        output.line(await _summary(admin, options.broker, found))
        output.line("")
    output.pairs(found, options.output)
    return 0


async def _summary(admin: Admin, broker: str, found: Mapping[str, str]) -> str:
    """Return what an operator wants to know first, in one line."""
    where = broker
    for name, data in (await admin.brokers.cluster()).brokers.items():
        for number, address in data.addresses.items():
            if broker == address or (broker == name and number == 0):
                role = "master" if number == 0 else f"slave {number}"
                where = f"{name} ({address}): {role} in {data.cluster}"
    come, gone = _rate(found, "putTps") or 0, _rate(found, "getTransferredTps") or 0
    version = output.plain(found.get("brokerVersionDesc", "?"))
    up, full = up_text(found.get("runtime", "")) or "?", _share(found, "commitLogDiskRatio")
    rates = f"{come} messages in and {gone} out per second"
    return f"{where}, {version}, up {up}, {rates}, disk full to {full}"


async def get_config(admin: Admin, options: argparse.Namespace) -> int:
    """Show settings of a running broker, all or one."""
    found = await admin.brokers.config(options.broker)
    if options.key is not None:
        if options.key not in found:
            raise _no_setting(options.broker, options.key, found)
        found = {options.key: found[options.key]}
    output.pairs(found, options.output)
    return 0


async def set_config(admin: Admin, options: argparse.Namespace) -> int:
    """Change settings of a running broker, all or none."""
    changes = settings_of(options.change)
    before = await admin.brokers.config(options.broker)
    for key in changes:
        if key not in before and _meant(key, before):
            raise _no_setting(options.broker, key, before)
    await admin.brokers.set_config(options.broker, changes)
    for key, value in changes.items():
        output.line(f"{options.broker}: {key}={value}, was {before.get(key, 'not set')}")
    return 0


def _meant(key: str, known: Mapping[str, str]) -> str | None:
    spelled = {name.lower(): name for name in known}
    close = difflib.get_close_matches(key[:80].lower(), spelled, n=1, cutoff=0.75)
    return spelled[close[0]] if close else None


def _no_setting(broker: str, key: str, known: Mapping[str, str]) -> NotFound:
    meant = _meant(key, known)
    hint = f"did you mean {meant}?" if meant else f"try: roquet broker config get {broker}"
    return NotFound(f"{broker} has no setting {key[:80]}; {hint}")


async def drain(admin: Admin, options: argparse.Namespace) -> int:
    """Have producers leave a broker."""
    known = (await admin.brokers.cluster()).brokers
    if options.broker not in known:
        raise NotFound(f"no broker {options.broker}: there are {', '.join(known) or 'none'}")
    ask(f"producers would stop sending to {options.broker}; consumers go on", options)
    count = await admin.brokers.drain(options.broker)
    output.line(
        f"{options.broker}: {count} topics are read-only now; back: roquet broker undrain"
        f" {options.broker}"
    )
    return 0


async def undrain(admin: Admin, options: argparse.Namespace) -> int:
    """Have producers come back to a broker."""
    count = await admin.brokers.undrain(options.broker)
    output.line(f"{options.broker}: {count} topics can be written again")
    return 0


async def forget(admin: Admin, options: argparse.Namespace) -> int:
    """Have name servers forget a broker that left."""
    name = options.broker
    if name in (await admin.brokers.cluster()).brokers:
        raise UsageError(f"{name} is there: stop it first")
    if name not in await admin.brokers.departed():
        raise NotFound(f"no broker {name[:80]} is missed; try: roquet cluster health")
    ask(f"nobody would miss {name} any more, nor what only it has", options)
    await admin.brokers.forget(name)
    output.line(f"{name}: not missed any more")
    return 0


async def ha(admin: Admin, options: argparse.Namespace) -> int:
    """Show how far each slave has copied."""
    rows: list[tuple[object, ...]] = []
    for name, data in sorted((await admin.brokers.cluster()).brokers.items()):
        if options.broker not in (None, name):
            continue
        if data.master is None:
            # Its slaves are all that there is: nobody takes messages.
            rows += [
                (name, None, address, None, None, None, "no master")
                for _, address in sorted(data.addresses.items())
            ]
            continue
        found = await admin.brokers.ha_status(data.master)
        if not found.slaves:
            rows.append((name, data.master, None, found.max_offset, None, None, "no slave"))
        for slave in found.slaves:
            state = "in sync" if slave.in_sync else "behind"
            rate = round(slave.bytes_per_second / 2**20, 1)
            rows.append(
                (name, data.master, slave.address, found.max_offset, slave.behind, rate, state)
            )
    if options.broker is not None and not rows:
        raise NotFound(f"there is no broker {options.broker}; try: roquet broker ls")
    head = ("broker", "master", "slave", "log end", "bytes behind", "MiB per second", "state")
    output.listed(head, rows, options.output)
    return 0


async def role(admin: Admin, options: argparse.Namespace) -> int:
    """Have a running broker lead its group, or follow another one."""
    # A broker that does not answer is said before anybody is asked.
    await admin.brokers.runtime(options.broker)
    if options.role == "slave":
        name, number = "SLAVE", options.id
        ask(f"{options.broker} would take no more messages", options)
    else:
        name, number = "SYNC_MASTER" if options.sync else "ASYNC_MASTER", 0
        ask(f"{options.broker} would take messages: its old master must not any more", options)
    notes = await admin.brokers.set_role(options.broker, name, number)
    output.line(f"{options.broker}: {name}, id {number}")
    if notes:
        output.line(f"{options.broker}: {notes}")
    return 0


async def health(admin: Admin, options: argparse.Namespace) -> int:
    """Show what is wrong first; exit code 1 when something is."""
    rows = [(level, place, output.plain(text)) for level, place, text in await troubles(admin)]
    output.listed(("state", "where", "what"), rows, options.output)
    return 1 if any(row[0] == "problem" for row in rows) else 0


def _rate(found: Mapping[str, str], key: str) -> int | None:
    """Return the first of the three rates that a key has: that of the last 10 s."""
    text = found.get(key, "").split()
    return round(float(text[0])) if text else None


def _share(found: Mapping[str, str], key: str) -> str:
    text = found.get(key)
    return "?" if text is None else f"{float(text):.0%}"
