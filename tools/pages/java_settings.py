"""Write docs/reference/java-settings.md: what becomes of each setting of RocketMQ 5.5.0 here.

`python -m tools.pages.java_settings` writes the page, `--check` says whether it is current. A
setting that the servers declare has an effect and the test that shows it; every other one is
planned with its feature or declined with a reason.
"""

from __future__ import annotations

import fnmatch
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.config import settings
from roquet.base.java_keys import JAVA_KEYS
from roquet.broker.config import BrokerConfig
from roquet.namesrv.config import NamesrvConfig
from tools.pages.java_settings_table import (
    AT_START,
    DECLINED,
    EXACTLY,
    PLANNED,
    WITHOUT_EFFECT,
)
from tools.pages.java_settings_tests import SHOWN_BY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.base.config import Setting

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "java-settings.md"
HEAD = """\
# Settings of RocketMQ 5.5.0

Written by `python -m tools.pages.java_settings`; do not edit. For operators who bring a property
file of a Java broker or name server: every key of its broker, store, name server and network
configuration, and what becomes of it here. [Settings](configuration.md) has the defaults and
limits.

*Live* settings are obeyed at once when they are changed while the server runs, by codes 25 and 318
(`mqadmin updateBrokerConfig`, `updateNamesrvConfig`); any other change is refused with code 29.
"""


def declared() -> dict[str, Setting]:
    """Return what the two servers declare, by key."""
    found: dict[str, Setting] = {}
    for kind in (BrokerConfig, NamesrvConfig):
        for _, about, _ in settings(kind):
            found.setdefault(about.java, about)
    return found


def reason_of(key: str, table: Mapping[str, Iterable[str]]) -> str | None:
    """Return the reason whose patterns match a key, None when there is none."""
    for reason, patterns in table.items():
        if any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns):
            return reason
    return None


def fate(key: str) -> tuple[str, str] | None:
    """Return what becomes of an undeclared key: (`planned` or `declined`, why)."""
    exact = EXACTLY.get(key)
    if exact is not None:
        return "declined", exact
    for word, table in (("planned", PLANNED), ("declined", DECLINED)):
        reason = reason_of(key, table)
        if reason is not None:
            return word, reason
    return None


def page() -> str:
    """Return the page as it should be."""
    known = declared()
    live = sorted(key for key in known if key in JAVA_KEYS and known[key].live)
    still = sorted(key for key in known if key in JAVA_KEYS and not known[key].live)
    lines = [HEAD, "## Live", "", "| key | shown by |", "|---|---|"]
    lines += [f"| `{key}` | {_test(key)} |" for key in live]
    lines += ["", "## Obeyed from the start on", "", "| key | why it is not live | shown by |"]
    lines += ["|---|---|---|"]
    lines += [f"| `{key}` | {reason_of(key, AT_START) or ''} | {_test(key)} |" for key in still]
    for title, word in (("Planned", "planned"), ("Declined", "declined")):
        lines += ["", f"## {title}", "", "| keys | why |", "|---|---|"]
        rows: dict[str, list[str]] = {}
        for key in sorted(JAVA_KEYS - set(known)):
            found = fate(key)
            if found is not None and found[0] == word:
                rows.setdefault(found[1], []).append(f"`{key}`")
        lines += [f"| {', '.join(keys)} | {why} |" for why, keys in sorted(rows.items())]
    return "\n".join(lines) + "\n"


def shown_by() -> dict[str, str]:
    """Return the test that shows a declared setting's effect, `file::name`, by key."""
    return {
        key: f"{file}::{name}"
        for file, tests in SHOWN_BY.items()
        for name, keys in tests.items()
        for key in keys
    }


def _test(key: str) -> str:
    why = WITHOUT_EFFECT.get(key)
    return f"no effect: {why}" if why is not None else f"`{shown_by().get(key, '')}`"


def main(arguments: list[str]) -> int:
    """Write the page, or check it; return the exit code."""
    text = page()
    if "--check" in arguments:
        current = PAGE.exists() and PAGE.read_text() == text
        if not current:
            print(f"{PAGE.name} is not current: run python -m tools.pages.java_settings")
        return 0 if current else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
