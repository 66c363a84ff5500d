"""Brokers with their settings, name servers, and producers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from roquet.base.config import HIDDEN, as_properties, settings
from roquet.base.errors import NotFound, RoquetError, UsageError
from roquet.broker.config import BrokerConfig
from roquet.console.context import each
from roquet.console.declared import Done
from roquet.console.views.overview import broker_rows, role_text
from roquet.console.views.paging import page_of
from roquet.console.web.render import to
from roquet.namesrv.config import NamesrvConfig
from roquet.protocol.versions import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.console.context import Context
    from roquet.console.declared import Data

_SECRET = re.compile(r"secret|passw|token|credential|access.?key|private.?key", re.IGNORECASE)


async def brokers(context: Context, _: Data) -> Data:
    """List brokers with traffic, disk and replication."""
    return {"rows": await broker_rows(context)}


async def broker(context: Context, given: Data) -> Data:
    """Show a broker: its settings beside their defaults, and what it says of itself."""
    address = given["address"]
    name, role = await _known(context, address)
    runtime, config = await each(
        (context.admin.brokers.runtime(address), context.admin.brokers.config(address))
    )
    if isinstance(config, RoquetError):
        raise config
    rows = setting_rows(config, BrokerConfig)
    return {
        "address": address,
        "name": name,
        "role": role,
        "settings": [it for it in rows if given["all"] or it["differs"]],
        "all": given["all"],
        "count": len(rows),
        "differing": sum(it["differs"] for it in rows),
        "runtime": {"error": str(runtime)} if isinstance(runtime, RoquetError) else dict(runtime),
    }


def setting_rows(config: Mapping[str, str], kind: type[Any]) -> list[dict[str, Any]]:
    """Return settings with default and meaning as far as they are known; secrets as stars."""
    about = {it.java: it for _, it, _ in settings(kind)}
    defaults = as_properties(kind())
    rows: list[dict[str, Any]] = []
    for name, value in sorted(config.items()):
        row = about.get(name)
        is_secret = bool(_SECRET.search(name)) or (row is not None and row.secret)
        default = defaults.get(name, "") if row is not None else None
        rows.append(
            {
                "name": name,
                "value": HIDDEN if is_secret and value else value,
                "default": default,
                "differs": default is None or value != default,
                "source": _source(row is not None, value == default),
                "live": row is not None and row.live and not is_secret,
                "about": "" if row is None else row.doc,
                "unit": "" if row is None else row.unit,
                "choices": [] if row is None else list(row.choices),
            }
        )
    return rows


def _source(is_known: bool, is_default: bool) -> str:
    if not is_known:
        return "of this broker"
    return "default" if is_default else "set"


async def set_broker(context: Context, given: Data) -> Done:
    """Change one setting of a running broker."""
    address = given["address"]
    await _known(context, address)
    key, value = given["key"], given["value"] or ""
    live = {it.java for _, it, _ in settings(BrokerConfig) if it.live and not it.secret}
    if key not in live or _SECRET.search(key):
        raise UsageError(f"{key[:80]} cannot be changed while a broker runs")
    before = await context.admin.brokers.config(address)
    await context.admin.brokers.set_config(address, {key: value})
    text = f"{key}={value} at {address}, was {before.get(key, 'not set')}"
    return Done(text, to("/broker", address=address, all=given["all"] or None))


async def drain(context: Context, given: Data) -> Done:
    """Have producers leave a broker."""
    count = await context.admin.brokers.drain(given["name"])
    return Done(f"{given['name']}: producers leave it, {count} topics are read-only", "/brokers")


async def undrain(context: Context, given: Data) -> Done:
    """Have producers come back to a broker."""
    count = await context.admin.brokers.undrain(given["name"])
    return Done(f"{given['name']}: {count} topics can be written again", "/brokers")


async def _known(context: Context, address: str) -> tuple[str, str]:
    """Return name and role of a broker of this cluster. Raises NotFound for any other address."""
    for name, data in (await context.admin.brokers.cluster()).brokers.items():
        for number, found in data.addresses.items():
            if found == address:
                return name, role_text(number)
    raise NotFound(f"{address[:80]} is no broker of this cluster")


async def name_servers(context: Context, _: Data) -> Data:
    """List name servers with their settings."""
    rows: list[dict[str, Any]] = []
    addresses = context.admin.name_servers.addresses
    found = await each(context.admin.name_servers.config_of(it) for it in addresses)
    for address, config in zip(addresses, found, strict=True):
        if isinstance(config, RoquetError):
            rows.append({"address": address, "error": str(config), "settings": []})
        else:
            shown = setting_rows(config, NamesrvConfig)
            rows.append({"address": address, "error": "", "settings": shown})
    return {"rows": rows}


async def producers(context: Context, given: Data) -> Data:
    """List producers that are connected, by group."""
    masters = {
        name: data.master
        for name, data in (await context.admin.brokers.cluster()).brokers.items()
        if data.master is not None
    }
    tables = await each(context.admin.brokers.producers(it) for it in masters.values())
    found: dict[str, dict[str, Any]] = {}
    for broker_name, table in zip(masters, tables, strict=True):
        if isinstance(table, RoquetError):
            context.away[broker_name] = str(table)
            continue
        for group, members in table.items():
            for it in members:
                row = found.setdefault(
                    f"{group} {it.client_id}",
                    {
                        "group": group,
                        "client": it.client_id,
                        "address": it.remote_ip.removeprefix("/"),
                        "language": it.language,
                        "version": describe(it.version),
                        "last_ms": it.last_update,
                        "brokers": [],
                    },
                )
                row["brokers"].append(broker_name)
    chosen, about = page_of(sorted(found), given, 50)
    return {**about, "rows": [found[it] for it in chosen]}
