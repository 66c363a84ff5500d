"""The page names every difference of admin answers that is accepted."""

from __future__ import annotations

from pathlib import Path

from admin_differences import ACCEPTED
from admin_differential import FIELDS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "compatibility.md"


def test_accepted_differences_of_admin_answers_are_those_of_the_page() -> None:
    section = PAGE.read_text().split("## Answers to admin requests", 1)[1].split("\n## ", 1)[0]
    listed = [line[2:] for line in section.splitlines() if line.startswith("- ")]
    assert listed == list(ACCEPTED)
    assert f"{len(FIELDS)} admin codes" in section
