"""Let atheris look for inputs that break a decoder written in Python, guided by coverage.

`python -m tools.fuzz_atheris [--seconds n]`: each group of decoders for n seconds, in a process of
its own. atheris is not among the dependencies: `make fuzz-atheris` installs it beside them.
A decoder may refuse an input with the errors that its callers answer; anything else is a finding.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH_MAX = 4096
GROUPS = ("headers", "bodies", "fastjson", "properties", "message_id")


def group_of(name: str) -> str:
    """Return the group to which a decoder of this name belongs."""
    return next(group for group in GROUPS if f".{group}." in name or name.startswith(group))


def fuzz(group: str, corpus: Path, seconds: int) -> None:
    """Fuzz one group and end the process; the first byte of an input chooses the decoder."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["roquet"]):
        from roquet.base.errors import RoquetError  # noqa: PLC0415
        from tools.fuzz_python import decoders  # noqa: PLC0415
    grouped: defaultdict[str, list[Callable[[bytes], object]]] = defaultdict(list)
    for name, decoder in decoders():
        grouped[group_of(name)].append(decoder)
    chosen = grouped[group]

    def one(data: bytes) -> None:
        if data:
            try:
                chosen[data[0] % len(chosen)](data[1:])
            except (RoquetError, ValueError):
                return

    limits = [f"-max_total_time={seconds}", f"-max_len={LENGTH_MAX}", "-timeout=5"]
    artifacts = f"-artifact_prefix={corpus.parent}/"
    atheris.Setup([sys.argv[0], *limits, artifacts, "-print_final_stats=1", str(corpus)], one)
    atheris.Fuzz()


def main() -> int:
    """Run every group, or the one that is asked for; the exit code says whether one broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--group", choices=GROUPS)
    options = parser.parse_args()
    if options.group:
        fuzz(options.group, Path(os.environ["FUZZ_CORPUS"]), options.seconds)
        return 0
    from tools.fuzz_python import TEXTS  # noqa: PLC0415

    broken = False
    with tempfile.TemporaryDirectory(prefix="roquet-fuzz-") as folder:
        for group in GROUPS:
            corpus = Path(folder) / group / "corpus"
            corpus.mkdir(parents=True)
            for number, text in enumerate(TEXTS):
                (corpus / str(number)).write_bytes(bytes([number]) + text)
            command = [sys.executable, "-m", "tools.fuzz_atheris", "--group", group]
            done = subprocess.run(
                [*command, "--seconds", str(options.seconds)],
                check=False,
                capture_output=True,
                text=True,
                env={**os.environ, "FUZZ_CORPUS": str(corpus)},
            )
            tail = done.stderr.splitlines()
            executed = [line for line in tail if "number_of_executed_units" in line]
            print(f"{group}: {' '.join(executed) or 'no figures'}, exit code {done.returncode}")
            if done.returncode:
                broken = True
                print("\n".join(tail[-40:]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
