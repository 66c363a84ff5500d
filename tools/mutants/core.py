"""Change rules of the compiled core one at a time and list the changes that no test notices.

`make mutants`, or `python -m tools.mutants.core [--sample n] [--seed s] [--group name]`.
cargo-mutants says which changes there are; this makes each in a copy of the sources, builds, and
runs the tests of its group: those of the core, or, where rules are tested over the native module,
Python's. cargo-mutants alone would run Rust's tests only, which know half of the fast path.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.mutants.judged import judged
from tools.mutants.trial import Tree

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parent.parent.parent
PIN = ROOT / "requirements" / "mutants.txt"
GOAL = 95
LIMIT_S = 1800.0
"""What building and testing one change may take."""


class Group(NamedTuple):
    """Files of crates/core/src whose rules the same tests hold."""

    files: tuple[str, ...]
    rust: tuple[str, ...]
    """Arguments of `cargo test`, of which there is one run; none when empty."""
    python: tuple[str, ...]


GROUPS = {
    "fast path": Group(
        ("ingest/*.rs",),
        ("--lib", "ingest"),
        (
            "tests/unit/native",
            "tests/unit/broker/test_fast_broker.py",
            "tests/unit/broker/test_pull_rules.py",
            "tests/differential",
        ),
    ),
    "recovery": Group(
        ("recovery*.rs", "consume_queue/*.rs"),
        ("--lib", "--test", "queues", "--test", "store_*", "--test", "powerloss*"),
        (),
    ),
    "replication": Group(("ha/*.rs",), ("--lib", "--test", "replica"), ("tests/unit/ha",)),
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
        subprocess.run([*command, f"cargo-mutants@={version}"], check=True)
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


def noticed(change: dict[str, Any], group: Group) -> str:
    """Make a change, build, test, take it back; return what noticed it, nothing if none did."""
    path = Path(change["file"])
    source = path.read_bytes()
    try:
        subprocess.run(
            ["patch", "-s", "-p1", str(path)], input=_hunks(change), text=True, check=True
        )
        return _tested(group)
    finally:
        path.write_bytes(source)


def _hunks(change: dict[str, Any]) -> str:
    lines = str(change["diff"]).splitlines(keepends=True)
    begin = next(at for at, line in enumerate(lines) if line.startswith("@@"))
    return "".join(lines[begin:])


def _tested(group: Group) -> str:
    cargo = ("--profile", "dev-fast", "--locked", "-p")
    if group.rust and not _passes("cargo", "test", "-q", *cargo, "roquet-core", *group.rust):
        return "cargo test"
    if not group.python:
        return ""
    if not _passes("cargo", "build", "-q", *cargo, "roquet-native"):
        return "cargo build"
    built = Path(os.environ["CARGO_TARGET_DIR"], "dev-fast", "libroquet_native.so")
    shutil.copy2(built, "src/roquet/roquet_native.abi3.so")
    tests = ("-x", "-q", "-p", "no:cacheprovider", *group.python)
    return "" if _passes(sys.executable, "-m", "pytest", *tests) else "pytest"


def _passes(*command: str) -> bool:
    try:
        with Path("said.txt").open("wb") as said:
            done = subprocess.run(command, check=False, timeout=LIMIT_S, stdout=said, stderr=said)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> int:
    """Run the command; the exit code says whether enough was noticed."""
    options = _options()
    os.nice(options.nice)
    work = Path(options.work or ROOT / "build" / "mutants").resolve()
    os.environ["CARGO_TARGET_DIR"] = str(Path(options.target or work / "target").resolve())
    tree = Tree(ROOT, work / "core")
    tree.enter()
    program = installed(work / "cargo-mutants")
    reasons = judged()
    every = {name: listed(program, GROUPS[name]) for name in options.group or GROUPS}
    total = sum(map(len, every.values()))
    print(f"{total} changes are possible; seed {options.seed}", flush=True)
    survivors: list[str] = []
    tried = 0
    for name, changes in every.items():
        if _tested(GROUPS[name]):
            raise SystemExit(
                f"{name}: the tests fail without any change; see {Path.cwd()}/said.txt"
            )
        share = -(-options.sample * len(changes) // total)
        for change in random.Random(f"{options.seed} {name}").sample(changes, share):
            if key_of(change) in reasons:
                continue
            tried += 1
            by = noticed(change, GROUPS[name])
            print(f"{by or 'UNNOTICED'}: {key_of(change)}", flush=True)
            survivors += [] if by else [key_of(change)]
    return _told(tried, survivors)


def _told(tried: int, survivors: Sequence[str]) -> int:
    share = 100.0 * (tried - len(survivors)) / max(1, tried)
    print(f"\ncore: {tried} changes, {len(survivors)} unnoticed: {share:.1f} % noticed")
    for name in survivors:
        print(f"  {name}")
    return 0 if share >= GOAL else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=30, help="how many changes to make")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--group", choices=GROUPS, action="append")
    parser.add_argument("--nice", type=int, default=15)
    parser.add_argument("--work", help="folder for the copy, build/mutants unless given")
    parser.add_argument("--target", help="folder of what cargo builds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
