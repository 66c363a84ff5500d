"""The files that pages name on the way of a send and of a pull are those that a trace finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import folders, measure_structure

PAGES = Path(__file__).parents[3] / "docs" / "design"
HEADING = "# The Python files on the way"
# The loop's lag is looked at when a read comes after a pause, and that ends a rest.
SOMETIMES = frozenset({"service/loop_lag.py", "service/lifecycle.py", "service/metrics.py"})


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


def test_a_folder_with_too_many_files_is_found_unless_it_holds_data() -> None:
    most = folders.FILES_MAX
    found = {"src/full": most, "src/fuller": most + 1, "tools/fullest": most + 2, "src/few": 1}
    assert folders.crowded(found | dict.fromkeys(folders.DATA, 99)) == [
        "tools/fullest",
        "src/fuller",
    ]


def test_folders_of_data_hold_no_code_and_need_their_exception() -> None:
    counts = folders.files_by_folder()
    assert sum(name.startswith("src/roquet/broker") for name in counts) > 10
    for name in folders.DATA:
        assert counts[name] > folders.FILES_MAX, f"{name} needs no exception"
        kinds = {path.suffix for path in (folders.ROOT / name).iterdir() if path.is_file()}
        assert kinds <= {"", ".in", ".json", ".txt"}, f"{name} holds code"
