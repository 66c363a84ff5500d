"""From where a master feeds a slave that has reported."""

from __future__ import annotations

import pytest

from roquet.ha.feed import start_of
from roquet.ha.frames import PeerFault

FILE = 1000


@pytest.mark.parametrize(
    ("report", "begin", "end", "start"),
    [
        (0, 0, 2_500, 2_000),
        (0, 0, 2_000, 2_000),
        (0, 0, 0, 0),
        (0, 2_000, 2_000, 2_000),
        (0, 2_400, 2_500, 2_400),
        (1, 0, 2_500, 1),
        (2_500, 0, 2_500, 2_500),
        (100, 100, 2_500, 100),
    ],
)
def test_an_empty_slave_begins_with_the_last_file(
    report: int, begin: int, end: int, start: int
) -> None:
    """Any other slave begins where its own log ends."""
    assert start_of(report, begin, end, FILE) == start


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (2**63 - 1, "ends at 2500"),
        (2_501, "ends at 2500"),
        (99, "begins at 100"),
        (1, "begins at 100"),
    ],
)
def test_first_report_outside_of_the_log_is_refused(report: int, why: str) -> None:
    with pytest.raises(PeerFault, match=why):
        start_of(report, 100, 2_500, FILE)
