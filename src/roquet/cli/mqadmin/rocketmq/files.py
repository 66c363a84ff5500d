"""Files of RocketMQ's stores that ours have not, as its tool shows them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.errors import NotFound, UsageError
from roquet.cli import output
from roquet.cli.exits import EXIT_DAMAGE
from roquet.cli.mqadmin.messages import message_ext
from roquet.protocol.messages import sys_flag
from roquet.protocol.messages.records import message_of
from roquet.store.records import read_records

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import BinaryIO

_LENGTH = 4
_RECORD_MAX = 64 * 1024 * 1024


def dump_compaction_log(options: argparse.Namespace) -> int:
    """Print the messages of a compaction log, or of any file of a log, without their bodies."""
    if options.file is None:
        raise UsageError("give -f, a file below compaction/compactionLog of a broker's store")
    path = Path(options.file)
    if path.is_dir():
        raise UsageError(f"-f {str(path)[:200]!r} is a folder")
    try:
        file = path.open("rb")
    except (FileNotFoundError, ValueError):
        raise NotFound(f"-f {str(path)[:200]!r} is not there") from None
    except OSError as error:
        raise UsageError(f"-f {str(path)[:200]!r} cannot be read: {error}") from error
    with file:
        return _dump(file)


def _dump(file: BinaryIO) -> int:
    end = os.fstat(file.fileno()).st_size
    at = 0
    for record in _records(file, end):
        try:
            (found,) = read_records(record)
        except ValueError as error:
            output.error(f"no message begins at {at}: {error}")
            return EXIT_DAMAGE
        # Bodies are not shown, so that compressed ones need not be read.
        bare = found._replace(body=b"", sys_flag=found.sys_flag & ~sys_flag.COMPRESSED)
        message = dataclasses.replace(message_of(bare), sys_flag=found.sys_flag)
        output.line(message_ext(message, message.properties, "null"))
        at += len(record)
    return 0


def _records(file: BinaryIO, end: int) -> Iterator[bytes]:
    """Yield what may be records, up to zeros or the end; the last one may be cut short."""
    at = 0
    while at < end:
        head = file.read(_LENGTH)
        length = int.from_bytes(head, "big")
        if length == 0:
            return
        # A length that fits no record is left to the decoder, which refuses it.
        rest = file.read(max(0, min(length, _RECORD_MAX, end - at) - _LENGTH))
        yield head + rest
        at += len(head) + len(rest)
