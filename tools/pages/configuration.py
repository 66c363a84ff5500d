"""Write docs/reference/configuration.md from the settings that the servers declare.

`python -m tools.pages.configuration` writes the page, `--check` says whether it is current.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roquet.base.config import Setting, settings
from roquet.broker.config import BrokerConfig
from roquet.namesrv.config import NamesrvConfig
from roquet.relay.config import RelayConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
HEAD = """\
# Settings

Written by `python -m tools.pages.configuration` from the declarations in the source; do not edit.

The names are those of RocketMQ's property files. The same setting is a flag (`-s listenPort=9876`)
and an environment variable (`ROQUET_LISTEN_PORT`); a flag wins over the environment, that over the
file, that over the default. *Live* settings may be changed while the server runs (`mqadmin
updateBrokerConfig`, `updateNamesrvConfig`). A key that RocketMQ has and this table has not is named
at start, and so is a key that nobody knows; [another page](java-settings.md) says why it is
missing.
"""
RELAY = """\
Keys of the relay's TOML file; the environment variable of `tick_ms` is `ROQUET_RELAY_TICK_MS`.
A key that nobody knows is an error."""
PARTS = {
    "identity": "Who the broker is",
    "server": "Network and lanes",
    "registration": "Name servers",
    "topics": "Topics",
    "groups": "Consumer groups",
    "store": "Message store",
    "query": "Queries",
    "offsets": "Committed offsets",
    "schedule": "Delayed messages",
    "send": "Sends",
    "pull": "Pulls",
    "clients": "Clients",
    "fast_fail": "Overload",
    "tls": "TLS",
    "acl": "Access control",
    "auth": "Users and policies",
    "address_server": "Address server",
    "slow_groups": "Slow groups",
    "families": "Families of metrics",
}


def page() -> str:
    """Return the page as it should be."""
    lines = [HEAD, "## Broker"]
    seen: set[str] = set()
    for field in dataclasses.fields(BrokerConfig):
        rows: list[str] = []
        for path, about, default in _declared(BrokerConfig):
            if path[0] == field.name and about.java not in seen:
                seen.add(about.java)
                rows.append(_row(about, default))
        if rows:
            lines += ["", f"### {PARTS.get(field.name, field.name)}", "", *_TABLE, *rows]
    lines += ["", "## Name server", "", *_TABLE]
    lines += [_row(about, default) for _, about, default in _declared(NamesrvConfig)]
    lines += ["", "## Relay", "", RELAY, "", *_TABLE]
    lines += [_row(about, default) for _, about, default in _declared(RelayConfig)]
    return "\n".join(lines) + "\n"


_TABLE = ["| key | default | unit or values | live | what it is |", "|---|---|---|---|---|"]


def _declared(kind: type[Any]) -> Iterator[tuple[tuple[str, ...], Setting, object]]:
    for path, about, _ in settings(kind):
        owner: Any = kind()
        for name in path:
            owner = getattr(owner, name)
        yield path, about, owner


def _row(about: Setting, default: object) -> str:
    value = str(default).lower() if isinstance(default, bool) else str(default)
    shown = "" if default is None or value == "" else f"`{value}`"
    limits = about.unit
    if about.choices:
        limits = ", ".join(f"`{choice}`" for choice in about.choices)
    elif about.low is not None and about.high is not None:
        limits = f"{about.low} to {about.high} {about.unit}".strip()
    elif about.low is not None:
        limits = f"at least {about.low} {about.unit}".strip()
    live = "yes" if about.live else ""
    return f"| `{about.java}` | {shown} | {limits} | {live} | {about.doc.replace('|', '/')} |"


def main(arguments: list[str]) -> int:
    """Write the page, or check it; return the exit code."""
    text = page()
    if "--check" in arguments:
        current = PAGE.exists() and PAGE.read_text() == text
        if not current:
            print(f"{PAGE.name} is not current: run python -m tools.pages.configuration")
        return 0 if current else 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
