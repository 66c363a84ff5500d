"""A command's declaration, and how a row of it becomes a parser and a run.

The function of a command is named, not imported: help and completion must not load a client.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any

from roquet.cli.flags import CODES, client_flags, output_flags

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping


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

    `work` is `module:function` below `roquet.cli.commands`; the function is awaited with an
    `Admin` and the options, prints by `roquet.cli.output`, and returns the exit code.
    """

    words: tuple[str, ...]
    help: str
    work: str
    arguments: tuple[Argument, ...] = ()
    about: str = ""
    prints: bool = True
    """Whether it has something to show as a table, as JSON or as YAML."""
    changes: bool = False
    """Whether it takes something away: then it asks, or is given --yes."""


def add(commands: Any, nouns: Mapping[str, str], rows: tuple[Row, ...], known: Any) -> None:
    """Add the rows below their nouns; `known` has the parsers of nouns that are commands."""
    verbs: dict[tuple[str, ...], Any] = {}
    for row in rows:
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
        _parser(verbs[row.words[:-1]], row)


def _parser(verbs: Any, row: Row) -> None:
    parser = verbs.add_parser(
        row.words[-1], help=row.help, description=row.about or _sentence(row.help), epilog=CODES
    )
    for it in row.arguments:
        parser.add_argument(*it.names, **it.options)
    if row.changes:
        parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    client_flags(parser, as_json=False)
    if row.prints:
        output_flags(parser)
    parser.set_defaults(run=_runner(row.work))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _runner(work: str) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        module, _, name = work.partition(":")
        function = getattr(importlib.import_module(f"roquet.cli.commands.{module}"), name)
        from roquet.cli.reach import administered  # noqa: PLC0415

        return administered(options, lambda admin: function(admin, options))

    return run
