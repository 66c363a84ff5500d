"""How a master feeds one slave, and from where it gets the log (spec: ha §1.2).

The slave's first report says from where it wants the log; each later one acknowledges, which the
core's thread looks at.
"""

from __future__ import annotations

import dataclasses

from roquet.ha.frames import PeerFault


@dataclasses.dataclass(frozen=True, slots=True)
class FeedConfig:
    """How a slave is fed. Times are milliseconds, sizes bytes."""

    batch: int
    heartbeat_ms: int
    housekeeping_ms: int
    file_bytes: int
    bytes_per_second: int
    """0: as fast as the slave takes it."""


@dataclasses.dataclass(frozen=True, slots=True)
class CopierConfig:
    """How a slave behaves. Times are milliseconds."""

    heartbeat_ms: int
    housekeeping_ms: int


def start_of(report: int, begin: int, end: int, file_bytes: int) -> int:
    """Return from where a slave gets the log that has reported an offset >= 0 first.

    `begin` and `end` are the bounds of the master's log. Raises PeerFault.
    """
    if report > end:
        raise PeerFault(
            f"has a log up to {report}, this one ends at {end}: they are not the same, or this"
            " one has lost its end"
        )
    if report == 0:
        # A new slave does not get older files.
        return max(begin, end - end % file_bytes)
    if report < begin:
        raise PeerFault(
            f"needs offset {report}, this log begins at {begin}: its store has to be emptied"
        )
    return report
