"""A topic's configuration and its permission bits (spec: wire §16.4, store §8)."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Perm(enum.IntFlag):
    """What a topic or broker lets clients do; the numbers are those on the wire."""

    NONE = 0
    INHERIT = 1
    """New topics may be made after this one."""
    WRITE = 2
    READ = 4
    PRIORITY = 8


READ_WRITE = int(Perm.READ | Perm.WRITE)
# Plain numbers: flags are slow to combine, and these are asked for every message.
_READ, _WRITE = int(Perm.READ), int(Perm.WRITE)

TOPIC_SYS_FLAG_UNIT = 1
TOPIC_SYS_FLAG_UNIT_SUB = 2


def perm_text(perm: int) -> str:
    """Return the bits as `RW-`."""
    letters = (("R", Perm.READ), ("W", Perm.WRITE), ("X", Perm.INHERIT))
    return "".join(letter if perm & bit else "-" for letter, bit in letters)


def can_read(perm: int) -> bool:
    """Tell whether `perm` allows reading."""
    return bool(perm & _READ)


def can_write(perm: int) -> bool:
    """Tell whether `perm` allows writing."""
    return bool(perm & _WRITE)


def can_inherit(perm: int) -> bool:
    """Tell whether `perm` allows topics to be created after this one."""
    return bool(perm & Perm.INHERIT)


MESSAGE_TYPES = frozenset(
    {"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED", "LITE"}
)
"""Values of the attribute `message.type` (TopicMessageType in Java)."""


class FilterType(enum.StrEnum):
    """How many tags a message of the topic has (Java: TopicFilterType)."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One row of a broker's topic table (Java: TopicConfig)."""

    name: str
    read_queues: int = 16
    write_queues: int = 16
    perm: int = READ_WRITE
    filter_type: FilterType = FilterType.SINGLE_TAG
    sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
