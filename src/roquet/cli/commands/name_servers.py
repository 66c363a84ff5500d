"""`roquet namesrv ls|config …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import NotFound, RoquetError
from roquet.cli import output
from roquet.cli.commands.asking import ask
from roquet.cli.exits import EXIT_LEFT_OUT
from roquet.cli.flags import settings_of

if TYPE_CHECKING:
    import argparse

    from roquet.admin import Admin


async def ls(admin: Admin, options: argparse.Namespace) -> int:
    """List name servers, and whether each answers."""
    rows: list[tuple[str, str]] = []
    silent = False
    for address in sorted(admin.name_servers.addresses):
        try:
            await admin.name_servers.config_of(address)
        except RoquetError as error:
            silent = True
            rows.append((address, output.plain(str(error))))
        else:
            rows.append((address, "answers"))
    output.listed(("name server", "state"), rows, options.output)
    return EXIT_LEFT_OUT if silent else 0


async def get_config(admin: Admin, options: argparse.Namespace) -> int:
    """Show settings of the name servers, all or one."""
    wanted = str(options.key or "")
    rows = [
        (address, key, output.plain(value))
        for address, found in (await admin.name_servers.config()).items()
        for key, value in sorted(found.items())
        if wanted in ("", key)
    ]
    if not rows:
        raise NotFound(f"name servers have no setting {wanted[:80]}")
    output.listed(("name server", "key", "value"), rows, options.output)
    return 0


async def set_config(admin: Admin, options: argparse.Namespace) -> int:
    """Change settings of every running name server."""
    changes = settings_of(options.change)
    shown = ", ".join(f"{key}={value}" for key, value in changes.items())
    await admin.name_servers.config()
    ask(f"{shown} at {', '.join(admin.name_servers.addresses)}", options)
    await admin.name_servers.set_config(changes)
    output.line(f"{shown}: set at {len(admin.name_servers.addresses)} name servers")
    return 0
