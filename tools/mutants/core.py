"""Change rules of the compiled core one at a time and list the changes that no test notices.

`make mutants`, or `python -m tools.mutants.core [--sample n] [--seed s] [--group name]`.
cargo-mutants lists the changes. Each is made in a copy of the sources, built, and given to the
tests of its group, stage by stage: the core's own, or, where rules are tested over the native
module, Python's first. cargo-mutants alone would run Rust's tests only, which know half of the
fast path. A change that does not compile counts for nothing.

What keeps one change below a minute: a profile of its own in one warm build folder, one test
program for all files of tests (`EVERY`), and a limit for each stage, by what it takes unchanged.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.mutants.judged import judged
from tools.mutants.trial import Tree

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parent.parent.parent
PIN = ROOT / "requirements" / "mutants.txt"
GOAL = 95
BUILD_S = 900.0
"""What a build may take; the first makes everything."""
STAGE_S = 30.0
"""What a stage may take besides ten times what it takes unchanged."""
NO_BUILD = "does not compile"
PROFILE = {
    "inherits": '"dev"',
    "opt-level": "1",
    "debug": "false",
    "incremental": "true",
    "codegen-units": "64",
}
"""Quick to build again after a change, and quick enough to run."""
ENVIRONMENT = {"POWERLOSS_STATES": "60", "TIMER_STATES": "60"}
EVERY = "every"
_RUST_FAILED = r"^    (\S+)$"
_PYTHON_FAILED = r"^(?:FAILED|ERROR) (\S+)"


class Group(NamedTuple):
    """Files of crates/core/src whose rules the same tests hold."""

    files: tuple[str, ...]
    rust: tuple[tuple[str, ...], ...]
    """Stages: words of which one is part of the name of each test that is run."""
    python: tuple[tuple[str, ...], ...]
    """Stages: files and folders of tests."""
    python_first: bool = False


_STORE = (
    ("recovery", "checkpoint", "extent", "store_", "queues::"),
    ("powerloss", "replica::", "index::"),
)
_NATIVE = "tests/unit/native/test_ingest"
_BUSY = (
    "tests/unit/broker/test_fast_broker.py"
    "::test_send_that_waited_too_long_itself_is_refused_and_later_ones_are_taken"
)
"""Stops the loop for a second: on a busy machine it fails without any change."""
_SURE = "tests/unit/native/"
"""Tests without sockets and threads: when one fails it need not fail twice."""
_FAST = (
    (f"{_NATIVE}.py", f"{_NATIVE}_batch.py", f"{_NATIVE}_times.py"),
    (
        "tests/unit/broker/test_pull_rules.py",
        "tests/unit/broker/test_send_rules.py",
        "tests/unit/broker/test_fast_broker.py",
    ),
)
"""Without tests/differential, which takes minutes: a rule that it alone holds wants a test."""
GROUPS = {
    "sends": Group(
        ("ingest/send*.rs", "ingest/parked.rs", "ingest/scan.rs", "ingest/table.rs"),
        (("ingest::",),),
        _FAST,
        python_first=True,
    ),
    "pulls": Group(
        ("ingest/pull*.rs", "ingest/holds.rs", "get.rs"),
        (("ingest::", "queues::", "store_"),),
        _FAST,
        python_first=True,
    ),
    "offsets": Group(
        ("queue_ends.rs", "commit_log/offsets.rs", "ingest/books.rs"),
        _STORE,
        ((f"{_NATIVE}.py", "tests/unit/native/test_store.py"),),
    ),
    "access": Group(
        ("ingest/accounts.rs",),
        (("ingest::",),),
        ((f"{_NATIVE}.py", "tests/unit/acl"),),
        python_first=True,
    ),
    "recovery": Group(
        ("recovery*.rs", "checkpoint.rs", "consume_queue/load.rs", "consume_queue/queue.rs"),
        _STORE,
        (),
    ),
    "replication": Group(
        ("ha/*.rs", "commit_log/replica.rs", "store_replica.rs"),
        (("ha::", "replica::"),),
        (("tests/unit/ha",),),
    ),
}


def installed(folder: Path) -> Path:
    """Return cargo-mutants as it is pinned, built into `folder`. Raises SystemExit."""
    pin = re.search(
        r"^cargo-mutants==(\S+) .*?--hash=sha256:(\w+)", PIN.read_text(), re.MULTILINE | re.DOTALL
    )
    assert pin is not None
    version, digest = pin.groups()
    program = folder / "bin" / "cargo-mutants"
    if not program.exists():
        command = ["cargo", "install", "-q", "--locked", "--root", str(folder)]
        # Built where it stays out of the folder of the core: the two share nothing.
        own = {**os.environ, "CARGO_TARGET_DIR": str(folder / "target")}
        subprocess.run([*command, f"cargo-mutants@={version}"], check=True, env=own)
        shutil.rmtree(folder / "target", ignore_errors=True)
        home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
        crates = list(home.glob(f"registry/cache/*/cargo-mutants-{version}.crate"))
        if digest not in {hashlib.sha256(it.read_bytes()).hexdigest() for it in crates}:
            program.unlink()
            raise SystemExit(f"cargo-mutants {version} is not what {PIN.name} names")
    return program


def listed(program: Path, group: Group) -> list[dict[str, Any]]:
    """Return the changes of a group: name, file and diff."""
    files = [word for name in group.files for word in ("--file", f"crates/core/src/{name}")]
    said = subprocess.run(
        [str(program), "mutants", "--list", "--json", "--diff", "-p", "roquet-core", *files],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found: list[dict[str, Any]] = json.loads(said)
    return found


def key_of(change: dict[str, Any]) -> str:
    """Return what names a change however the lines around it move."""
    return re.sub(r":\d+:\d+: ", " | ", str(change["name"]))


class Trial:
    """Builds and tests the copy in the current folder."""

    def __init__(self) -> None:
        """Begin without knowing how long a stage takes, and which tests fail on a busy machine."""
        self._usual_s: dict[str, float] = {}
        self._unsteady = [_BUSY]
        self.is_changed = False

    def noticed(self, change: dict[str, Any], group: Group) -> str:
        """Make a change, build, test, take it back.

        Returns what noticed it, nothing if no test did, `NO_BUILD` if it is not Rust.
        """
        path = Path(change["file"])
        source = path.read_bytes()
        self.is_changed = True
        try:
            subprocess.run(
                ["patch", "-s", "-p1", str(path)], input=_hunks(change), text=True, check=True
            )
            return self.tested(group)
        finally:
            path.write_bytes(source)
            self.is_changed = False

    def tested(self, group: Group) -> str:
        """Run all stages of a group until one fails; return it as `noticed` does."""
        halves = [self._by_rust, self._by_python]
        for half in reversed(halves) if group.python_first else halves:
            by = half(group)
            if by:
                return by
        return ""

    def _by_rust(self, group: Group) -> str:
        if not group.rust:
            return ""
        tests = ("cargo", "test", "-q", *_cargo("roquet-core"), "--lib", "--test", EVERY)
        if _ended((*tests, "--no-run"), BUILD_S) != 0:
            return NO_BUILD
        for words in group.rust:
            if not self._passes((*tests, "--", *words)):
                return f"cargo test {_failed(_RUST_FAILED)}"
        return ""

    def _by_python(self, group: Group) -> str:
        if not group.python:
            return ""
        if _ended(("cargo", "build", "-q", *_cargo("roquet-native")), BUILD_S) != 0:
            return NO_BUILD
        built = Path(os.environ["CARGO_TARGET_DIR"], "mutants", "libroquet_native.so")
        native = Path("src/roquet/roquet_native.abi3.so")
        native.unlink(missing_ok=True)
        shutil.copy2(built, native)
        for tests in group.python:
            by = self._pytest(tests)
            if by:
                return by
        return ""

    def _pytest(self, tests: Sequence[str]) -> str:
        """Run one stage of Python's tests; return the one that fails, and fails again alone."""
        base = f"--basetemp={Path.cwd().parent / 'pytest'}"
        quiet = ("-x", "-q", "--tb=line", "-p", "no:cacheprovider", base)
        own = (sys.executable, "-m", "pytest", *quiet)
        while True:
            left_out = [f"--deselect={it}" for it in self._unsteady]
            if self._passes((*own, *tests), left_out):
                return ""
            by = _failed(_PYTHON_FAILED)
            is_sure = self.is_changed and (by.startswith(_SURE) or not self._passes((*own, by)))
            if is_sure or "::" not in by:
                return f"pytest {by}"
            when = "only sometimes" if self.is_changed else "without any change"
            print(f"{by} fails {when} and is left out", flush=True)
            self._unsteady.append(by)

    def _passes(self, command: Sequence[str], more: Sequence[str] = ()) -> bool:
        """Tell whether a stage passes within its limit; the first time measures it."""
        name = " ".join(command)
        usual_s = self._usual_s.get(name)
        if usual_s is not None and not self.is_changed:
            return True  # Another group has the same stage.
        begun = time.monotonic()
        code = _ended((*command, *more), BUILD_S if usual_s is None else STAGE_S + 10 * usual_s)
        if code == 0:
            self._usual_s.setdefault(name, time.monotonic() - begun)
        return code == 0


