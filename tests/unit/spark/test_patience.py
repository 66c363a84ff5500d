"""A query is started again when Spark's Python was too slow, and for no other reason."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from roquet.spark.jobs.shared.patience import STARTS, patiently

SLOW = "Query terminated with exception: Python worker failed to connect back."


def failing(errors: list[str]) -> tuple[list[str], list[str]]:
    """Follow a query that ends with each error in turn; return what is left, and what was said."""
    said: list[str] = []

    def follow() -> None:
        if errors:
            raise StreamingQueryException(errors.pop(0))

    patiently(follow, said.append)
    return errors, said


def test_a_slow_start_is_tried_again() -> None:
    assert failing([SLOW, SLOW]) == ([], ["Spark's Python was too slow to start; once more"] * 2)


def test_other_errors_and_endless_slowness_are_told() -> None:
    with pytest.raises(StreamingQueryException, match="no such topic"):
        failing(["no such topic"])
    errors = [SLOW] * (STARTS + 1)
    with pytest.raises(StreamingQueryException, match="failed to connect back"):
        failing(errors)
    assert len(errors) == 1
