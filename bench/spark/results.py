"""Results of the Spark benchmarks as files: where and how each was measured, and its figures."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.run import commit

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parents[1] / "results"


def circumstances(module: str) -> dict[str, Any]:
    """Return machine, commit, command, time and load average, to be taken before measuring."""
    return {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}",
        "commit": commit(),
        "command": " ".join(["python -m", module, *sys.argv[1:]]),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_average": os.getloadavg()[0],
    }


def save(kind: str, result: Mapping[str, Any]) -> Path:
    """Write a result; `kind` ends the file's name. Raises OSError."""
    target = FOLDER / f"{datetime.now(UTC):%Y%m%d-%H%M}-{result['commit']}-{kind}.json"
    target.write_text(json.dumps({"kind": kind, **result}, indent=1) + "\n")
    return target
