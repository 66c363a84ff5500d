"""Whether a sync may be done between two reads of the loop: only while the disk is quick.

A sync in place saves a lone sender two changes of threads. It holds up everybody else, so that it
has to take less than they would be likely to notice.
"""

from __future__ import annotations

ENOUGH = 16
"""Syncs that say something about the next ones."""


class InlineSyncPolicy:
    """Judges the disk by the mean of the last syncs, wherever they were done."""

    def __init__(self, most_us: int) -> None:
        """Believe nothing good yet; with `most_us` 0 no disk is quick."""
        self.is_quick = False
        self._most_us = most_us
        self._before = (0, 0)

    def look(self, syncs: int, sum_us: int) -> bool:
        """Take how many syncs there were so far, and their microseconds; return the judgement.

        Few slow ones are enough to change it for the worse.
        """
        before, before_us = self._before
        count, took_us = syncs - before, sum_us - before_us
        if count >= ENOUGH or took_us > ENOUGH * self._most_us:
            self._before = (syncs, sum_us)
            self.is_quick = took_us < count * self._most_us
        return self.is_quick
