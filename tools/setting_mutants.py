"""Run the test of each setting while that setting is ignored: it has to fail.

`python -m tools.setting_mutants [--sample n --seed s] [key ...]`.
`tools/pages/java_settings_tests.py` and, for settings that RocketMQ has not,
`tools/pages/own_settings_tests.py` say which test shows the effect of which setting; here each is
run with `tools.mutants.ignored_setting`, which lets the setting keep its default, in the test and
in the processes that it starts. A test that passes shows nothing, and is listed.
"""

from __future__ import annotations

import argparse
import itertools
import random
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from tools.mutants.ignored_setting import ROOT, environment
from tools.pages import java_settings_tests, own_settings_tests

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT_S = 240
FAILURES = ("\nFAILED ", "\nERROR ")
"""How pytest's summary names tests that failed; without one the run itself did not work."""


def rows() -> Iterator[tuple[Path, str, str]]:
    """Yield (file, test, key)."""
    tables = (java_settings_tests.SHOWN_BY, own_settings_tests.SHOWN_BY)
    for name, tests in itertools.chain.from_iterable(table.items() for table in tables):
        (path,) = (ROOT / "tests").rglob(name)
        for test, keys in tests.items():
            for key in keys:
                yield path, test, key


def notices(path: Path, test: str, key: str, temporary: str) -> bool:
    """Tell whether a test fails while a setting is ignored."""
    try:
        said = _run([f"{path}::{test}"], key, temporary, LIMIT_S)
    except subprocess.TimeoutExpired:
        return True
    return any(mark in said for mark in FAILURES)


def failing(chosen: list[tuple[Path, str, str]], temporary: str) -> list[str]:
    """Return the summary's lines of tests that fail though no setting is ignored."""
    only = sorted({f"{path}::{test}" for path, test, _ in chosen})
    lines = _run(only, "", temporary, LIMIT_S * len(only)).splitlines()
    return [line for line in lines if f"\n{line}".startswith(FAILURES)]


def _run(tests: list[str], key: str, temporary: str, limit_s: float) -> str:
    command = [sys.executable, "-m", "pytest", *tests, "-q", "-p", "no:cacheprovider"]
    command.append(f"--basetemp={temporary}/bt")
    # The installed package is a plugin of pytest, and what ignores the setting has imported it.
    command += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(key, temporary),
        capture_output=True,
        check=False,
        timeout=limit_s,
    )
    said = done.stdout.decode(errors="replace")
    is_judged = done.returncode == 0 or any(mark in said for mark in FAILURES)
    if done.returncode not in (0, 1) or not is_judged:
        wrong = said + done.stderr.decode(errors="replace")
        raise SystemExit(f"pytest ended with code {done.returncode}:\n{wrong[-4000:]}")
    return said


def main() -> int:
    """Run them all, or some; 0 when each test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, help="how many settings to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("keys", nargs="*", help="only these settings")
    options = parser.parse_args()
    chosen = [row for row in rows() if not options.keys or row[2] in options.keys]
    if options.sample is not None:
        rng = random.Random(options.seed)
        chosen = rng.sample(chosen, min(options.sample, len(chosen)))
    if not chosen:
        parser.error("no test shows such a setting")
    passed: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        if failed := failing(chosen, temporary):
            raise SystemExit("\n".join(["these fail without any change:", *failed]))
        for path, test, key in chosen:
            found = notices(path, test, key, temporary)
            said = "noticed" if found else "NOT NOTICED"
            sys.stdout.write(f"{key}: {said} by {path.name}::{test}\n")
            sys.stdout.flush()
            if not found:
                passed.append(key)
    sys.stdout.write(f"{len(chosen)} settings ignored, {len(chosen) - len(passed)} noticed\n")
    return 1 if passed else 0


if __name__ == "__main__":
    sys.exit(main())
