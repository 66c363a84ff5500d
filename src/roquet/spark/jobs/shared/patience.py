"""Queries that are started again when Spark's Python was too slow to start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

STARTS: Final = 10
"""How often a query is started whose Python worker did not come up in time."""
_SLOW: Final = "Python worker failed to connect back"


def patiently(follow: Callable[[], None], say: Callable[[str], None]) -> None:
    """Start a query and follow it to its end, by calling `follow`, until that was possible.

    Spark gives the Python of a stream's source ten seconds to start, which a busy machine may not
    manage. Nothing is lost or twice when the query is started again. Raises what `follow` raises.
    """
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415  (slow to import)

    for left in reversed(range(STARTS)):
        try:
            follow()
        except StreamingQueryException as error:
            if left == 0 or _SLOW not in str(error):
                raise
            say("Spark's Python was too slow to start; once more")
        else:
            return
