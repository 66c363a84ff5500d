"""Pages that cite tests cite tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
CITED = re.compile(r"`(\w+\.(?:py|rs))::(\w+)`")
PAGES = ("docs/compatibility.md", "docs/reliability.md")


def _tests(name: str) -> str:
    folders = ("crates/core/tests",) if name.endswith(".rs") else ("tests",)
    files = [path for folder in folders for path in (REPOSITORY / folder).rglob(name)]
    assert files, f"there is no {name}"
    return "\n".join(path.read_text() for path in files)


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page: str) -> None:
    cited = CITED.findall((REPOSITORY / page).read_text())
    assert len(cited) >= 10
    for file, name in cited:
        assert re.search(rf"\b(def|fn) {name}\b", _tests(file)), f"{file} has no {name}"
