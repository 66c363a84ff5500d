"""Change rules of the product one at a time and list the changes that no test notices.

`make mutants`, or `python -m tools.mutants [--sample n | --each n] [--seed s] [--area name ...]`.
Draws `n` changes from all that can be made to the modules of `table.py`, or `n` of each area, makes
each in a copy of the sources and runs the tests that reach the changed line. A survivor is a rule
without a test, or a change without an effect: then it stands in `judged.txt` with the reason, and
does not count. A test that takes long has to fail twice: once may be the machine.
The exit code is 1 when fewer than 95 of 100 were noticed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import sys
import time
from pathlib import Path

from tools.mutants.changes import Change, changes_of
from tools.mutants.judged import judged
from tools.mutants.table import AREAS, Area
from tools.mutants.trial import Note, Tree, apart, notices, preload, reaching, trace
from tools.mutants.warm import warm

ROOT = Path(__file__).parent.parent.parent
GOAL = 95


def drawn(changes: list[Change], count: int, rng: random.Random) -> list[Change]:
    """Return `count` changes of all, in order."""
    return sorted(rng.sample(changes, min(count, len(changes))))


class Result:
    """What became of the changes of one area."""

    def __init__(self, name: str) -> None:
        """Begin with none."""
        self.name = name
        self.tried = 0
        self.harmless = 0
        self.survivors: list[tuple[Change, str]] = []

    @property
    def share(self) -> float:
        """How many of 100 were noticed, those left out that are judged harmless."""
        counted = self.tried - self.harmless
        return 100.0 if counted == 0 else 100.0 * (counted - len(self.survivors)) / counted

    def line(self) -> str:
        """Return the result as a line."""
        return (
            f"{self.name:<20} {self.tried:>5} changes, {self.harmless} harmless,"
            f" {len(self.survivors)} unnoticed: {self.share:.1f} % noticed"
        )


def tried(
    area: Area, changes: list[Change], notes: list[Note], budget_s: float, *, is_sure: bool = True
) -> Result:
    """Make each change and look whether a test notices it."""
    reasons = judged()
    result = Result(area.name)
    result.tried = len(changes)
    result.harmless = sum(it.key in reasons for it in changes)
    jobs = [(it, reaching(notes, it, budget_s)) for it in changes if it.key not in reasons]
    found = _warm(area, jobs)
    for change, tests in jobs:
        begun = time.monotonic()
        # What no test noticed there is made once more in a new process.
        by = found.get(change) or (notices(change, tests) if is_sure else "")
        if not by:
            why = f"{len(tests)} tests" if tests else "no test runs the line"
            result.survivors.append((change, why))
        if change not in found:
            _say(change, by or "UNNOTICED", time.monotonic() - begun)
    return result


def _warm(area: Area, jobs: list[tuple[Change, list[Note]]]) -> dict[Change, str]:
    """Return by what changes were noticed in a process that had all tests collected."""
    told = Path("warm.jsonl").absolute()
    told.write_text("")

    def tell(change: Change, by: str, took_s: float) -> None:
        _say(change, by, took_s)
        with told.open("a") as file:
            file.write(json.dumps([dataclasses.asdict(change), by]) + "\n")

    def run() -> int:
        warm([f"tests/{it}" for it in area.tests if Path("tests", it).exists()], jobs, tell)
        return 0

    code = apart(run)
    if code != 0:
        raise SystemExit(f"the tests of {area.name} do not run: exit code {code}")
    lines = map(json.loads, told.read_text().splitlines())
    return {Change(**change): by for change, by in lines}


def _say(change: Change, by: str, took_s: float) -> None:
    print(f"{by} [{took_s:.1f} s] {change.line}: {change.key}", flush=True)


def main() -> int:
    """Run the command; the exit code says whether enough was noticed."""
    options = _options()
    os.nice(options.nice)
    work = (ROOT / "build" / "mutants") if options.work is None else Path(options.work)
    work = work.resolve()
    tree = Tree(ROOT, work / "tree")
    tree.enter()
    areas = [it for it in AREAS if not options.area or it.name in options.area]
    preload(spark=any(it.name == "spark" for it in areas))
    every: dict[str, list[Change]] = {}
    for area in areas:
        modules = [
            it
            for it in tree.modules(area)
            if not options.module or it.endswith(tuple(options.module))
        ]
        every[area.name] = [
            change for it in modules for change in changes_of(it, Path(it).read_bytes())
        ]
    total = sum(map(len, every.values()))
    print(f"{total} changes are possible; seed {options.seed}", flush=True)
    if areas == list(AREAS) and not options.module:
        there = {change.key for changes in every.values() for change in changes}
        for key in sorted(judged().keys() - there):
            if key.startswith("src/"):
                print(f"judged.txt names a change that there is no more: {key}", flush=True)
    results: list[Result] = []
    for area in areas:
        share = options.each or -(-options.sample * len(every[area.name]) // max(1, total))
        chosen = drawn(every[area.name], share, random.Random(f"{options.seed} {area.name}"))
        if options.match:
            chosen = [it for it in every[area.name] if any(w in it.key for w in options.match)]
        if chosen:
            if options.tests:
                area = area._replace(tests=tuple(options.tests))  # noqa: PLW2901
            notes = trace(area, work, keep=options.keep_notes)
            results.append(tried(area, chosen, notes, options.budget, is_sure=not options.once))
    return _told(results)


def _told(results: list[Result]) -> int:
    print()
    whole = Result("together")
    for result in results:
        print(result.line())
        whole.tried += result.tried
        whole.harmless += result.harmless
        whole.survivors += result.survivors
        for change, why in result.survivors:
            print(f"  {change.path}:{change.line} ({why})\n    {change.key}")
    print(whole.line())
    return 0 if whole.share >= GOAL else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=200, help="how many changes to make")
    parser.add_argument("--each", type=int, help="instead: how many changes of each area to make")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--area", choices=[it.name for it in AREAS], action="append")
    parser.add_argument("--module", action="append", help="only modules whose path ends so")
    parser.add_argument("--match", action="append", help="instead: changes whose key has this")
    parser.add_argument("--tests", action="append", help="instead of the area's, below tests")
    parser.add_argument("--budget", type=float, default=25.0, help="seconds of tests a change")
    parser.add_argument(
        "--once", action="store_true", help="no second try of survivors in a new process"
    )
    parser.add_argument("--nice", type=int, default=15)
    parser.add_argument(
        "--keep-notes", action="store_true", help="take what an earlier run noted of the tests"
    )
    parser.add_argument("--work", help="folder for the copy, build/mutants unless given")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
