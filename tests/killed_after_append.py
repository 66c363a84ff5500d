"""A broker that is killed as soon as it has appended messages in sequence, before it answers."""

from __future__ import annotations

import os
import runpy
import signal
from typing import Any

from roquet.broker.services.sequences.service import SequencedSends

_append = SequencedSends._append


async def _killed(self: SequencedSends, *given: Any) -> Any:
    await _append(self, *given)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sends: Any = SequencedSends
    sends._append = _killed
    runpy.run_module("roquet", run_name="__main__")
