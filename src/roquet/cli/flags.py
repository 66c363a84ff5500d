"""Flags that several commands share, and how their values are read."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

CODES = "exit codes: 0 done, 1 refused, 2 wrong usage, 3 no answer, 5 not found"


def client_flags(parser: argparse.ArgumentParser, *, as_json: bool = True) -> None:
    """Add what every command has that talks to servers."""
    parser.add_argument(
        "-n",
        "--namesrv",
        metavar="HOST:PORT",
        help="name servers, separated by ';' ($NAMESRV_ADDR, the context's, 127.0.0.1:9876)",
    )
    parser.add_argument("--context", metavar="NAME", help="a cluster of: roquet context ls")
    if as_json:
        parser.add_argument(
            "--json", dest="as_json", action="store_true", help="one JSON object a line"
        )


def output_flags(parser: argparse.ArgumentParser) -> None:
    """Add how a command shows what it found."""
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "yaml"),
        default="table",
        help="a table, one JSON object a line, or YAML (%(default)s)",
    )
    parser.add_argument(
        "--json", dest="output", action="store_const", const="json", help="the same as -o json"
    )


def filter_flags(parser: argparse.ArgumentParser) -> None:
    """Add what a look at a topic may be narrowed by."""
    parser.add_argument("-t", "--tags", help="only with one of these tags: 'a || b'")
    parser.add_argument("--sql", metavar="EXPRESSION", help="only what this SQL92 filter takes")
    parser.add_argument("-k", "--key", help="only with this key")


def count(text: str) -> int:
    """Read a number of at least 1."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 9 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 to 999999999")
    return int(text)


def signed(text: str) -> int:
    """Read a whole number, which may be negative."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 12):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def settings_of(texts: Iterable[str]) -> dict[str, str]:
    """Read settings written as KEY=VALUE. Raises UsageError."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{text[:80]!r} should look like KEY=VALUE")
        found[key] = value
    return found
