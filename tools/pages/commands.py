"""Write docs/reference/commands.md from the declarations of the command line.

`python -m tools.pages.commands` writes the page, `--check` says whether it is current.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roquet.cli.app import parser

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"
HEAD = """\
# Commands

Written by `python -m tools.pages.commands` from the declarations in the source; do not edit. What
to type when is in the [guide](../guide/command-line.md).

Commands that talk to a cluster also have `-n HOST:PORT` and `--context NAME`; commands that show
rows have `-o table|json|yaml` and `--json`; commands that change or take away have `--yes` and
`--dry-run`.
"""
_EVERYWHERE = {"namesrv", "context", "output", "help", "yes", "dry_run"}


def page() -> str:
    """Return the page as it should be."""
    lines = [HEAD]
    for words, it in commands(parser()):
        if words[0] == "mqadmin" and len(words) > 1:
            continue
        lines.append(f"## `{' '.join(('roquet', *words))}`")
        lines.append((it.description or "").strip() + "\n")
        rows = [row for action in it._actions for row in _row(action)]  # noqa: SLF001
        if rows:
            lines += ["| | |", "|---|---|", *rows, ""]
    return "\n".join(lines).rstrip() + "\n"


def commands(
    whole: argparse.ArgumentParser, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Give every command that runs, with its words."""
    for action in whole._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for name, inner in action.choices.items():
                if inner.prog.split()[-1] != name:
                    continue  # another word for the same command
                words = (*above, name)
                if inner.get_default("run") is not None:
                    yield words, inner
                yield from commands(inner, words)


def _row(action: argparse.Action) -> Iterator[str]:
    is_group = isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    if (action.dest in _EVERYWHERE and action.option_strings) or is_group:
        return
    values: dict[str, Any] = {**vars(action), "prog": "roquet"}
    text = (action.help or "") % values if action.help else ""
    if action.choices is not None:
        text = f"{text} ({', '.join(map(str, action.choices))})".strip()
    metavar = action.metavar or action.dest.upper()
    if action.option_strings:
        takes = "" if action.nargs == 0 else f" {metavar}"
        name = ", ".join(action.option_strings) + takes
    else:
        name = str(metavar)
    yield f"| `{name}` | {text} |".replace("a || b", "a \\|\\| b").replace("PUB|SUB", "PUB\\|SUB")


def main() -> int:
    """Write or check; return the exit code."""
    os.environ["COLUMNS"] = "100"
    if sys.argv[1:] == ["--check"]:
        return 0 if PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
