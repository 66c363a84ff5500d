"""The application's functions that hear which queues come and go."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.client._options import ConsumerOptions, QueuesChanged
    from roquet.model.queue import MessageQueue

log = logging.getLogger(__name__)


class Listener:
    """Calls `on_assigned` and `on_revoked`, where there are any."""

    def __init__(self, options: ConsumerOptions) -> None:
        """Take the functions from the settings."""
        self._options = options

    async def assigned(self, queues: Iterable[MessageQueue]) -> None:
        """Say which queues are ours from now on."""
        await _call(self._options.on_assigned, frozenset(queues))

    async def revoked(self, queues: Iterable[MessageQueue]) -> None:
        """Say which queues are given away next."""
        await _call(self._options.on_revoked, frozenset(queues))


async def _call(function: QueuesChanged | None, queues: frozenset[MessageQueue]) -> None:
    if function is None or not queues:
        return
    try:
        result = function(queues)
        if inspect.isawaitable(result):
            await result
    except Exception:
        # Whatever the application does with the news: the queues have to be balanced.
        log.exception("a function that hears of queues failed")
