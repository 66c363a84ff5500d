"""Write docs/reference/features.md: what works, and the tests that show it.

    python -m tools.pages.features

The list is tests/features.toml; a test compares the page with it and looks for every test.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests/features.toml"
PAGE = ROOT / "docs/reference/features.md"
HEAD = """# Features, and the tests that show them

Made from `tests/features.toml` by `python -m tools.pages.features`. The version column names the
clients, brokers or files that a row is about: *4.x, 5.x* stands for the protocol and formats that
both have, *5.5* for what was run against the 5.5.0 jars (`make interop`;
[how](../guide/java-interop.md)). All other tests run in `make test`, those marked nightly in
`make nightly`.
"""


def page() -> str:
    """Return the page's text."""
    lines = [HEAD]
    for section in tomllib.loads(LIST.read_text())["section"]:
        lines.append(f"## {section['title']}\n")
        if "about" in section:
            lines.append(f"{section['about']}\n")
        rows = section["feature"]
        versions = any("rocketmq" in it for it in rows)
        lines.append("| feature | RocketMQ | shown by |" if versions else "| feature | shown by |")
        lines.append("|---|---|---|" if versions else "|---|---|")
        for it in rows:
            cells = [it["feature"], it.get("rocketmq", ""), ", ".join(it["shown_by"])]
            lines.append(f"| {' | '.join(cells if versions else [cells[0], cells[2]])} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
