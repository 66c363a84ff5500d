"""Flags of the commands that look after a machine and its files: `store`, `doctor`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

_STORE_CODES = "exit codes: 0 fine, 1 failed, 2 wrong usage, 4 damage or something to repair"
_DOCTOR_CODES = "exit codes: 0 nothing stands in the way, 1 something does, 2 wrong usage"


def add(commands: Any) -> None:
    """Add the commands."""
    _store(commands.add_parser("store", help="check, dump, repair, back up a store's files"))
    _doctor(commands)


def _store(store: argparse.ArgumentParser) -> None:
    verbs = store.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = verbs.add_parser(
        "check",
        help="read a store and say what is wrong with it",
        description="Read the log, queues, tables and marks of a store, running or not.",
        epilog=_STORE_CODES,
    )
    check.add_argument("folder", metavar="STORE", type=Path)
    check.add_argument("--json", dest="as_json", action="store_true", help="one object a line")
    check.set_defaults(run=_run_check)
    dump = verbs.add_parser(
        "dump",
        help="print the records of a log as JSON lines",
        description="Print the records of a commit log, without any broker.",
        epilog=_STORE_CODES,
    )
    dump.add_argument("folder", metavar="STORE", type=Path)
    dump.add_argument("--topic", help="only this topic's")
    dump.add_argument(
        "--from", dest="begin", type=_number, default=0, help="log offset to begin at"
    )
    dump.add_argument("-c", "--count", type=_number, help="end after so many")
    dump.set_defaults(run=_run_dump)
    repair = verbs.add_parser(
        "repair",
        help="make a stopped store startable again",
        description="Put wrong queues aside and take tables from their copies. The log is never"
        " written.",
        epilog=_STORE_CODES,
    )
    repair.add_argument("folder", metavar="STORE", type=Path)
    repair.add_argument("--dry-run", action="store_true", help="only say what would be done")
    repair.set_defaults(run=_run_repair)
    backup = verbs.add_parser(
        "backup",
        help="copy a store while its broker runs",
        description="Copy tables and log; into an earlier backup only what is new.",
    )
    backup.add_argument("folder", metavar="STORE", type=Path)
    backup.add_argument("target", metavar="BACKUP", type=Path)
    backup.set_defaults(run=_run_backup)
    restore = verbs.add_parser(
        "restore",
        help="make a store from a backup",
        description="Copy a backup into a new folder that a broker then starts on.",
    )
    restore.add_argument("backup", metavar="BACKUP", type=Path)
    restore.add_argument("folder", metavar="STORE", type=Path)
    restore.set_defaults(run=_run_restore)


def _doctor(commands: Any) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="look whether this machine is ready for a broker",
        description="Look at limits, disk, clock, ports, addresses and name servers, and say what"
        " to change.",
        epilog=_DOCTOR_CODES,
    )
    doctor.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="the broker's property file"
    )
    doctor.add_argument("-n", "--namesrv-addr", metavar="HOST:PORT", help="name servers")
    doctor.add_argument(
        "-s",
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting as for roquet broker; wins over file and environment",
    )
    doctor.add_argument("--json", dest="as_json", action="store_true", help="one object a line")
    doctor.set_defaults(run=_run_doctor)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def _run_check(options: argparse.Namespace) -> int:
    from roquet.cli.upkeep.stores import run_check  # noqa: PLC0415

    return run_check(options)


def _run_dump(options: argparse.Namespace) -> int:
    from roquet.cli.upkeep.stores import run_dump  # noqa: PLC0415

    return run_dump(options)


def _run_repair(options: argparse.Namespace) -> int:
    from roquet.cli.upkeep.stores import run_repair  # noqa: PLC0415

    return run_repair(options)


def _run_backup(options: argparse.Namespace) -> int:
    from roquet.cli.upkeep.stores import run_backup  # noqa: PLC0415

    return run_backup(options)


def _run_restore(options: argparse.Namespace) -> int:
    from roquet.cli.upkeep.stores import run_restore  # noqa: PLC0415

    return run_restore(options)


def _run_doctor(options: argparse.Namespace) -> int:
    from roquet.cli.upkeep.doctor import run_doctor  # noqa: PLC0415

    return run_doctor(options)
