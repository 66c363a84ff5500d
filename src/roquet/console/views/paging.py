"""Lists page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.console.declared import Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.console.declared import Data

PAGE = Field(name="page", about="page, from 1 on", kind="integer", low=1, high=100_000, default=1)
FILTER = Field(name="q", about="only names that have this in them", default="")


def page_of(names: Sequence[str], given: Data, size: int) -> tuple[list[str], Data]:
    """Return the names of a page, and what its template says of the others."""
    wanted = given["q"].lower()
    found = [it for it in names if wanted in it.lower()]
    pages = max(1, -(-len(found) // size))
    number = min(given["page"], pages)
    about = {"q": given["q"], "page": number, "pages": pages, "count": len(found)}
    return found[(number - 1) * size : number * size], about
