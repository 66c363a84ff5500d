"""The tests of the core: which functions each runs, and whether one notices a change.

All changes are built in (`tools.mutants.compiled.schema`); the environment says which is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tools.mutants.compiled.core_table import SURE, UNSURE
from tools.mutants.compiled.schema import OUTSIDE
from tools.mutants.trial import NO_END, PLUGIN, run_child

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tools.mutants.compiled.schema import Change, Function

SLACK_S = 15.0
"""What a stage may take besides ten times what its tests take unchanged."""
FIRST_S = 3.0
"""So much of Rust's tests comes before Python's."""
TRACE_S = 600.0
_FAILED = re.compile(r"^    (\S+)$", re.MULTILINE)
_PYTHON_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Noted:
    """One test, and what it runs."""

    program: str
    """Empty for pytest."""
    name: str
    seconds: float
    functions: frozenset[int]


class Watch:
    """All tests that are there for the core."""

    def __init__(self, functions: Sequence[Function], folder: Path, budget_s: float) -> None:
        """Know no test yet; `folder` is for notes, a change costs up to `budget_s` a language."""
        self._functions = functions
        self._folder = folder
        self._map = folder / "functions.map"
        self._budget_s = budget_s
        self.all: list[Noted] = []

    def note_rust(self, programs: Iterable[Path], *, keep: bool = False) -> None:
        """Run each test of the programs once, alone, and note what it runs."""
        file = self._folder / "core-rust.json"
        old: dict[str, list[object]] = (
            json.loads(file.read_text()) if keep and file.exists() else {}
        )
        kept: dict[str, list[object]] = {}
        for program in programs:
            kind = re.sub(r"-[0-9a-f]{16}$", "", program.name)
            listed = subprocess.run(
                [program, "--list", "--format", "terse"], check=True, capture_output=True, text=True
            ).stdout
            for name in re.findall(r"^(.+): test$", listed, re.MULTILINE):
                known = old.get(f"{kind} {name}") or self._run_once(program, name)
                if known:
                    kept[f"{kind} {name}"] = known
                    self._enter(str(program), name, known)
        file.write_text(json.dumps(kept))

    def _run_once(self, program: Path, name: str) -> list[object]:
        self._clear()
        begun = time.monotonic()
        more = {"ROQUET_CHANGE_NOTES": str(self._map)}
        code, _ = ended((str(program), "--exact", name), more, TRACE_S)
        took_s = time.monotonic() - begun
        if code != 0:
            print(f"{name} fails without any change and is left out", flush=True)
            return []
        run = self._map.read_bytes()
        return [took_s, [self._name(at) for at, is_run in enumerate(run) if is_run]]

    def note_python(self, names: Iterable[str], *, keep: bool = False) -> None:
        """Run files or folders of tests once and note what each test runs."""
        for name in names:
            file = self._folder / f"core-{name.replace('/', '-')}.json"
            if not (keep and file.exists()):
                self._trace(name, file)
            for test, known in json.loads(file.read_text()).items():
                if test not in {f"tests/{it}" for it in UNSURE}:
                    self._enter("", test, known)

    def _trace(self, name: str, file: Path) -> None:
        self._clear()
        raw = self._folder / "raw.json"
        more = {"ROQUET_CHANGE_NOTES": str(self._map), "ROQUET_MUTANTS_TRACE": str(raw)}
        code, said = run_child(["-p", PLUGIN, f"tests/{name}"], more, 3600.0)
        if code not in (0, 1):
            raise SystemExit(f"tests/{name} do not run (exit code {code}):\n{said[-4000:]}")
        notes: dict[str, list[object]] = {}
        for test, note in json.loads(raw.read_text()).items():
            if note.get("failed"):
                print(f"{test} fails without any change and is left out", flush=True)
            elif note.get("functions"):
                notes[test] = [note["seconds"], [self._name(at) for at in note["functions"]]]
        file.write_text(json.dumps(notes))

    def _name(self, number: int) -> str:
        function = self._functions[number]
        return f"{function.path} {function.name}"

    def _enter(self, program: str, name: str, known: Sequence[object]) -> None:
        seconds, run = known
        assert isinstance(seconds, float)
        assert isinstance(run, list)
        wanted = set(run)
        numbers = (it.number for it in self._functions if f"{it.path} {it.name}" in wanted)
        self.all.append(Noted(program, name, seconds, frozenset(numbers)))

    def _clear(self) -> None:
        self._map.write_bytes(bytes(max(1, len(self._functions))))

    def reaching(self, change: Change) -> list[Noted]:
        """Return the tests that run the changed function, those first that know most about it."""
        same = {it.number for it in self._functions if it.path == change.path}
        wanted = same if change.function == OUTSIDE else {change.function}
        found = (it for it in self.all if it.functions & wanted)
        return sorted(found, key=lambda it: it.seconds / len(it.functions & same))

    def noticed(self, change: Change, names: Sequence[str]) -> str:
        """Make a change and run tests until one fails; return it, nothing if all pass.

        `names` are the files and folders of Python's tests that may be asked.
        """
        more = {"ROQUET_CHANGE": "0" if change.is_alone else str(change.number)}
        every = self.reaching(change)
        if not every:
            return ""
        rust = _within([it for it in every if it.program], self._budget_s)
        own = tuple(f"tests/{name}" for name in names)
        python = [it for it in every if not it.program and it.name.startswith(own)]
        first = _within(rust, FIRST_S)
        return (
            self._by_rust(first, more)
            or self._by_python(_within(python, self._budget_s), more)
            or self._by_rust(rust[len(first) :], more)
        )

    def _by_rust(self, tests: Sequence[Noted], more: dict[str, str]) -> str:
        for program in sorted({it.program for it in tests}):
            own = [it for it in tests if it.program == program]
            names = [it.name for it in own]
            limit_s = SLACK_S + 10 * sum(it.seconds for it in own)
            code, said = ended((program, "--exact", *names), more, limit_s)
            if code == 0:
                continue
            failed = _FAILED.findall(said)
            if code == NO_END or not failed:
                return "cargo test: " + ("no end" if code == NO_END else f"exit code {code}")
            for name in failed:
                if ended((program, "--exact", name), more, limit_s)[0] != 0:
                    return f"cargo test {name}"
                self._leave_out(name)
        return ""

    def _by_python(self, tests: Sequence[Noted], more: dict[str, str]) -> str:
        left = list(tests)
        while left:
            code, said = self._pytest(left, more)
            if code == 0:
                return ""
            failed = _PYTHON_FAILED.search(said)
            if failed is None:
                return "pytest: " + ("no end" if code == NO_END else f"exit code {code}")
            name = failed.group(1)
            again = [it for it in left if it.name == name]
            if not again or name.startswith(SURE) or self._pytest(again, more)[0] != 0:
                return f"pytest {name}"
            left.remove(again[0])
            self._leave_out(name)
        return ""

    def _pytest(self, tests: Sequence[Noted], more: dict[str, str]) -> tuple[int, str]:
        only = Path("only.txt")
        only.write_text("\n".join(it.name for it in tests))
        files = sorted({it.name.split("::")[0] for it in tests})
        limit_s = 4 * SLACK_S + 10 * sum(it.seconds for it in tests)
        more = {**more, "ROQUET_MUTANTS_ONLY": str(only.absolute())}
        return run_child(["-x", "-p", PLUGIN, *files], more, limit_s)

    def _leave_out(self, name: str) -> None:
        print(f"{name} fails only sometimes and is left out", flush=True)
        self.all = [it for it in self.all if it.name != name]


def _within(tests: Sequence[Noted], budget_s: float) -> list[Noted]:
    """Return the first tests, as many as may take `budget_s` together, but one at least."""
    chosen: list[Noted] = []
    for test in tests:
        budget_s -= test.seconds
        if chosen and budget_s < 0:
            break
        chosen.append(test)
    return chosen


def ended(command: Sequence[str], more: dict[str, str], limit_s: float) -> tuple[int, str]:
    """Run a command with all that it starts; return its exit code, or `NO_END`, and its output."""
    said = Path("said.txt")
    with said.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, start_new_session=True, env={**os.environ, **more}
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = NO_END
        finally:
            # What it started belongs to its process group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return code, said.read_text(errors="replace")
