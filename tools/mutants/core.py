"""Change rules of the compiled core one at a time and list the changes that no test notices.

`make mutants`, or `python -m tools.mutants.core [--sample n | --each n] [--seed s] [--group name]`.
cargo-mutants lists the changes, and a sample of them is drawn. They are built in together, once,
and the environment says which is made (`tools.mutants.compiled.schema`). A first run of all tests
notes which functions each runs; a change is given to the tests that run its function: the quick
ones of Rust, then Python's, then the rest of Rust's (`tools.mutants.compiled.core_tests`).
cargo-mutants alone would build for each change, and run Rust's tests only, which know half of the
fast path. A change that does not compile counts for nothing.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.mutants.compiled.core_table import GROUPS
from tools.mutants.compiled.core_tests import Watch
from tools.mutants.compiled.schema import OUTSIDE, Change, Sources, add_seam
from tools.mutants.judged import judged
from tools.mutants.trial import Tree, preload

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parent.parent.parent
PIN = ROOT / "requirements" / "mutants.txt"
GOAL = 95
TURNS = 10
"""So often the compiler may refuse some of the changes."""
PROFILE = {
    "inherits": '"dev"',
    "opt-level": "1",
    "debug": "false",
    "incremental": "true",
    "codegen-units": "64",
}
"""Quick to build, and quick enough to run."""
ENVIRONMENT = {"POWERLOSS_STATES": "60", "TIMER_STATES": "60"}
EVERY = "every"


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


def listed(program: Path) -> list[dict[str, Any]]:
    """Return the changes of all groups as cargo-mutants says them."""
    globs = (f"crates/core/src/{name}" for group in GROUPS.values() for name in group.files)
    files = [word for name in globs for word in ("--file", name)]
    said = subprocess.run(
        [str(program), "mutants", "--list", "--json", "-p", "roquet-core", *files],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found: list[dict[str, Any]] = json.loads(said)
    return found


def by_group(changes: Sequence[Change]) -> dict[str, list[Change]]:
    """Return the changes of each group."""
    return {
        name: [
            it
            for it in changes
            if any(fnmatch.fnmatch(it.path, f"crates/core/src/{glob}") for glob in group.files)
        ]
        for name, group in GROUPS.items()
    }


def one_program() -> None:
    """Write the test program that holds all files of tests of the core: one is linked, not 20."""
    folder = Path("crates/core/tests")
    files = {it.stem: it.name for it in folder.glob("*.rs")}
    files |= {it.parent.name: f"{it.parent.name}/main.rs" for it in folder.glob("*/main.rs")}
    text = "".join(f'#[path = "{files[name]}"]\nmod {name};\n' for name in sorted(files))
    (folder / f"{EVERY}.rs").write_text("#![allow(warnings)]\n" + text)


class Built(NamedTuple):
    """What a build has made."""

    programs: list[Path]
    changes: list[Change]
    """Those that are built in."""
    refused: list[Change]
    """Those that do not compile."""
    alone: list[Change]
    """Those that need a build of their own."""


class NotBuilt(SystemExit):
    """Tests or native module do not compile; the text is the compiler's."""


def build(sources: Sources, chosen: Sequence[Change]) -> Built:
    """Build core, tests and native module with the chosen changes. Raises SystemExit."""
    alone = [it for it in chosen if it.function == OUTSIDE and not it.is_alone]
    changes = [it for it in chosen if it not in alone]
    refused: list[Change] = []
    for _ in range(TURNS):
        rendered = sources.write(changes)
        done = _cargo("check", "roquet-core", "--message-format=json")
        by_itself = bool(changes) and changes[0].is_alone
        if done.returncode == 0:
            try:
                return Built(_programs(), changes, refused, alone)
            except NotBuilt:
                # A constant that the core itself could have, but its tests do not compile with.
                if not by_itself:
                    raise
                return Built([], [], changes, [])
        bad, bodies, others = rendered.refused(done.stdout)
        if by_itself:
            return Built([], [], changes, [])
        together = {it.number for it in bodies}
        alone += [it for it in changes if it.function in together and it not in bad]
        refused += bad
        left = [it for it in changes if it not in bad and it.function not in together]
        if others or len(left) == len(changes):
            raise SystemExit("\n".join(others) or done.stderr)
        changes = left
    raise SystemExit(f"the compiler refuses changes in {TURNS} turns")


def _programs() -> list[Path]:
    """Build tests and native module; return the programs of tests."""
    tests = ("--lib", "--test", EVERY, "--no-run", "--message-format=json")
    done = _cargo("test", "roquet-core", *tests)
    native = _cargo("build", "roquet-native") if done.returncode == 0 else done
    if native.returncode != 0:
        raise NotBuilt(native.stderr)
    built = Path(os.environ["CARGO_TARGET_DIR"], "mutants", "libroquet_native.so")
    module = Path("src/roquet/roquet_native.abi3.so")
    module.unlink(missing_ok=True)
    shutil.copy2(built, module)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    # Another run that builds into the same folder would replace them, and its changes have others'
    # numbers: nobody would be noticed any more.
    own = Path("programs").absolute()
    own.mkdir(exist_ok=True)
    return [Path(shutil.copy2(it["executable"], own)) for it in said if it.get("executable")]


