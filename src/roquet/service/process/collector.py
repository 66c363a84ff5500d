"""When the garbage collector looks at old objects: between two requests, and at new ones only.

By itself it goes over all objects whenever their number has grown by a quarter, in whichever
request that happens; over tables of 100,000 topics and groups this takes some 50 ms, for nothing:
what is in a table is freed by its count. So the collector's own runs end at the second generation.
Several times a second the survivors since the last time are looked at, if there are many, and then
set aside. What is set aside is looked at again when it has doubled: cycles in it are freed then.
"""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

PERIOD_S = 0.25
QUIET_S = 1.0
"""The same while the collector has not run over the second generation."""
YOUNG_RUNS_MIN = 2
"""Runs over the second generation since the last look, some 7,000 objects each."""
SLACK = 50_000
"""Objects set aside beyond twice those of the last look at all of them."""

WAITS_MAX = 40
"""Times that a look is put off because long work beside the loop has many objects in hand."""

_NEVER = 1 << 30
_at_work = [0]


@contextlib.contextmanager
def long_work() -> Generator[None]:
    """Tell that the objects made within the block will mostly be gone when it ends."""
    _at_work[0] += 1
    try:
        yield
    finally:
        _at_work[0] -= 1


class OldGeneration:
    """Looks at old objects when it is told to."""

    def __init__(self) -> None:
        """Leave the collector as it is until `settle`."""
        self._settled = False
        self._waits = 0
        self._runs = 0
        self.pause_s = PERIOD_S
        """Until the next look."""
        self._all = 0
        """How many objects were left when all were looked at."""

    def settle(self) -> None:
        """Set aside what is there now: everything is loaded."""
        first, second, _ = gc.get_threshold()
        gc.set_threshold(first, second, _NEVER)
        self._look_at_all()
        self._settled = True

    def tick(self) -> None:
        """Look at what has come since the last time, if that is worth it."""
        runs, self._runs = self._runs, gc.get_count()[2]
        self.pause_s = QUIET_S if runs == self._runs < YOUNG_RUNS_MIN else PERIOD_S
        if not self._settled or self._runs < YOUNG_RUNS_MIN:
            return
        if _at_work[0] and self._waits < WAITS_MAX:
            self._waits += 1
            return
        self._waits = 0
        gc.collect()
        gc.freeze()
        if gc.get_freeze_count() > 2 * self._all + SLACK:
            self._look_at_all()

    def _look_at_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._all = gc.get_freeze_count()
