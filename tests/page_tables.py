"""Tables of the pages for people, as tests compare them with what there is."""

from __future__ import annotations

import re

from roquet.testing.java import REPOSITORY

_ROW = re.compile(r"^\| `(\w+)` \| (\w[^|]*) \|", re.MULTILINE)


def section(page: str, heading: str) -> dict[str, str]:
    """Return first and second column of the tables of a section."""
    text = (REPOSITORY / "docs" / page).read_text().partition(f"## {heading}\n")[2]
    return dict(_ROW.findall(text.partition("\n## ")[0]))
