"""Makes changes in children of a process that has every test of an area collected.

Importing product and tests takes longer than most tests. So a child gets the changed function in
place: its new code is put into the function objects that exist. What that cannot show is left to
`trial.notices`, which imports everything anew: changes in the bodies of classes, and whatever no
test notices here.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import tempfile
import time
import traceback
import types
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from tools.mutants.trial import (
    BROKEN,
    NO_END,
    PLUGIN,
    START_S,
    ended,
    in_class_body,
    noticed,
    pytest_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tools.mutants.changes import Change
    from tools.mutants.trial import Note

    Job = tuple[Change, Sequence[Note]]
    """A change and the tests to run."""

_PASSED, _FAILED = 0, 1
_SAID = "FAILED "
_NO_SWAP = 71
"""Exit code of a child that found no function to put the new code into."""


def warm(
    files: Sequence[str], jobs: Sequence[Job], tell: Callable[[Change, str, float], None]
) -> None:
    """Make each change and run its tests; `tell` gets those that were noticed, by what, and when.

    `files` are the files and folders of tests. Runs pytest in this process.
    """
    loop = Loop(jobs, tell)
    with tempfile.TemporaryDirectory(dir=Path.cwd().parent) as temporary:
        options = pytest_options(Path(temporary))
        code = pytest.main([*options, "--capture=no", "-p", PLUGIN, *files], plugins=[loop])
    if code != 0:
        raise SystemExit(f"tests of {' '.join(files)} are not collected, exit code {code}")


class Loop:
    """A plugin of pytest: what is done instead of running all tests."""

    def __init__(self, jobs: Sequence[Job], tell: Callable[[Change, str, float], None]) -> None:
        self._jobs = jobs
        self._tell = tell
        self._items: dict[str, pytest.Item] = {}
        self._sound: set[str] = set()
        """Tests that pass here without a change."""
        self._functions: dict[str, list[types.FunctionType]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Make all changes."""
        self._items = {it.nodeid: it for it in session.items}
        self._functions = functions()
        for change, tests in self._jobs:
            if in_class_body(change):
                continue
            begun = time.monotonic()
            by = self._noticed(change, tests)
            if by:
                self._tell(change, by, time.monotonic() - begun)
        return True

    def _noticed(self, change: Change, tests: Sequence[Note]) -> str:
        """Return what notices a change: a test that passes here without one, if it is a test."""
        while True:
            known = [it for it in tests if it.name in self._items]
            by = noticed(change, known, functools.partial(self._child, change))
            name = by.removeprefix(_SAID)
            if name == by or name in self._sound:
                return by
            if self._child(None, [it for it in known if it.name == name])[0]:
                print(f"{name} fails without any change and is left out", flush=True)
                del self._items[name]
            else:
                self._sound.add(name)
                return by

    def _child(self, change: Change | None, tests: Sequence[Note]) -> tuple[str, str]:
        """Run tests in a child up to the first that fails; say what is known of it."""
        failed = Path("warm.txt")
        failed.write_text("")
        child = os.fork()
        if child == 0:
            self._run(change, [self._items[it.name] for it in tests], failed)
        code = ended(child, START_S + 10 * sum(it.seconds for it in tests))
        if code in (_PASSED, _NO_SWAP):
            return "", ""
        if code == _FAILED:
            name = failed.read_text()
            return f"{_SAID}{name}", name
        if code == BROKEN:
            return "pytest fails", ""
        return "no end" if code == NO_END else f"ended by signal {-code}", ""

    def _run(self, change: Change | None, items: Sequence[pytest.Item], failed: Path) -> NoReturn:
        code = BROKEN
        try:
            os.setpgid(0, 0)
            handle = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            is_made = change is None or self._swapped(change)
            code = _tried(items, failed) if is_made else _NO_SWAP
        except BaseException:  # noqa: BLE001  (a child must never go on as its parent)
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _swapped(self, change: Change) -> bool:
        # The file has the change already: processes that tests start read it.
        path = str(Path(change.path).absolute())
        return swap(change, Path(path).read_bytes(), self._functions.get(path, []))


class _Reports:
    """A plugin of pytest: notes whether a test fails."""

    def __init__(self) -> None:
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one phase of a test."""
        self.failed = self.failed or report.failed


def _tried(items: Sequence[pytest.Item], failed: Path) -> int:
    reports = _Reports()
    for item, following in zip(items, [*items[1:], None], strict=True):
        manager = item.config.pluginmanager
        if not manager.is_registered(reports):
            manager.register(reports)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if reports.failed:
            failed.write_text(item.nodeid)
            return _FAILED
    return _PASSED


def functions() -> dict[str, list[types.FunctionType]]:
    """Return all functions that there are, by the file that they come from."""
    found: dict[str, list[types.FunctionType]] = {}
    for it in gc.get_objects():
        if isinstance(it, types.FunctionType):
            found.setdefault(it.__code__.co_filename, []).append(it)
    return found


def swap(change: Change, source: bytes, of_file: Sequence[types.FunctionType]) -> bool:
    """Put the code of a changed module into the function that the change is in, as it exists.

    `source` is the changed module. Tells whether there is such a function.
    """
    if not of_file:
        return False
    fresh = compile(source, of_file[0].__code__.co_filename, "exec")
    by_place = {(it.co_qualname, it.co_firstlineno): it for it in _codes(fresh)}
    done = False
    for function in of_file:
        old = function.__code__
        new = by_place.get((old.co_qualname, old.co_firstlineno))
        is_changed = f"{change.scope}.".startswith(f"{old.co_qualname}.")
        if is_changed and new is not None and new.co_freevars == old.co_freevars:
            function.__code__ = new
            done = True
    return done


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for it in code.co_consts:
        if isinstance(it, types.CodeType):
            yield from _codes(it)