def build_anew() -> None:
    """Make cargo build the core again: a run that was ended may have left a change in its build."""
    for path in Path("crates/core/src").rglob("*.rs"):
        path.touch()


def one_program() -> None:
    """Write the test program that holds all files of tests of the core: one is linked, not 20."""
    folder = Path("crates/core/tests")
    names = sorted(it.stem for it in folder.glob("*.rs"))
    text = "".join(f'#[path = "{name}.rs"]\nmod {name};\n' for name in names)
    (folder / f"{EVERY}.rs").write_text("#![allow(warnings)]\n" + text)


def _cargo(package: str) -> tuple[str, ...]:
    profile = [
        word
        for key, value in PROFILE.items()
        for word in ("--config", f"profile.mutants.{key}={value}")
    ]
    return (*profile, "--profile", "mutants", "--locked", "-p", package)


def _hunks(change: dict[str, Any]) -> str:
    lines = str(change["diff"]).splitlines(keepends=True)
    begin = next(at for at, line in enumerate(lines) if line.startswith("@@"))
    return "".join(lines[begin:])


def _ended(command: Sequence[str], limit_s: float) -> int:
    """Run a command with all that it starts; return its exit code, -1 when it did not end."""
    with Path("said.txt").open("wb") as said:
        child = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        try:
            return child.wait(limit_s)
        except subprocess.TimeoutExpired:
            said.write(b"\nno end\n")
            return -1
        finally:
            # A test that hangs is a child of cargo, and would go on.
            if child.returncode != 0:
                _kill(child)


