"""Pages that cite tests cite tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.pages import features

from interop_commands import COMMANDS

REPOSITORY = Path(__file__).resolve().parents[3]
CITED = re.compile(r"`(\w+\.(?:py|rs))::(\w+)`")
NUMBERED = re.compile(r"\b(?:def|fn) (test_(?:\d{3,5}|cve|kip|dashboard)_\w+|rocketmq_\d+_\w+)\(")
PAGES = (
    "docs/compatibility.md",
    "docs/reliability.md",
    "docs/reference/features.md",
    "docs/reference/answers.md",
)


def _tests(name: str) -> str:
    folders = ("crates/core/tests", "crates/core/src") if name.endswith(".rs") else ("tests",)
    files = [path for folder in folders for path in (REPOSITORY / folder).rglob(name)]
    assert files, f"there is no {name}"
    return "\n".join(path.read_text() for path in files)


def test_features_are_those_of_the_list() -> None:
    assert features.PAGE.read_text() == features.page()


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page: str) -> None:
    cited = CITED.findall((REPOSITORY / page).read_text())
    assert len(cited) >= 10
    for file, name in cited:
        assert re.search(rf"\b(def|fn) {name}\b", _tests(file)), f"{file} has no {name}"


def test_every_test_that_carries_a_number_is_cited() -> None:
    """A report whose test nobody can find from the pages might as well have none."""
    pages = "".join((REPOSITORY / page).read_text() for page in PAGES)
    found = [
        (path.name, name)
        for folder, kind in (
            ("tests", "py"),
            ("crates/core/tests", "rs"),
            ("crates/core/src", "rs"),
        )
        for path in (REPOSITORY / folder).rglob(f"*.{kind}")
        for name in NUMBERED.findall(path.read_text())
    ]
    assert len(found) >= 30
    assert [f"{file}::{name}" for file, name in sorted(set(found)) if f"{name}`" not in pages] == []


def test_the_page_has_every_admin_command_with_its_result() -> None:
    assert len({command.name for command in COMMANDS}) == len(COMMANDS) == 96
    page = (REPOSITORY / "docs/reference/answers.md").read_text()
    for result in {command.result for command in COMMANDS}:
        (row,) = re.findall(rf"^\| {re.escape(result)} \| (.*) \|$", page, re.MULTILINE)
        named = [command.name for command in COMMANDS if command.result == result]
        assert row.split(", ") == named, result
