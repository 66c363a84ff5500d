"""A plugin of pytest: notes which test runs which line, or runs only chosen tests.

`ROQUET_MUTANTS_TRACE` is the file to write the notes to, `ROQUET_MUTANTS_ONLY` a file with the
names of the tests to run, in that order. With `ROQUET_CHANGE_NOTES` the notes are of the functions
of the core instead (`schema.rs`).
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

_TRACE = os.environ.get("ROQUET_MUTANTS_TRACE")
_ONLY = os.environ.get("ROQUET_MUTANTS_ONLY")
_CORE = os.environ.get("ROQUET_CHANGE_NOTES")
_SOURCE = str(Path.cwd() / "src" / "roquet") + os.sep
_lines: set[tuple[str, int]] = set()
_notes: dict[str, dict[str, Any]] = {}


def _local(frame: FrameType, event: str, _argument: object) -> Any:
    if event == "line":
        _lines.add((frame.f_code.co_filename, frame.f_lineno))
    return _local


def _global(frame: FrameType, _event: str, _argument: object) -> Any:
    name = frame.f_code.co_filename
    if not name.startswith(_SOURCE):
        return None
    _lines.add((name, frame.f_lineno))
    return _local


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Trace one test, fixtures included."""
    if _TRACE is None:
        return (yield)
    if _CORE is not None:
        with Path(_CORE).open("r+b") as file, mmap.mmap(file.fileno(), 0) as run:
            run[:] = bytes(len(run))
            try:
                return (yield)
            finally:
                reached = [at for at, is_run in enumerate(run[:]) if is_run]
                _notes.setdefault(item.nodeid, {})["functions"] = reached
    _lines.clear()
    threading.settrace(_global)
    sys.settrace(_global)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)
        by_path: dict[str, list[int]] = {}
        for name, line in sorted(_lines):
            by_path.setdefault(name[len(_SOURCE) :], []).append(line)
        _notes.setdefault(item.nodeid, {})["lines"] = by_path


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how long a test takes, and whether it passes."""
    note = _notes.setdefault(report.nodeid, {})
    note["seconds"] = note.get("seconds", 0.0) + report.duration
    note["failed"] = note.get("failed", False) or not report.passed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the chosen tests, in the order in which they were given; none that mounts a disk.

    A child that is ended in the middle would leave it mounted.
    """
    items[:] = [it for it in items if "small_disk" not in getattr(it, "fixturenames", ())]
    if _ONLY is None:
        return
    order = {name: at for at, name in enumerate(Path(_ONLY).read_text().splitlines())}
    items[:] = sorted((it for it in items if it.nodeid in order), key=lambda it: order[it.nodeid])


def pytest_sessionfinish() -> None:
    """Write the notes."""
    if _TRACE is not None:
        Path(_TRACE).write_text(json.dumps(_notes))
