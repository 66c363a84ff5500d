"""Flags of `roquet pub`, `sub` and `cat`."""

from __future__ import annotations

import argparse
from typing import Any

from roquet.cli.flags import CODES, client_flags, count

Options = argparse.Namespace


def add(commands: Any) -> None:
    """Add the commands."""
    pub = commands.add_parser(
        "pub",
        help="send messages",
        description="Send messages; print id, queue and offset of each.",
        epilog=CODES,
    )
    pub.add_argument("topic", metavar="TOPIC")
    pub.add_argument(
        "body", metavar="BODY", nargs="?", help="text; without it each line of input is a message"
    )
    pub.add_argument(
        "-f", "--file", metavar="FILE", help="send this whole file as one message; -: the input"
    )
    pub.add_argument(
        "--lines", action="store_true", help="each line of --file is a message, as of the input"
    )
    pub.add_argument(
        "--delimiter", metavar="TEXT", help=r"what separates messages instead of \n: ',' or '\0'"
    )
    pub.add_argument(
        "-c", "--count", type=count, default=1, help="send so often; {{count}} is replaced"
    )
    pub.add_argument("-t", "--tag", help="tag that consumers filter by")
    pub.add_argument("-k", "--key", action="append", default=[], help="key to find it by")
    pub.add_argument(
        "-p",
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="property that consumers filter by",
    )
    client_flags(pub)
    pub.set_defaults(run=_run_pub)
    sub = commands.add_parser(
        "sub",
        help="consume as a member of a group",
        description="Consume as a member of a group: each message goes to one member.",
        epilog="Ctrl-C ends; what was printed is marked as consumed.\n" + CODES,
    )
    sub.add_argument("topic", metavar="TOPIC")
    sub.add_argument("-g", "--group", default="roquet_cli", help="the group (%(default)s)")
    sub.add_argument("-t", "--tags", default="*", help="tag expression: 'a || b' (%(default)s)")
    sub.add_argument("--sql", metavar="EXPRESSION", help="SQL92 filter: 'a > 5' (no --tags)")
    sub.add_argument("-c", "--count", type=count, help="end after so many")
    client_flags(sub)
    sub.set_defaults(run=_run_sub)
    cat = commands.add_parser(
        "cat",
        help="read a topic without a group",
        description="Read a topic without a group: nothing is marked as consumed.",
        epilog=CODES,
    )
    cat.add_argument("topic", metavar="TOPIC")
    cat.add_argument(
        "-o",
        "--offset",
        default="earliest",
        help="begin at earliest, latest, a queue offset, or -N: the topic's last N (%(default)s)",
    )
    cat.add_argument("-e", "--end", action="store_true", help="end when all is read")
    client_flags(cat)
    cat.set_defaults(run=_run_cat)


def _run_pub(options: Options) -> int:
    from roquet.cli.messages.traffic import publish  # noqa: PLC0415

    return publish(options)


def _run_sub(options: Options) -> int:
    from roquet.cli.messages.traffic import subscribe  # noqa: PLC0415

    return subscribe(options)


def _run_cat(options: Options) -> int:
    from roquet.cli.messages.traffic import cat  # noqa: PLC0415

    return cat(options)
