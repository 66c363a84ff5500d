"""The mutants program for the core: what it builds in, which tests it runs, and what it says."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tools.mutants import core
from tools.mutants.compiled import core_tests
from tools.mutants.compiled.core_table import GROUPS, SURE, UNSURE
from tools.mutants.compiled.core_tests import Noted, Watch, ended
from tools.mutants.compiled.schema import OUTSIDE, Sources, add_seam, key_of
from tools.mutants.core import EVERY, PIN, by_group, one_program
from tools.mutants.trial import NO_END

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCE = """//! \u00c4 file.

const MOST: u32 = 2 + 1;

/// Says { whether.
fn rule<T: Sized>(a: u32, b: u32) -> bool {
    a < b && a < MOST
}

impl Thing {
    fn name(&self) -> u32 {
        fn inner() -> u32 { 7 }
        inner()
    }
}
"""
PATH = "crates/core/src/thing.rs"


def span(text: str, nth: int = 0) -> dict[str, dict[str, int]]:
    """Where the nth `text` of the source is, as cargo-mutants says it."""
    at = -1
    for _ in range(nth + 1):
        at = SOURCE.index(text, at + 1)

    def place(at: int) -> dict[str, int]:
        before = SOURCE[:at].split("\n")
        return {"line": len(before), "column": len(before[-1]) + 1}

    return {"start": place(at), "end": place(at + len(text))}


def listed(what: str, text: str, nth: int, by: str, function: str | None) -> dict[str, Any]:
    bodies = {
        "rule": SOURCE[SOURCE.index("fn rule") : SOURCE.index("\n}\n") + 2],
        "Thing::name": SOURCE[SOURCE.index("fn name") : SOURCE.index("\n    }\n") + 6],
        "inner": "fn inner() -> u32 { 7 }",
    }
    return {
        "name": f"{PATH}:1:2: {what}",
        "file": PATH,
        "span": span(text, nth),
        "replacement": by,
        "function": function
        and {"function_name": function, "span": span(bodies[function]), "return_type": ""},
    }


LISTED = [
    listed("replace < with <= in rule", "<", 1, "<=", "rule"),
    listed("replace < with <= in rule", "<", 2, "<=", "rule"),
    listed("replace inner with 0", "7", 0, "0", "inner"),
    listed("replace Thing::name with 1", "inner()\n", 0, "1\n", "Thing::name"),
    listed("replace + with -", "+", 0, "-", None),
]


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    monkeypatch.chdir(tmp_path)
    Path(PATH).parent.mkdir(parents=True)
    Path(PATH).write_text(SOURCE)
    return Sources(LISTED)


def test_changes_have_keys_of_their_own_and_the_function_around_them(sources: Sources) -> None:
    keys = [it.key.removeprefix(f"{PATH} | ") for it in sources.changes]
    assert keys[:2] == ["replace < with <= in rule", "replace < with <= in rule (2)"]
    assert [it.name for it in sources.functions] == ["rule", "Thing::name"]
    assert [it.function for it in sources.changes] == [0, 0, 1, 1, OUTSIDE]
    name = "crates/core/src/a.rs:10:22: replace << with >>"
    assert key_of({"name": name}) == "crates/core/src/a.rs | replace << with >>"


def test_all_changes_of_a_function_are_bodies_beside_its_own(sources: Sources) -> None:
    sources.write(sources.changes[:4])
    text = Path(PATH).read_text()
    first, second = text.split("impl Thing")
    assert "match crate::mutants::change(0)" in first
    assert "1u32 => {\n    a <=  b && a < MOST" in first
    assert "2u32 => {\n    a < b && a <=  MOST" in first
    assert "_ => {\n    a < b && a < MOST\n}" in first
    assert "3u32 => {\n        fn inner() -> u32 { 0  }\n        inner()" in second
    assert "4u32 => {\n        fn inner() -> u32 { 7 }\n        1\n" in second
    # Without any change every function still says that it is run.
    sources.write([])
    assert Path(PATH).read_text().count("crate::mutants::change(") == 2
    assert "u32 =>" not in Path(PATH).read_text()


def test_change_that_is_alone_takes_the_place_of_what_it_changes(sources: Sources) -> None:
    for number, now in ((0, "_ => {\n    a <=  b"), (4, "MOST: u32 = 2 -  1;")):
        sources.changes[number].is_alone = True
        sources.write([sources.changes[number]])
        assert now in Path(PATH).read_text()
        assert "u32 =>" not in Path(PATH).read_text()


def message(text: str, at: str, rendered: str = "error") -> str:
    byte = text.encode().index(at.encode())
    where = {"file_name": PATH, "byte_start": byte, "is_primary": True, "expansion": None}
    macro = {
        "file_name": "/std/macros.rs",
        "byte_start": 1,
        "is_primary": True,
        "expansion": {"span": where},
    }
    said = {"level": "error", "message": "m", "spans": [macro], "rendered": rendered}
    return json.dumps({"reason": "compiler-message", "message": said})


def test_what_the_compiler_refuses_is_told_apart(sources: Sources) -> None:
    rendered = sources.write(sources.changes[:4])
    text = rendered.text[PATH]
    warning = json.dumps({"reason": "compiler-message", "message": {"level": "warning"}})
    said = "\n".join(
        [warning, message(text, "<=  MOST"), message(text, "match crate::mutants::change(1)")]
    )
    changes, functions, others = rendered.refused(said)
    assert [it.number for it in changes] == [2]
    assert [it.name for it in functions] == ["Thing::name"]
    assert others == []
    assert rendered.refused(message(text, "const MOST", "elsewhere"))[2] == ["elsewhere"]


def test_changes_are_left_out_or_built_alone_until_the_rest_compiles(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(_word: str, _package: str, *_more: str) -> subprocess.CompletedProcess[str]:
        text = Path(PATH).read_text()
        for at in ("<=  MOST", "match crate::mutants::change(1) {\n3u32"):
            if at in text:
                return subprocess.CompletedProcess((), 101, message(text, at), "")
        return subprocess.CompletedProcess((), 0, "", "")

    monkeypatch.setattr(core, "_cargo", check)
    monkeypatch.setattr(core, "_programs", lambda: [Path("every")])
    built = core.build(sources, sources.changes)
    assert [it.number for it in built.changes] == [1]
    assert [it.number for it in built.refused] == [2]
    assert [it.number for it in built.alone] == [5, 3, 4]

    def never(_word: str, _package: str, *_more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess((), 101, message(Path(PATH).read_text(), "const"), "")

    monkeypatch.setattr(core, "_cargo", never)
    with pytest.raises(SystemExit):
        core.build(sources, sources.changes)
    # Of one that is alone it is the answer.
    sources.changes[4].is_alone = True
    assert core.build(sources, sources.changes[4:]).refused == sources.changes[4:]


def test_change_alone_with_which_the_tests_do_not_compile_is_refused(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiles(_word: str, _package: str, *_more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess((), 0, "", "")

    def broken() -> list[Path]:
        raise core.NotBuilt("the tests have errors")

    monkeypatch.setattr(core, "_cargo", compiles)
    monkeypatch.setattr(core, "_programs", broken)
    with pytest.raises(SystemExit, match="the tests have errors"):
        core.build(sources, sources.changes[:1])
    sources.changes[4].is_alone = True
    assert core.build(sources, sources.changes[4:]).refused == sources.changes[4:]


def program(folder: Path, *fail: str) -> str:
    """A program of tests of which those fail, as often as they are named."""
    path = folder / "every-0123456789abcdef"
    (folder / "fail").write_text("\n".join(fail))
    path.write_text(f"""#!{sys.executable}
