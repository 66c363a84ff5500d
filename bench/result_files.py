"""Results of benchmarks as files of `bench/results`: how each was measured, and its figures."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parent / "results"


def commit() -> str:
    """Return the short commit, marked when the tree is not clean."""
    text = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return text.stdout.strip() or "unknown"


def circumstances(kind: str, module: str) -> dict[str, Any]:
    """Return what a result begins with, to be taken before measuring: the load is of then.

    `kind` says what is measured, and begins the file's name.
    """
    return {
        "kind": kind,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}",
        "python": platform.python_version(),
        "commit": commit(),
        "command": " ".join(["python -m", module, *sys.argv[1:]]),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_average": os.getloadavg()[0],
    }


def save(result: Mapping[str, Any]) -> Path:
    """Write circumstances and figures, with the load after them; return where. Raises OSError."""
    stamp = f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    target = FOLDER / f"{result['kind']}-{stamp}-{result['commit']}.json"
    whole = {**result, "load_average_after": os.getloadavg()[0]}
    target.write_text(json.dumps(whole, indent=1) + "\n")
    return target