def _cargo(word: str, package: str, *more: str) -> subprocess.CompletedProcess[str]:
    profile = [
        word
        for key, value in PROFILE.items()
        for word in ("--config", f"profile.mutants.{key}={value}")
    ]
    command = ("cargo", word, "-q", *profile, "--profile", "mutants", "--locked", "-p", package)
    return subprocess.run((*command, *more), capture_output=True, text=True, check=False)


def main() -> int:
    """Run the command; the exit code says whether enough was noticed."""
    options = _options()
    os.nice(options.nice)
    work = Path(options.work or ROOT / "build" / "mutants").resolve()
    os.environ["CARGO_TARGET_DIR"] = str(Path(options.target or work / "target").resolve())
    os.environ.update(ENVIRONMENT)
    Tree(ROOT, work / "core").enter()
    program = installed(work / "cargo-mutants")
    sources = Sources(listed(program))
    one_program()
    add_seam()
    every = by_group(sources.changes)
    names = options.group or list(GROUPS)
    total = sum(len(every[name]) for name in names)
    print(f"{total} changes are possible; seed {options.seed}", flush=True)
    there = {it.key for it in sources.changes}
    for key in sorted(judged().keys() - there):
        if key.startswith("crates/"):
            print(f"judged.txt names a change that there is no more: {key}", flush=True)
    chosen = {name: drawn(name, every[name], options, total) for name in names}
    begun = time.monotonic()
    built = build(sources, [it for changes in chosen.values() for it in changes])
    print(f"built in {time.monotonic() - begun:.0f} s", flush=True)
    begun = time.monotonic()
    tests = Watch(sources.functions, work, options.budget)
    tests.note_rust(built.programs, keep=options.keep_notes)
    preload(spark=False)
    folders = {it for name in names if chosen[name] for it in GROUPS[name].python}
    tests.note_python(sorted(folders), keep=options.keep_notes)
    print(f"{len(tests.all)} tests noted in {time.monotonic() - begun:.0f} s", flush=True)
    results = [Result(name) for name in names]
    for result in results:
        result.try_all(tests, built, chosen[result.name])
    for result in results:
        for change in built.alone:
            if change in chosen[result.name]:
                result.try_alone(tests, sources, change)
    return _told(results)


def drawn(
    name: str, changes: Sequence[Change], options: argparse.Namespace, total: int
) -> list[Change]:
    """Draw the changes of a group."""
    if options.match:
        return [it for it in changes if any(word in it.key for word in options.match)]
    share = options.each or -(-options.sample * len(changes) // total)
    return random.Random(f"{options.seed} {name}").sample(changes, min(len(changes), share))


class Result:
    """What became of the changes of one group."""

    def __init__(self, name: str) -> None:
        """Begin with none."""
        self.name = name
        self.counted = 0
        self.harmless = 0
        self.survivors: list[tuple[Change, int]] = []
        self._reasons = judged()

    def try_all(self, tests: Watch, built: Built, changes: Sequence[Change]) -> None:
        """Make each change that is built in."""
        refused = {it.number for it in built.refused}
        there = {it.number for it in built.changes}
        for change in changes:
            if change.key in self._reasons:
                self.harmless += 1
            elif change.number in refused:
                print(f"does not compile: {change.name}", flush=True)
            elif change.number in there:
                self._try(tests, change)

    def try_alone(self, tests: Watch, sources: Sources, change: Change) -> None:
        """Build a change by itself, and make it."""
        if change.key in self._reasons:
            return
        change.is_alone = True
        built = build(sources, [change])
        if built.changes:
            self._try(tests, change)
        else:
            print(f"does not compile: {change.name}", flush=True)

    def _try(self, tests: Watch, change: Change) -> None:
        begun = time.monotonic()
        count = len(tests.reaching(change))
        by = tests.noticed(change, GROUPS[self.name].python)
        took_s = time.monotonic() - begun
        print(f"{by or 'UNNOTICED'} [{took_s:.1f} s] {change.name}", flush=True)
        self.counted += 1
        if not by:
            self.survivors.append((change, count))

    def line(self) -> str:
        """Return the result as a line."""
        return _line(self.name, self.counted, self.harmless, len(self.survivors))


def _line(name: str, counted: int, harmless: int, survivors: int) -> str:
    share = 100.0 * (counted - survivors) / max(1, counted)
    return (
        f"{name:<20} {counted + harmless:>5} changes, {harmless} harmless,"
        f" {survivors} unnoticed: {share:.1f} % noticed"
    )


def _told(results: Sequence[Result]) -> int:
    print()
    for result in results:
        print(result.line())
        for change, count in result.survivors:
            print(f"  {change.name} ({count or 'no'} tests run the function)\n    {change.key}")
    counted = sum(it.counted for it in results)
    survivors = sum(len(it.survivors) for it in results)
    print(_line("together", counted, sum(it.harmless for it in results), survivors))
    return 0 if counted - survivors >= counted * GOAL / 100 else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=30, help="how many changes to make")
    parser.add_argument("--each", type=int, help="instead: so many in each group")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--group", choices=GROUPS, action="append")
    parser.add_argument("--match", action="append", help="instead: changes whose key has this")
    parser.add_argument("--budget", type=float, default=25.0, help="seconds of tests a language")
    parser.add_argument("--nice", type=int, default=15)
    parser.add_argument(
        "--keep-notes", action="store_true", help="take what an earlier run noted of the tests"
    )
    parser.add_argument("--work", help="folder for the copy, build/mutants unless given")
    parser.add_argument("--target", help="folder of what cargo builds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
