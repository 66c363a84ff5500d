"""The mutants program itself: what it changes, which tests it runs, and what it says."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from tools.mutants.changes import Change, changes_of
from tools.mutants.core import GROUPS, PIN, key_of
from tools.mutants.judged import judged
from tools.mutants.table import AREAS
from tools.mutants.trial import Note, reaching

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCE = b'''"""A module."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from a import b

LIMIT = 3


class Seam(Protocol):
    def ask(self) -> int:
        return 5


def rule(count: int, limit: int = 4) -> bool:
    """Say whether; 7 is no rule here."""
    log.info("text %d", 9)
    assert count != 2
    if not count or (count > limit and LIMIT in (1, 2)):
        raise ValueError(f"{count + 1}")
    \xc3\xa9 = min(count, 1)
    self.seen = \xc3\xa9 - 1
    store.flush()
    return True
'''
WANTED = [
    ("arithmetic", "\u00e9 - 1", "(\u00e9 + 1)"),
    ("and/or", "count > limit and LIMIT in (1, 2)", "(count > limit or LIMIT in (1, 2))"),
    ("and/or", None, "(not count and (count > limit and LIMIT in (1, 2)))"),
    ("compare", "count > limit", "(count >= limit)"),
    ("compare", "LIMIT in (1, 2)", "(LIMIT not in (1, 2))"),
    ("constant", "1", "(1 + 1)"),
    ("constant", "2", "(2 + 1)"),
    ("constant", "True", "False"),
    ("negate", "count > limit", "(not (count > limit))"),
    ("not", "not count", "(count)"),
    ("remove", "store.flush()", "pass"),
    ("remove", "self.seen = \u00e9 - 1", "pass"),
    ("return", "return True", "return None"),
    ("swap", "min", "max"),
]


def found() -> list[Change]:
    return changes_of("a/module.py", SOURCE)


@pytest.mark.parametrize(("kind", "before", "after"), WANTED)
def test_change_of_each_kind_is_made(kind: str, before: str | None, after: str) -> None:
    same = [it for it in found() if it.kind == kind and it.before == (before or it.before)]
    assert after in {it.after for it in same}


def test_changes_are_python_and_touch_rules_only() -> None:
    for change in found():
        ast.parse(change.apply(SOURCE))
        assert change.scope == "rule", change
        assert change.apply(SOURCE) != SOURCE
        line = SOURCE.splitlines()[change.line - 1].decode()
        assert not any(word in line for word in ("log.", "assert", '"""', "from a")), change


def test_key_of_a_change_does_not_depend_on_lines_above() -> None:
    moved = changes_of("a/module.py", SOURCE.replace(b"LIMIT = 3", b"LIMIT = 3\n\n\nOTHER = 4"))
    assert [it.key for it in moved] == [it.key for it in found()]
    name = "crates/core/src/a.rs:10:22: replace << with >>"
    assert key_of({"name": name}) == "crates/core/src/a.rs | replace << with >>"


def test_tests_that_reach_the_line_are_run_the_quickest_first_within_the_budget() -> None:
    change = next(it for it in found() if it.kind == "swap")
    lines = {"a/module.py": frozenset({change.line})}
    notes = [
        Note("slow", 30.0, lines),
        Note("quick", 0.1, lines),
        Note("elsewhere", 0.1, {"a/module.py": frozenset({change.line + 1})}),
        Note("next", 3.0, lines),
    ]
    assert [it.name for it in reaching(notes, change, 10.0)] == ["quick", "next"]
    assert [it.name for it in reaching(notes[:1], change, 10.0)] == ["slow"]
    assert reaching(notes[2:3], change, 10.0) == []


def test_judged_survivors_have_reasons() -> None:
    reasons = judged()
    assert reasons
    assert all(len(reason) > 20 for reason in reasons.values())
    assert judged("# one\na | b\nc | d\n\n# two\ne") == {"a | b": "one", "c | d": "one", "e": "two"}


def test_modules_and_tests_of_all_areas_and_groups_exist() -> None:
    for area in AREAS:
        for name in area.modules:
            assert (REPOSITORY / "src" / "roquet" / name).exists(), name
        for name in area.tests:
            assert (REPOSITORY / "tests" / name).exists(), name
    for group in GROUPS.values():
        for name in group.files:
            assert list((REPOSITORY / "crates" / "core" / "src").glob(name)), name
        for name in group.python:
            assert (REPOSITORY / name).exists(), name
    assert "--hash=sha256:" in PIN.read_text()


@pytest.mark.timeout(240)
def test_planted_a_rule_without_a_test_is_listed_and_a_tested_one_is_not(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tools.mutants", "--area", "transactions", "--sample", "4"),
            *("--module", "transactions/ranges.py", "--module", "transactions/copies.py"),
            *("--tests", "unit/broker_transactions/test_book.py"),
            *("--seed", "2", "--work", str(tmp_path), "--nice", "0"),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=230,
    )
    said = done.stdout
    # These tests are of `ranges` alone.
    unnoticed = [line for line in said.splitlines() if line.startswith("UNNOTICED")]
    assert unnoticed, said + done.stderr
    assert all("transactions/copies.py" in line for line in unnoticed)
    assert "FAILED tests/unit/broker_transactions/test_book.py" in said
    assert done.returncode == 1
