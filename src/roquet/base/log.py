"""Logging: one line a record, nothing from outside able to start another, rates bounded."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from typing import TYPE_CHECKING, TextIO

from roquet.base.limits import safe

if TYPE_CHECKING:
    from pathlib import Path


@dataclasses.dataclass(frozen=True, slots=True)
class LogFile:
    """A log file: when it has `bytes_max` bytes, it becomes PATH.1; `kept` old ones stay."""

    path: Path
    bytes_max: int = 64 << 20
    kept: int = 10


class _TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s %(message)s")

    # typing.override comes with Python 3.12.
    def formatMessage(self, record: logging.LogRecord) -> str:  # type: ignore[explicit-override]  # noqa: N802
        record.message = safe(record.message, length_max=None)
        return super().formatMessage(record)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:  # type: ignore[explicit-override]
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(
    level: str = "INFO",
    style: str = "text",
    stream: TextIO | None = None,
    *,
    file: LogFile | None = None,
) -> None:
    """Send all logs to `stream` (standard error), or to a file that is rotated.

    Style `text` is for people; `json` writes one object a line. Raises OSError.
    """
    handler: logging.Handler = logging.StreamHandler(stream or sys.stderr)
    if file is not None:
        # It brings sockets and queues along, which few processes need for their logs.
        from logging.handlers import RotatingFileHandler  # noqa: PLC0415

        file.path.parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(
            file.path, maxBytes=file.bytes_max, backupCount=file.kept, encoding="utf-8"
        )
    handler.setFormatter(_JsonFormatter() if style == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
