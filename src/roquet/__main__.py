"""`python -m roquet` and the console script `roquet`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from roquet.cli.app import run  # noqa: PLC0415  (the script's own start is its cost)

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
