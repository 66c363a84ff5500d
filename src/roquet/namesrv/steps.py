"""Changes of many rows of the route tables, in steps between which others have their turn. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.model.route import QueueData

_Done = TypeVar("_Done")
Work = Generator[None, None, _Done]
"""Changes of many rows, in steps; between them every row is whole."""
_END = object()


def ends(work: Work[Any]) -> bool:
    """Do a step; tell whether it was the last."""
    return next(work, _END) is _END


class ChangedPerms:
    """Changes permissions; queues that were one object are one afterwards."""

    def __init__(self, change: Callable[[int], int]) -> None:
        """Change a permission by `change`."""
        self._change = change
        self._done: dict[int, tuple[QueueData, QueueData]] = {}

    def of(self, queues: QueueData) -> QueueData:
        """Return the queues with the changed permission."""
        found = self._done.get(id(queues))
        if found is None:
            new = dataclasses.replace(queues, perm=int(self._change(queues.perm)))
            # The old one is kept as well, so that no other object gets its id.
            found = self._done[id(queues)] = queues, new
        return found[1]
