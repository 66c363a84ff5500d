"""Let atheris look for inputs that break a reader written in Python, guided by coverage.

`python -m tools.fuzz.atheris [--seconds n] [--seed s]`: each group of readers for n seconds, all
groups side by side. atheris is not among the dependencies: `make fuzz-atheris` installs it.
A reader may refuse an input with the errors that its callers answer; anything else is a finding.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.fuzz.run import Fuzzer, Limits, run

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH_MAX = 4096
GROUPS = (
    "headers",
    "bodies",
    "fastjson",
    "properties_file",
    "properties",
    "message_id",
    "ha",
    "sql",
    "table",
    "acl",
)


def group_of(name: str) -> str:
    """Return the group to which a reader of this name belongs."""
    return next(group for group in GROUPS if f".{group}." in name or name.startswith(group))


def fuzz(group: str, arguments: list[str]) -> None:
    """Fuzz one group and end the process; the first byte of an input chooses the reader."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["roquet"]):
        from roquet.base.errors import RoquetError  # noqa: PLC0415
        from tools.fuzz.python import decoders  # noqa: PLC0415
    # What a broker logs of a damaged file is not looked at here.
    logging.disable(logging.CRITICAL)
    chosen: list[Callable[[bytes], object]] = [
        decoder for name, decoder in decoders() if group_of(name) == group
    ]

    def one(data: bytes) -> None:
        if data:
            try:
                chosen[data[0] % len(chosen)](data[1:])
            except (RoquetError, ValueError):
                return

    atheris.Setup([sys.argv[0], *arguments], one)
    atheris.Fuzz()


def seeds() -> dict[str, list[bytes]]:
    """Return valid inputs by group, each behind the byte that chooses its reader."""
    from tools.fuzz.python import decoders, seeds_of  # noqa: PLC0415

    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, _ in decoders():
        names[group_of(name)].append(name)
    return {
        group: [
            bytes([number % 256]) + seed
            for number, name in enumerate(found)
            for seed in seeds_of(name)
        ]
        for group, found in names.items()
    }


def main() -> int:
    """Run every group, or be one; the exit code says whether one broke."""
    if sys.argv[1:2] == ["--be"]:
        fuzz(sys.argv[2], sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--group", choices=GROUPS, action="append", help="only these")
    options = parser.parse_args()
    begin = seeds()
    command = [sys.executable, "-m", "tools.fuzz.atheris", "--be"]
    fuzzers = [Fuzzer(group, [*command, group], begin[group]) for group in options.group or GROUPS]
    limits = Limits(options.seconds, LENGTH_MAX, options.seed)
    with tempfile.TemporaryDirectory(prefix="roquet-fuzz-") as folder:
        good = run(fuzzers, limits, Path(folder))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
