"""Run a failed stage's tests once more when they are few, and say so.

Tests that start other processes (Java brokers, Spark) sometimes meet a machine that stands still.
One or two that fail among hundreds may show that they pass by themselves; both outcomes stay in
the log, and `count_tests` names them as unstable: a test that needs this is to be mended.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED_MAX = 2
LAST_FAILED = "v/cache/lastfailed"
"""In a folder beside the report: stages that run at the same time keep theirs apart."""


def failed_tests(cache: Path) -> list[str]:
    """Return the ids of the tests that failed last; none when pytest wrote nothing."""
    if not cache.exists():
        return []
    table = json.loads(cache.read_bytes())
    return sorted(table) if isinstance(table, dict) else []


def main(report: Path) -> int:
    """Run them, with a report beside the first one; return 0 when all of them pass."""
    failed = failed_tests(report.with_suffix(".cache") / LAST_FAILED)
    if not failed or len(failed) > FAILED_MAX:
        print(f"{len(failed)} failed: no second try (at most {FAILED_MAX} get one)")
        return 1
    print("second try of", *failed, sep="\n  ", flush=True)
    again = report.with_name(f"{report.stem}-second.xml")
    command = [sys.executable, "-m", "pytest", "--timeout", "600", f"--junitxml={again}", *failed]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
