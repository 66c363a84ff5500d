"""A command's declaration, and how a row of it becomes a parser and a run.

The function of a command is named, not imported: help and completion must not load a client.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any, Literal

from roquet.cli import output
from roquet.cli.flags import CODES, client_flags, output_flags

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping


ALIASES: Mapping[str, tuple[str, ...]] = {"ls": ("list",)}
"""Verbs that other tools say for ours, below every noun."""


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """One argument or flag, as argparse takes it."""

    names: tuple[str, ...]
    options: Mapping[str, Any]


def argument(*names: str, **options: Any) -> Argument:
    """Declare an argument."""
    return Argument(names, options)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One command: its words, what it is for, its arguments, and where its function is.

    `work` is `module:function` below `roquet.cli.commands`, or `folder.module:function` below
    `roquet.cli`. The function prints by `roquet.cli.output` and returns the exit code. What it is
    given besides the options `given` says; one that is given something is awaited.
    """

    words: tuple[str, ...]
    help: str
    work: str
    arguments: tuple[Argument, ...] = ()
    about: str = ""
    given: Literal["admin", "client", "nothing"] = "admin"
    prints: bool = True
    """Whether it has something to show as a table, as JSON or as YAML."""
    changes: bool = False
    """Whether it takes something away: then it asks, is given --yes, or only says it."""

    def function(self) -> Callable[..., Any]:
        """Import and return what does the work."""
        module, _, name = self.work.partition(":")
        package = "roquet.cli" if "." in module else "roquet.cli.commands"
        found: Callable[..., Any] = getattr(importlib.import_module(f"{package}.{module}"), name)
        return found


def add(
    commands: Any,
    nouns: Mapping[str, str],
    rows: tuple[Row, ...],
    known: Mapping[str, argparse.ArgumentParser],
    only: str | None = None,
) -> None:
    """Add the rows below their nouns; `known` has the parsers of nouns that are commands.

    With `only`, all but this noun are named and no more: building all takes longer than most of a
    command's work.
    """
    verbs: dict[tuple[str, ...], Any] = {}
    named = set(known)
    for row in rows:
        if only not in (None, row.words[0]):
            if row.words[0] not in named:
                text = row.help if len(row.words) == 1 else nouns[row.words[0]]
                commands.add_parser(row.words[0], help=text, add_help=False)
                named.add(row.words[0])
            continue
        for depth in range(1, len(row.words)):
            noun = row.words[:depth]
            if noun in verbs:
                continue
            text = nouns[" ".join(noun)]
            above = commands if depth == 1 else verbs[noun[:-1]]
            parser = known.get(noun[0]) if depth == 1 else None
            required = parser is None
            parser = parser or above.add_parser(noun[-1], help=text, description=_sentence(text))
            verbs[noun] = parser.add_subparsers(
                title="commands", metavar="COMMAND", required=required
            )
        _parser(verbs[row.words[:-1]] if len(row.words) > 1 else commands, row)


def _parser(verbs: Any, row: Row) -> None:
    parser = verbs.add_parser(
        row.words[-1],
        aliases=ALIASES.get(row.words[-1], ()) if len(row.words) > 1 else (),
        help=row.help,
        description=row.about or _sentence(row.help),
        epilog=CODES,
    )
    for it in row.arguments:
        parser.add_argument(*it.names, **it.options)
    if row.changes:
        parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
        parser.add_argument("--dry-run", action="store_true", help="say what it would do, only")
    if row.given != "nothing":
        client_flags(parser, as_json=False)
    if row.prints:
        output_flags(parser)
    parser.set_defaults(run=_runner(row))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _runner(row: Row) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        function = row.function()
        from roquet.cli.commands.asking import OnlySaid  # noqa: PLC0415

        try:
            if row.given == "nothing":
                return int(function(options))
            from roquet.cli.reach import administered, connected  # noqa: PLC0415

            if row.given == "client":
                return connected(options, lambda mq, admin: function(mq, admin, options))
            return administered(options, lambda admin: function(admin, options))
        except OnlySaid as said:
            output.line(f"dry run, nothing is changed: {said}")
            return 0

    return run
