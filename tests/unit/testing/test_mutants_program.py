"""The mutants program itself: what it changes, which tests it runs, and what it says."""

from __future__ import annotations

import ast
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from tools.mutants import trial
from tools.mutants.changes import Change, changes_of
from tools.mutants.judged import judged
from tools.mutants.table import AREAS, Area
from tools.mutants.trial import Note, in_class_body, notices, reaching
from tools.mutants.warm import Loop, functions, swap

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def test_test_that_a_folder_and_a_file_of_an_area_have_is_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_a.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trial, "_traced", set())
    first, second = (f"tests/unit/test_a.py::test_{which}" for which in ("first", "second"))
    note = {"seconds": 0.1, "failed": False, "lines": {"a.py": [1]}}
    (tmp_path / "unit.json").write_text(json.dumps({first: note, second: note}))
    newer = note | {"seconds": 0.2}
    (tmp_path / "unit-test_a.py.json").write_text(json.dumps({second: newer}))
    area = Area("a", (), ("unit", "unit/test_a.py", "unit/nowhere"))
    found = trial.trace(area, tmp_path, keep=True)
    assert [(it.name, it.seconds) for it in found] == [(first, 0.1), (second, 0.2)]


def test_tests_that_reach_the_line_are_run_the_quickest_first_within_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    # The body of a class runs when the module is imported.
    (tmp_path / "test_a.py").write_text("from roquet.a.module import LIMIT")
    monkeypatch.chdir(tmp_path)
    importer = Note("test_a.py::test", 0.1, {})
    assert reaching([importer], change, 10.0) == []
    inside = dataclasses.replace(change, scope="Outer._Kind")
    assert reaching([importer], inside, 10.0) == [importer]
    assert reaching(notes[2:3], inside, 10.0) == notes[2:3]
    assert reaching([Note("other", 0.1, {"b.py": frozenset({change.line})})], inside, 10.0) == []


@pytest.mark.parametrize(
    ("seconds", "verdicts", "by", "runs"),
    [
        # A quick test is believed at once, a slow one when it fails twice.
        (0.4, ["a"], "FAILED a", ["ab"]),
        (0.5, ["a", "a"], "FAILED a", ["ab", "a"]),
        # One that fails only sometimes is left out, and the others are asked.
        (0.5, ["a", "", "b"], "FAILED b", ["ab", "a", "b"]),
        (0.5, ["a", "", ""], "", ["ab", "a", "b"]),
        (0.5, [""], "", ["ab"]),
    ],
)
def test_slow_test_notices_a_change_only_when_it_fails_twice(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    seconds: float,
    verdicts: list[str],
    by: str,
    runs: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    module = tmp_path / "a" / "module.py"
    module.parent.mkdir()
    module.write_bytes(SOURCE)
    change = found()[0]
    asked: list[str] = []

    def failed(tests: Sequence[Note]) -> tuple[str, str]:
        assert module.read_bytes() == change.apply(SOURCE)
        asked.append("".join(it.name for it in tests))
        name = verdicts[len(asked) - 1]
        return (f"FAILED {name}", name) if name else ("", "")

    monkeypatch.setattr(trial, "_failed", failed)
    assert notices(change, [Note("a", seconds, {}), Note("b", 0.1, {})]) == by
    assert asked == runs
    assert module.read_bytes() == SOURCE


def test_test_that_fails_among_collected_ones_without_the_change_notices_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "module.py").write_bytes(SOURCE)
    loop = Loop([], lambda *_: None)
    loop._items = dict.fromkeys(("bad", "good"), cast("pytest.Item", None))
    asked: list[tuple[bool, str]] = []

    def child(change: Change | None, tests: Sequence[Note]) -> tuple[str, str]:
        asked.append((change is not None, "+".join(it.name for it in tests)))
        fails = [it.name for it in tests if it.name == "bad" or change is not None]
        return (f"FAILED {fails[0]}", fails[0]) if fails else ("", "")

    monkeypatch.setattr(loop, "_child", child)
    tests = [Note(name, 0.1, {}) for name in ("bad", "good")]
    for change in found()[:2]:
        assert loop._noticed(change, tests) == "FAILED good"
    # The good one is asked once without a change, the bad one never again.
    first = [(True, "bad+good"), (False, "bad"), (True, "good"), (False, "good")]
    assert asked == [*first, (True, "good")]


def test_change_is_put_into_functions_that_exist(tmp_path: Path) -> None:
    source = (
        b"class A:\n    LIMIT = 3\n    def rule(self, n):\n        return n < 2\n"
        b"def other(n):\n    return n < 2\n"
    )
    file = tmp_path / "module.py"
    names: dict[str, Any] = {}
    exec(compile(source, str(file), "exec"), names)
    made, other = names["A"](), names["other"]
    assert (made.rule(2), other(2)) == (False, False)
    (change,) = (
        it
        for it in changes_of("module.py", source)
        if it.scope == "A.rule" and it.after == "(n <= 2)"
    )
    there = functions()[str(file)]
    assert not in_class_body(change)
    assert swap(change, change.apply(source), there)
    assert (made.rule(2), other(2)) == (True, False)
    assert not swap(change, change.apply(source), [])
    assert not swap(dataclasses.replace(change, scope="A.gone"), source, there)
    inside = next(it for it in changes_of("module.py", source) if it.scope == "A")
    assert in_class_body(inside)


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
