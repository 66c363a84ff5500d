"""What was done by whom: kept for the page, logged, and appended to a file if one is given.

When the file cannot be written, no action is taken any more: an action without its record is none
that an operator could account for.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import logging
import os
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from roquet.base.clock import Clock

log = logging.getLogger("roquet.console.audit")

_TEXT_MAX = 200


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One action. `time_ms` is Unix milliseconds."""

    time_ms: int
    who: str
    role: str
    address: str
    action: str
    target: Mapping[str, str]
    """What was given, without what is secret."""
    outcome: str
    """`done`, `refused` or `failed`, and why."""


class AuditLog:
    """The actions of a console's life. Entries are written before the answer goes out."""

    def __init__(self, clock: Clock, rows: int, file: Path | None) -> None:
        """Keep so many in memory. Raises UsageError for a file that cannot be appended to."""
        self._clock = clock
        self._rows: collections.deque[Entry] = collections.deque(maxlen=rows)
        self._descriptor: int | None = None
        self.broken = ""
        """Why the file cannot be written; empty while it can."""
        if file is not None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            try:
                self._descriptor = os.open(file, flags, 0o600)
            except OSError as error:
                raise UsageError(f"--audit-log {file}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def write(
        self,
        action: str,
        outcome: str,
        *,
        who: str,
        role: str,
        address: str,
        target: Mapping[str, str] | None = None,
    ) -> None:
        """Add an entry; texts are cut to 200 characters."""
        entry = Entry(
            time_ms=self._clock.now_ms(),
            who=who[:_TEXT_MAX],
            role=role,
            address=address,
            action=action,
            target={key: value[:_TEXT_MAX] for key, value in (target or {}).items()},
            outcome=outcome[:_TEXT_MAX],
        )
        self._rows.append(entry)
        line = json.dumps(dataclasses.asdict(entry))
        log.info("%s", line)
        if self._descriptor is not None:
            self._append(self._descriptor, line.encode() + b"\n")

    def rows(self) -> list[Entry]:
        """Return the entries, the newest first."""
        return list(reversed(self._rows))

    def _append(self, descriptor: int, line: bytes) -> None:
        try:
            written = os.write(descriptor, line)
        except OSError as error:
            self.broken = f"the audit log cannot be written: {error.strerror}"
        else:
            is_whole = written == len(line)
            self.broken = "" if is_whole else "the audit log cannot be written: the disk is full"
        if self.broken:
            log.critical("%s; no change is made any more", self.broken)
