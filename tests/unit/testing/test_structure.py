"""The files that pages name on the way of a send and of a pull are those that a trace finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import measure_structure

PAGES = Path(__file__).parents[3] / "docs" / "design"
HEADING = "# The Python files on the way"
# The loop's lag is looked at when a read comes after a pause.
SOMETIMES = frozenset({"service/metrics.py"})


def listed(page: str) -> list[str]:
    """Return the files that a page lists."""
    text = (PAGES / page).read_text().partition(HEADING)[2]
    return text.partition("```\n")[2].partition("\n```")[0].splitlines()


@pytest.mark.parametrize(("page", "pulls"), [("send.md", False), ("receive.md", True)])
def test_page_lists_the_files_that_a_request_passes(page: str, pulls: bool) -> None:
    found = measure_structure.trace(fast=False, pulls=pulls)
    assert found.calls > 0
    assert set(listed(page)) - SOMETIMES == set(found.files) - SOMETIMES


@pytest.mark.parametrize(("page", "pulls"), [("send.md", False), ("receive.md", True)])
def test_fast_path_passes_the_first_files_of_the_page_alone(page: str, pulls: bool) -> None:
    found = measure_structure.trace(fast=True, pulls=pulls)
    files = [name for name in listed(page) if name not in SOMETIMES]
    assert set(found.files) - SOMETIMES == set(files[:6])


def test_modules_with_response_codes_are_the_table_and_readers_of_answers() -> None:
    assert "broker/remoting/refusals.py" in measure_structure.code_modules()


def test_folders_of_the_broker_have_few_files() -> None:
    counts = measure_structure.folder_files()
    broker = [counts[name] for name in counts if name.startswith("src/roquet/broker")]
    assert len(broker) > 10
    assert max(broker) <= measure_structure.FOLDER_FILES_MAX
