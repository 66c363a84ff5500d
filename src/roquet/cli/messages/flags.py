"""Flags of `roquet pub`, `sub` and `cat`."""

from __future__ import annotations

import argparse
from typing import Any

from roquet.cli.flags import CODES, client_flags, count, filter_flags
from roquet.protocol.names import COMMAND_LINE_GROUP

Options = argparse.Namespace


def add(commands: Any) -> None:
    """Add the commands."""
    _pub(commands)
    _sub(commands)
    _cat(commands)


def _pub(commands: Any) -> None:
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
    pub.add_argument(
        "--delay",
        metavar="TIME",
        help="deliver then: 90s, 5m, 1h, 2d (after it is stored), a date or Unix milliseconds",
    )
    pub.add_argument("--at", metavar="TIME", help="the same as --delay")
    pub.add_argument(
        "--order-key",
        metavar="KEY",
        help="messages of one key go to one queue",
    )
    client_flags(pub)
    pub.set_defaults(run=_run_pub)


def _sub(commands: Any) -> None:
    sub = commands.add_parser(
        "sub",
        help="consume as a member of a group",
        description="Consume as a member of a group: each message goes to one member.",
        epilog="Ctrl-C ends; what was printed is marked as consumed.\n" + CODES,
    )
    sub.add_argument("topic", metavar="TOPIC")
    sub.add_argument("-g", "--group", default=COMMAND_LINE_GROUP, help="the group (%(default)s)")
    sub.add_argument("-t", "--tags", default="*", help="tag expression: 'a || b' (%(default)s)")
    sub.add_argument("--sql", metavar="EXPRESSION", help="SQL92 filter: 'a > 5' (no --tags)")
    sub.add_argument("-c", "--count", type=count, help="end after so many")
    client_flags(sub)
    sub.set_defaults(run=_run_sub)


def _cat(commands: Any) -> None:
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
    ending = cat.add_mutually_exclusive_group()
    ending.add_argument("-e", "--end", action="store_true", help="end when all is read")
    ending.add_argument(
        "-f", "--follow", action="store_true", help="go on with what comes (the default)"
    )
    filter_flags(cat)
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
