"""Run the test of each setting while that setting is ignored: it has to fail.

`python -m tools.setting_mutants [key ...]`. `tools/java_settings_tests.py` says which test shows
the effect of which setting; here each is run with `tools.mutants.ignored_setting`, which lets the
setting keep its default. A test that passes shows nothing, and is listed. Tests in Rust are left
out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tools.java_settings_tests import SHOWN_BY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[1]
LIMIT_S = 240
FAILURES = (b"\nFAILED ", b"\nERROR ")
"""How pytest's summary names tests that failed; without one the run itself did not work."""


def rows() -> Iterator[tuple[Path, str, str]]:
    """Yield (file, test, key)."""
    for name, tests in SHOWN_BY.items():
        if name.endswith(".py"):
            (path,) = (ROOT / "tests").rglob(name)
            for test, keys in tests.items():
                for key in keys:
                    yield path, test, key


def notices(path: Path, test: str, key: str, temporary: str) -> bool:
    """Tell whether a test fails while a setting is ignored."""
    only = [f"{path}::{test}", "-q", "-x", f"--basetemp={temporary}/bt"]
    command = [sys.executable, "-m", "pytest", "-p", "tools.mutants.ignored_setting", *only]
    env = {**os.environ, "ROQUET_IGNORED_SETTING": key}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return True
    return any(mark in done.stdout for mark in FAILURES)


def main(wanted: Sequence[str]) -> int:
    """Run them all, or those of some keys; 0 when each test failed."""
    passed: list[str] = []
    count = 0
    with tempfile.TemporaryDirectory() as temporary:
        for path, test, key in rows():
            if wanted and key not in wanted:
                continue
            count += 1
            found = notices(path, test, key, temporary)
            said = "noticed" if found else "NOT NOTICED"
            sys.stdout.write(f"{key}: {said} by {path.name}::{test}\n")
            sys.stdout.flush()
            if not found:
                passed.append(key)
    sys.stdout.write(f"{count} settings ignored, {count - len(passed)} noticed\n")
    return 1 if passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
