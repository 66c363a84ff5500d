"""Flags of `roquet topic`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.cli.flags import CODES, client_flags, count

if TYPE_CHECKING:
    import argparse

_ALTER = """\
Change the number of queues of a topic on every master that has it. Messages of
queues that are taken away cannot be read until the queues come back: the command
says how many there are, and asks first."""


def add(commands: Any) -> None:
    """Add the command."""
    topic = commands.add_parser("topic", help="create, alter, list and describe topics")
    verbs = topic.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _create(verbs)
    _alter(verbs)
    ls = verbs.add_parser("ls", help="list topics", description="List topics.", epilog=CODES)
    ls.add_argument(
        "-a", "--all", dest="everything", action="store_true", help="those of the system as well"
    )
    client_flags(ls)
    ls.set_defaults(run=_run_ls)
    describe = verbs.add_parser(
        "describe",
        help="show a topic's queues",
        description="Show where a topic's queues are and how many messages each holds.",
        epilog=CODES,
    )
    describe.add_argument("topic", metavar="TOPIC")
    client_flags(describe)
    describe.set_defaults(run=_run_describe)


def _create(verbs: Any) -> None:
    create = verbs.add_parser(
        "create",
        help="create a topic on every master",
        description="Create a topic on every master; one that exists is left as it is.",
        epilog=CODES,
    )
    create.add_argument("topic", metavar="TOPIC")
    create.add_argument(
        "-q", "--queues", type=count, default=8, help="queues on each broker (%(default)s)"
    )
    create.add_argument("--cluster", help="only in this cluster")
    client_flags(create, as_json=False)
    create.set_defaults(run=_run_create)


def _alter(verbs: Any) -> None:
    alter = verbs.add_parser(
        "alter", help="change a topic's number of queues", description=_ALTER, epilog=CODES
    )
    alter.add_argument("topic", metavar="TOPIC")
    alter.add_argument("-q", "--queues", type=count, required=True, help="queues on each broker")
    alter.add_argument("--cluster", help="only in this cluster")
    alter.add_argument("-y", "--yes", action="store_true", help="do not ask")
    client_flags(alter, as_json=False)
    alter.set_defaults(run=_run_alter)


def _run_create(options: argparse.Namespace) -> int:
    from roquet.cli.topics import create  # noqa: PLC0415

    return create(options.namesrv, options.topic, options.queues, options.cluster)


def _run_alter(options: argparse.Namespace) -> int:
    from roquet.cli.topics import Change, alter  # noqa: PLC0415

    return alter(
        options.namesrv,
        Change(options.topic, options.queues, options.cluster, agreed=options.yes),
    )


def _run_ls(options: argparse.Namespace) -> int:
    from roquet.cli.topics import ls  # noqa: PLC0415

    return ls(options.namesrv, everything=options.everything, as_json=options.as_json)


def _run_describe(options: argparse.Namespace) -> int:
    from roquet.cli.topics import describe  # noqa: PLC0415

    return describe(options.namesrv, options.topic, as_json=options.as_json)
