"""`roquet store`: check, dump, repair, backup and restore of a store's files, ours or Java's."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from roquet.base.clock import steady_s
from roquet.base.errors import UsageError
from roquet.cli.exits import EXIT_DAMAGE
from roquet.cli.output import json_line, line, table
from roquet.protocol.messages.records import message_of
from roquet.store.upkeep.backup import backup, restore
from roquet.store.upkeep.check import Level, check
from roquet.store.upkeep.logscan import Damage, End, scan
from roquet.store.upkeep.repair import plan, refuse_if_used

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from roquet.store.records import Record

SILENT_S = 3.0
_MEGABYTE = 1 << 20


def run_check(options: argparse.Namespace) -> int:
    """Read a whole store and say what is wrong with it: 0 nothing, 4 something."""
    seen = check(options.folder, _progress("checked"))
    _clear()
    if options.as_json:
        for it in seen.findings:
            json_line({"level": it.level.value, "where": it.where, "text": it.text})
    elif seen.findings:
        rows = [[it.level.value, it.where, it.text] for it in seen.findings]
        table(["level", "where", "found"], rows)
        for helps in dict.fromkeys(it.helps for it in seen.findings if it.helps):
            line(f"→ {helps}")
    sys.stderr.write(
        f"{seen.records} records, {_size(seen.record_bytes)},"
        f" log {seen.log_begin or 0} to {seen.log_end}: {seen.worst.value}\n"
    )
    return EXIT_DAMAGE if seen.worst in (Level.DAMAGE, Level.REPAIRABLE) else 0


def run_dump(options: argparse.Namespace) -> int:
    """Print the records of a log as JSON lines; 4 when something in between was no record."""
    left: int = options.count if options.count is not None else sys.maxsize
    damaged = False
    for piece in scan(options.folder):
        if isinstance(piece, Damage):
            damaged = True
            sys.stderr.write(f"damage: {piece.begin} to {piece.end} in {piece.file}: {piece.why}\n")
        elif isinstance(piece, End):
            break
        elif piece.physical_offset >= options.begin and options.topic in (None, piece.topic):
            json_line(_shown(piece))
            left -= 1
            if left <= 0:
                break
    return EXIT_DAMAGE if damaged else 0


def _shown(record: Record) -> dict[str, object]:
    message = message_of(record)
    try:
        body: dict[str, object] = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"body_hex": message.body.hex()}
    return {
        "offset": record.physical_offset,
        "size": record.size,
        "topic": record.topic,
        "queue": record.queue_id,
        "queue_offset": record.queue_offset,
        "stored_ms": record.store_timestamp,
        "born_ms": record.born_timestamp,
        "from": message.born_host,
        "sys_flag": record.sys_flag,
        "properties": dict(message.properties),
        **body,
    }


def run_repair(options: argparse.Namespace) -> int:
    """Make a store startable again, or say what would be done."""
    if not options.dry_run:
        refuse_if_used(options.folder)
    steps = plan(options.folder)
    for step in steps:
        line(("would " if options.dry_run else "") + step.text)
        if not options.dry_run:
            step.act()
    if not steps:
        line("nothing to do: a start of the broker sees to the rest")
    return 0


def run_backup(options: argparse.Namespace) -> int:
    """Copy a store while its broker runs."""
    if options.folder == options.target:
        raise UsageError("the backup cannot be the store itself")
    done = backup(options.folder, options.target, _progress("copied"))
    _clear()
    line(
        f"{done.files} log files with {_size(done.bytes)} of messages copied to {options.target},"
        f" the log up to {done.log_end}"
    )
    return 0


def run_restore(options: argparse.Namespace) -> int:
    """Make a store from a backup."""
    done = restore(options.backup, options.folder, _progress("restored"))
    _clear()
    line(f"{done.files} files restored to {options.folder}; the log ends at {done.log_end}")
    line(f"start it: roquet broker -s storePathRootDir={options.folder}")
    return 0


def _size(count: int) -> str:
    """Return a number of bytes for people: whole bytes below 1 MiB."""
    return f"{count / _MEGABYTE:,.1f} MiB" if count >= _MEGABYTE else f"{count:,} bytes"


def _progress(what: str) -> Callable[[int], None]:
    """Return what says how far it is: a line that changes on a terminal, else one each 3 s."""
    on_terminal = sys.stderr.isatty()
    every_s = 0.1 if on_terminal else SILENT_S
    last_s = steady_s()

    def show(done: int) -> None:
        nonlocal last_s
        if (now_s := steady_s()) - last_s < every_s:
            return
        last_s = now_s
        text = f"{what} {_size(done)}"
        sys.stderr.write(f"\r{text} \033[K" if on_terminal else f"{text}\n")
        sys.stderr.flush()

    return show


def _clear() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
