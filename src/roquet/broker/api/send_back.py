"""A message that a consumer could not process and sends back."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SendBackRequest:
    """Asks for another delivery of a message, later, or to put it aside."""

    group: str
    physical_offset: int
    """Where the message is in the log."""
    delay_level: int = 0
    """0: by the number of attempts so far; negative: put it among the dead letters at once."""
    attempts_max: int | None = None
    """After how many attempts it is a dead letter; None: as the group is set."""
    is_unit: bool = False
    """Whether a retry topic that is made gets the unit flag."""
