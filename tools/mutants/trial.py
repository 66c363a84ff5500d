"""A copy of the sources in which one module at a time is changed, and its tests run.

Tests run in children of a process that has everything imported that is not ours, since imports
would take longer than most tests.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.mutants.changes import Change
    from tools.mutants.table import Area

PLUGIN = "tools.mutants.plugin"
_OTHERS = (
    *("pytest", "_pytest.python", "uvloop", "msgspec", "yaml", "zstandard"),
    *("hypothesis", "hypothesis.core", "hypothesis.strategies"),
)
_SPARK = ("pyspark.sql.datasource", "pyarrow.parquet", "pandas")
START_S = 60.0
"""What a child may take besides its tests."""
SLOW_S = 0.5
"""A test that takes so long, traced, may wait for sockets, files or processes."""
TEST_S = 40
"""What a test may take: a change may make it go round for ever."""
NO_END = -1000
"""Exit code of a child that took longer."""
BROKEN = 70
"""Exit code of a child in which pytest itself failed, over what a change left behind."""
_INTERNAL_ERROR = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """What is known of one test."""

    name: str
    seconds: float
    lines: dict[str, frozenset[int]]


class Tree:
    """The copy."""

    def __init__(self, root: Path, folder: Path) -> None:
        """Copy what git knows of `root`, and the native module, to `folder`."""
        self.folder = folder
        if folder.exists():
            shutil.rmtree(folder)
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        built = [str(it.relative_to(root)) for it in (root / "src" / "roquet").glob("*.so")]
        for name in (*listed, *built):
            if (root / name).is_file():
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, target)

    def modules(self, area: Area) -> list[str]:
        """Return the modules of an area, from the root of the repository."""
        found: list[Path] = []
        for name in area.modules:
            path = self.folder / "src" / "roquet" / name
            found += sorted(path.glob("*.py")) if path.is_dir() else [path]
        return [str(it.relative_to(self.folder)) for it in found]

    def enter(self) -> None:
        """Make this process, and all that it starts, use the copy."""
        os.chdir(self.folder)
        sys.path[:0] = [str(self.folder / "src"), str(self.folder)]
        os.environ["PYTHONPATH"] = f"{self.folder / 'src'}{os.pathsep}{self.folder}"
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        os.environ.pop("PYTEST_ADDOPTS", None)
        sys.dont_write_bytecode = True


def preload(spark: bool) -> None:
    """Import what is not ours, for all children."""
    for name in (*_OTHERS, *(_SPARK if spark else ())):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def trace(area: Area, folder: Path, *, keep: bool = False) -> list[Note]:
    """Run the tests of an area once and return what each reaches; those that fail are left out.

    Notes are kept in `folder`, by folder of tests, for other areas and, with `keep`, other runs.
    A test that two of the area's names have counts once: run twice in a row it would begin with
    what its first run has not put back.
    """
    notes: dict[str, Note] = {}
    for name in area.tests:
        if not Path("tests", name).exists():
            continue
        file = folder / f"{name.replace('/', '-')}.json"
        if name not in _traced and not (keep and file.exists()):
            code, said = run_child(
                ["-p", PLUGIN, f"tests/{name}"], {"ROQUET_MUTANTS_TRACE": str(file)}, 3600.0
            )
            if code not in (0, 1):
                raise SystemExit(f"tests/{name} do not run (exit code {code}):\n{said[-4000:]}")
        _traced.add(name)
        notes |= {it.name: it for it in _read(file)}
    return list(notes.values())


_traced: set[str] = set()


def _read(file: Path) -> list[Note]:
    found: dict[str, dict[str, Any]] = json.loads(file.read_text())
    for name, note in found.items():
        if note.get("failed"):
            print(f"{name} fails without any change and is left out", flush=True)
    return [
        Note(
            name,
            float(note["seconds"]),
            {path: frozenset(lines) for path, lines in note["lines"].items()},
        )
        for name, note in found.items()
        if not note.get("failed") and "lines" in note
    ]


def reaching(notes: Sequence[Note], change: Change, budget_s: float) -> list[Note]:
    """Return the tests that run the changed line, up to `budget_s` seconds.

    First come those that are quick and run much of the module: they know most about it. What
    stands in the body of a class runs when it is imported, in no test: all that run the module, and
    all in files that import it.
    """
    path = change.path.removeprefix("src/roquet/")
    anywhere = in_class_body(change)
    module = "roquet." + path.removesuffix(".py").replace("/", ".")
    found = sorted(
        (
            it
            for it in notes
            if change.line in it.lines.get(path, ())
            or (anywhere and (path in it.lines or _imports(it.name.split("::")[0], module)))
        ),
        key=lambda it: it.seconds / (1 + len(it.lines.get(path, ()))),
    )
    chosen: list[Note] = []
    left = budget_s
    for note in found:
        if chosen and note.seconds > left:
            break
        chosen.append(note)
        left -= note.seconds
    return chosen


@functools.cache
def _imports(file: str, module: str) -> bool:
    path = Path(file)
    return path.exists() and f"from {module} import" in path.read_text()


def in_class_body(change: Change) -> bool:
    """Tell whether a change is in the body of a class, in no function."""
    return change.scope.rpartition(".")[2].lstrip("_")[:1].isupper()


def notices(change: Change, tests: Sequence[Note]) -> str:
    """Make a change, run tests, take it back; return what noticed it, nothing if none did."""
    return noticed(change, tests, _failed)


def noticed(
    change: Change,
    tests: Sequence[Note],
    failed: Callable[[Sequence[Note]], tuple[str, str]],
) -> str:
    """Do the same with `failed`: it runs tests up to the first that fails, which it returns.

    That is what is said of it, and its name: nothing and nothing when all pass.
    """
    path = Path(change.path)
    source = path.read_bytes()
    left = list(tests)
    try:
        path.write_bytes(change.apply(source))
        while left:
            by, name = failed(left)
            slow = [it for it in left if it.name == name and it.seconds >= SLOW_S]
            if not slow or failed(slow)[0]:
                return by
            print(f"{name} fails only sometimes and is left out", flush=True)
            left.remove(slow[0])
    finally:
        path.write_bytes(source)
    return ""


def _failed(tests: Sequence[Note]) -> tuple[str, str]:
    """Run tests in a new process up to the first that fails."""
    only = Path("only.txt")
    only.write_text("\n".join(it.name for it in tests))
    files = sorted({it.name.split("::")[0] for it in tests})
    limit_s = START_S + 10 * sum(it.seconds for it in tests)
    more = {"ROQUET_MUTANTS_ONLY": str(only.absolute())}
    code, said = run_child(["-x", "-p", PLUGIN, *files], more, limit_s)
    if code == 0:
        return "", ""
    if code < 0:
        return "no end" if code == NO_END else f"ended by signal {-code}", ""
    if code in (_INTERNAL_ERROR, BROKEN):
        # It ran these tests without the change.
        return f"pytest fails, exit code {code}", ""
    if code not in (1, 2):
        raise SystemExit(f"pytest ended with code {code}:\n{said[-4000:]}")
    failed = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR tests"))]
    if not failed:
        return f"exit code {code}", ""
    rest = failed[0].partition(" ")[2]
    names = [it.name for it in tests if rest == it.name or rest.startswith(f"{it.name} - ")]
    return failed[0], max(names, key=len, default="")


def run_child(arguments: Sequence[str], more: dict[str, str], limit_s: float) -> tuple[int, str]:
    """Run pytest in a child; return its exit code, NO_END when it did not end, and its output."""
    said = Path("said.txt")
    # A folder of its own: what other runs leave in the common one can fail this one.
    temporary = tempfile.mkdtemp(dir=Path.cwd().parent)
    child = os.fork()
    if child == 0:
        _run((*pytest_options(Path(temporary)), *arguments), more, said)
    code = ended(child, limit_s)
    shutil.rmtree(temporary, ignore_errors=True)
    return code, said.read_text(errors="replace")


def apart(action: Callable[[], int]) -> int:
    """Do something in a child, whatever it imports; return its exit code."""
    child = os.fork()
    if child == 0:
        code = BROKEN
        try:
            code = action()
        except BaseException:  # noqa: BLE001  (a child must never go on as its parent)
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def pytest_options(temporary: Path) -> tuple[str, ...]:
    """Return what every run of pytest is given."""
    return (
        *("-p", "no:cacheprovider", "--tb=line", f"--timeout={TEST_S}"),
        # Hypothesis is imported beforehand: its plugin's assertions are not rewritten.
        *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
        f"--basetemp={temporary / 'tests'}",
    )


def _run(arguments: Sequence[str], more: dict[str, str], said: Path) -> None:
    code = BROKEN
    try:
        os.setpgid(0, 0)
        os.environ.update(more)
        handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        import pytest  # noqa: PLC0415  (preloaded)

        code = int(pytest.main([*arguments]))
    except BaseException:  # noqa: BLE001  (a child must never go on as its parent)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(child: int, limit_s: float) -> int:
    """Wait for a child and end its process group, to which belongs what its tests started.

    Returns its exit code, below 0 a signal's number, NO_END when it did not end in time.
    """
    end = time.monotonic() + limit_s
    code = None
    while code is None and time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
        else:
            time.sleep(0.02)
    if code is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    return NO_END if code is None else code
