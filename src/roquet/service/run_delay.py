"""How long a thread was ready to run while the host ran others: Linux counts it for each thread."""

from __future__ import annotations

import contextlib
import os

_FILE = "/proc/thread-self/schedstat"


class RunDelay:
    """The run queue delay of the thread that calls `open`; always 0 where the kernel keeps none."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._file: int | None = None

    def open(self) -> None:
        """Begin to look, on the thread that it is about."""
        self.close()
        with contextlib.suppress(OSError):
            self._file = os.open(_FILE, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Look no more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def total_ms(self) -> float:
        """Return milliseconds since the thread began."""
        if self._file is None:
            return 0.0
        try:
            fields = os.pread(self._file, 128, 0).split()
            return int(fields[1]) / 1e6
        except (OSError, IndexError, ValueError):
            return 0.0
