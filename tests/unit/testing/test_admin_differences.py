"""The page names every difference of answers to tools that is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

import admin_differential
import namesrv_differential
from admin_differences import BROKER, NAME_SERVER, NOT_OF_ITS_KIND, Difference, reason_of
from admin_differential import Asked
from roquet.protocol.codes import RequestCode as Code

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "answers.md"


@pytest.mark.parametrize(
    ("title", "what", "count", "accepted"),
    [
        ("A broker's answers", "admin codes", len(admin_differential.FIELDS), BROKER),
        ("A name server's answers", "codes", len(namesrv_differential.FIELDS), NAME_SERVER),
    ],
)
def test_accepted_differences_of_answers_are_those_of_the_page(
    title: str, what: str, count: int, accepted: tuple[Difference, ...]
) -> None:
    section = PAGE.read_text().split(f"## {title}", 1)[1].split("\n## ", 1)[0]
    listed = [line[2:] for line in section.splitlines() if line.startswith("- ")]
    assert listed == [NOT_OF_ITS_KIND, *(one.line() for one in accepted)]
    assert f"{count} {what}" in section


@pytest.mark.parametrize(
    ("case", "ours", "java", "part"),
    [
        ("no topic", 1, 22, "no topic"),
        ("no topic", 1, 0, "no topic"),
        ("no topic", 0, 22, None),
        ("topic=x", 1, 22, None),
        ("no endTimestamp", 1, 22, None),
        ("maxNum=x", 29, 1, ""),
        ("maxNum=-1", 29, 1, None),
    ],
)
def test_difference_is_accepted_for_the_parts_and_codes_of_its_row_alone(
    case: str, ours: int, java: int, part: str | None
) -> None:
    asked = Asked(Code.QUERY_MESSAGE, case, {})
    found = reason_of(asked, (ours,), (java,), BROKER)
    assert (None if found is None else found[2]) == part
