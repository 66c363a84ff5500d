"""`python -m roquet` and the console script `roquet`."""

from __future__ import annotations

import io
import os
import sys


def _hold_standard_descriptors() -> None:
    """Put something in the place of closed standard streams.

    Otherwise the first file or socket takes the number, and what is printed goes there. Reading
    the input and writing the output still fail, errors are dropped.
    """
    for number, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or a file that knows only ASCII gets escapes.
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    """Run the command line and exit with its code."""
    _hold_standard_descriptors()
    from roquet.cli.app import run  # noqa: PLC0415  (the script's own start is its cost)

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