def _kill(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _failed(pattern: str) -> str:
    said = Path("said.txt").read_text(errors="replace")
    found = re.search(pattern, said, re.MULTILINE)
    return found.group(1) if found else "no end" if said.endswith("no end\n") else "ended badly"


def main() -> int:
    """Run the command; the exit code says whether enough was noticed."""
    options = _options()
    os.nice(options.nice)
    work = Path(options.work or ROOT / "build" / "mutants").resolve()
    os.environ["CARGO_TARGET_DIR"] = str(Path(options.target or work / "target").resolve())
    os.environ.update(ENVIRONMENT)
    tree = Tree(ROOT, work / "core")
    tree.enter()
    build_anew()
    one_program()
    program = installed(work / "cargo-mutants")
    reasons = judged()
    every = {name: listed(program, GROUPS[name]) for name in options.group or GROUPS}
    total = sum(map(len, every.values()))
    print(f"{total} changes are possible; seed {options.seed}", flush=True)
    results: list[Result] = []
    trial = Trial()
    for name, changes in every.items():
        if options.match:
            chosen = [it for it in changes if any(word in key_of(it) for word in options.match)]
        else:
            share = min(len(changes), -(-options.sample * len(changes) // total))
            chosen = random.Random(f"{options.seed} {name}").sample(changes, share)
        if not chosen:
            continue
        by = trial.tested(GROUPS[name])
        if by:
            raise SystemExit(
                f"{name}: the tests fail without any change ({by}); see {Path.cwd()}/said.txt"
            )
        results.append(_tried(trial, name, chosen, reasons))
    return _told(results)


class Result(NamedTuple):
    """What became of the changes of one group."""

    name: str
    counted: int
    harmless: int
    survivors: list[str]

    def line(self) -> str:
        """Return the result as a line."""
        share = 100.0 * (self.counted - len(self.survivors)) / max(1, self.counted)
        return (
            f"{self.name:<20} {self.counted + self.harmless:>5} changes, {self.harmless} harmless,"
            f" {len(self.survivors)} unnoticed: {share:.1f} % noticed"
        )


def _tried(
    trial: Trial, name: str, changes: Sequence[dict[str, Any]], reasons: dict[str, str]
) -> Result:
    survivors: list[str] = []
    counted = harmless = 0
    for change in changes:
        key = key_of(change)
        if key in reasons:
            harmless += 1
            continue
        begun = time.monotonic()
        by = trial.noticed(change, GROUPS[name])
        took_s = time.monotonic() - begun
        print(f"{by or 'UNNOTICED'} [{took_s:.1f} s] {change['name']}", flush=True)
        counted += by != NO_BUILD
        survivors += [] if by else [key]
    return Result(name, counted, harmless, survivors)


def _told(results: Sequence[Result]) -> int:
    print()
    for result in results:
        print(result.line())
        for key in result.survivors:
            print(f"  {key}")
    survivors = [key for result in results for key in result.survivors]
    counted = sum(result.counted for result in results)
    harmless = sum(result.harmless for result in results)
    print(Result("together", counted, harmless, survivors).line())
    return 0 if counted - len(survivors) >= counted * GOAL / 100 else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=30, help="how many changes to make")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--group", choices=GROUPS, action="append")
    parser.add_argument("--match", action="append", help="instead: changes whose key has this")
    parser.add_argument("--nice", type=int, default=15)
    parser.add_argument("--work", help="folder for the copy, build/mutants unless given")
    parser.add_argument("--target", help="folder of what cargo builds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
