"""How the members of a group fetch a topic's messages: they pull, or they pop."""

from __future__ import annotations

import dataclasses
import enum


class RequestMode(enum.StrEnum):
    """Java: MessageRequestMode."""

    PULL = "PULL"
    POP = "POP"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequestMode:
    """What an operator has set for a topic and a group (Java: SetMessageRequestModeRequestBody)."""

    topic: str
    group: str
    mode: RequestMode = RequestMode.PULL
    pop_share: int = 0
    """How many other members' queues a member also pops; 0 or less: it pops all queues."""
