"""Who else judges what is read: overload, and threads of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from roquet.remoting.connections.fast_ingest import Rows


class OverloadState(Protocol):
    """Knows whether overload keeps sends out."""

    def takes_sends(self) -> bool:
        """Tell whether the sends that are being read would be taken."""
        ...

    @property
    def judges_reads(self) -> bool:
        """Whether one read may be too old and the next one not; a timer looks as well."""
        ...


class JudgingThreads(Protocol):
    """Judge by the rows while the loop does something else."""

    @property
    def rows(self) -> Rows:
        """What they judge by."""
        ...

    def settle(self) -> None:
        """Book what they have answered until now."""
        ...

    def refresh_soon(self) -> None:
        """Have `before` called in the next turn of the loop."""
        ...