import os, pathlib, sys
if sys.argv[1] == "--list":
    print("quick: test\\nslow: test\\nother: test")
    raise SystemExit
notes = os.environ.get("ROQUET_CHANGE_NOTES")
if notes:
    run = {{"quick": b"\\1\\0", "slow": b"\\1\\1", "other": b"\\0\\1"}}[sys.argv[2]]
    pathlib.Path(notes).write_bytes(run)
    raise SystemExit(sys.argv[2] == "slow" and os.environ.get("BROKEN") == "1")
log = pathlib.Path({str(folder)!r}, "log")
with log.open("a") as file:
    print(os.environ["ROQUET_CHANGE"], *sys.argv[2:], file=file)
path = pathlib.Path({str(folder)!r}, "fail")
fail = path.read_text().split()
failed = [it for it in sys.argv[2:] if it in fail]
for it in failed:
    fail.remove(it)
path.write_text("\\n".join(fail))
print("failures:", *(f"    {{it}}" for it in failed), sep="\\n")
raise SystemExit(101 if failed else 0)
""")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_each_test_of_rust_is_noted_with_the_functions_it_runs(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Path(program(tmp_path))
    tests = Watch(sources.functions, tmp_path, 9.0)
    tests.note_rust([made])
    noted = {it.name: sorted(it.functions) for it in tests.all}
    assert noted == {"quick": [0], "slow": [0, 1], "other": [1]}
    assert [it.name for it in tests.reaching(sources.changes[2])].sort() == ["other", "slow"].sort()
    # One outside of functions can show in whatever runs its file.
    assert len(tests.reaching(sources.changes[4])) == 3
    # What fails already notices nothing.
    monkeypatch.setenv("BROKEN", "1")
    again = Watch(sources.functions, tmp_path, 9.0)
    again.note_rust([made])
    assert {it.name for it in again.all} == {"quick", "other"}


def noted(folder: Path, *, fail: tuple[str, ...] = ()) -> Watch:
    path = program(folder, *fail)
    tests = Watch([], folder, 9.0)
    both = frozenset({0})
    tests.all = [Noted(path, "quick", 0.1, both), Noted(path, "slow", 5.0, both)]
    tests.all.append(Noted("", "tests/unit/a.py::test_a", 1.0, both))
    tests.all.append(Noted("", "tests/unit/b.py::test_b", 1.0, both))
    return tests


@pytest.mark.parametrize(
    ("fail", "pytest_says", "by"),
    [
        ((), [0], ""),
        (("quick", "quick"), [], "cargo test quick"),
        # It fails once only, and notices nothing.
        (("quick",), [0], ""),
        (("slow", "slow"), [0], "cargo test slow"),
        ((), [1, 1], "pytest tests/unit/a.py::test_a"),
        ((), [1, 0], ""),
        ((), [NO_END], "pytest: no end"),
    ],
)
def test_change_of_the_core_is_noticed_by_the_first_test_that_fails_twice(
    sources: Sources,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    fail: tuple[str, ...],
    pytest_says: list[int],
    by: str,
) -> None:
    asked: list[list[str]] = []

    def run(_arguments: object, more: dict[str, str], limit_s: float) -> tuple[int, str]:
        assert more["ROQUET_CHANGE"] == "1"
        assert limit_s > 0
        asked.append(Path("only.txt").read_text().split())
        code = pytest_says.pop(0)
        return code, "FAILED tests/unit/a.py::test_a - AssertionError\n" if code == 1 else ""

    monkeypatch.setattr(core_tests, "run_child", run)
    tests = noted(tmp_path, fail=fail)
    monkeypatch.setattr(tests, "reaching", lambda _change: tests.all)
    assert tests.noticed(sources.changes[0], ["unit/a.py"]) == by
    assert pytest_says == []
    assert all(names == ["tests/unit/a.py::test_a"] for names in asked)
    log = (tmp_path / "log").read_text().splitlines()
    assert log[0] == "1 quick"
    if not by:
        assert log[-1] == "1 slow"
    # One that fails only sometimes is not asked again.
    unsteady = {"quick"} if fail == ("quick",) else set()
    unsteady |= {"tests/unit/a.py::test_a"} if len(asked) == 2 and not by else set()
    assert unsteady.isdisjoint(it.name for it in tests.all)
    assert len(tests.all) == 4 - len(unsteady)


def test_change_that_no_test_runs_is_unnoticed(sources: Sources, tmp_path: Path) -> None:
    tests = noted(tmp_path)
    tests.all = []
    assert tests.noticed(sources.changes[0], ["unit"]) == ""
    assert not (tmp_path / "log").exists()


def test_command_that_does_not_end_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # The child of the shell writes its id, and would sleep on.
    code, said = ended(("sh", "-c", "sleep 600 & echo $!; wait"), {}, 1.0)
    assert code == NO_END
    pid = int(said.split()[0])
    for _ in range(500):
        status = Path(f"/proc/{pid}/stat")
        if not status.exists() or status.read_text().split()[2] == "Z":
            break
        time.sleep(0.01)
    else:
        raise AssertionError("the child goes on")
    assert ended(("sh", "-c", "exit $A"), {"A": "3"}, 60.0)[0] == 3
    assert "A" not in os.environ


def test_files_and_tests_of_all_groups_exist() -> None:
    core_sources = REPOSITORY / "crates" / "core" / "src"
    for group in GROUPS.values():
        for files in group.files:
            assert list(core_sources.glob(files)), files
        for name in group.python:
            assert (REPOSITORY / "tests" / name).exists(), name
    for name in (*UNSURE, SURE.removeprefix("tests/")):
        file, _, test = name.partition("::")
        assert (REPOSITORY / "tests" / file).exists()
        assert not test or f"def {test}(" in (REPOSITORY / "tests" / file).read_text()
    assert "--hash=sha256:" in PIN.read_text()


def test_changes_go_to_the_group_of_their_file(sources: Sources) -> None:
    assert not any(by_group(sources.changes).values())
    for change in sources.changes:
        change.path = "crates/core/src/ha/feed.rs"
    found = {name: len(changes) for name, changes in by_group(sources.changes).items() if changes}
    assert found == {"replication": 5}


def test_one_program_of_the_core_holds_all_its_files_of_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = tmp_path / "crates" / "core" / "tests"
    tests.mkdir(parents=True)
    for name in ("queues/main", "queues/gaps", "common/mod", "frame"):
        (tests / f"{name}.rs").parent.mkdir(exist_ok=True)
        (tests / f"{name}.rs").write_text("")
    monkeypatch.chdir(tmp_path)
    one_program()
    lines = (tests / f"{EVERY}.rs").read_text().splitlines()[1:]
    assert lines[:2] == ['#[path = "frame.rs"]', "mod frame;"]
    assert lines[2:] == ['#[path = "queues/main.rs"]', "mod queues;"]


def test_the_core_is_given_the_seam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lib = Path("crates/core/src/lib.rs")
    lib.parent.mkdir(parents=True)
    lib.write_bytes((REPOSITORY / lib).read_bytes())
    add_seam()
    text = lib.read_text()
    assert text.index("//!") < text.index("#![allow") < text.index("pub mod mutants;")
    assert "pub fn change(" in (lib.parent / "mutants.rs").read_text()
