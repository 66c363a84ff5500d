"""What a consumer group wants of a topic, and how it consumes."""

from __future__ import annotations

import dataclasses
import enum


class ExpressionType(enum.StrEnum):
    """The two filter languages."""

    TAG = "TAG"
    SQL92 = "SQL92"


class ConsumeType(enum.StrEnum):
    """Who fetches: the application, the client library, or the broker by pop."""

    ACTIVELY = "CONSUME_ACTIVELY"
    PASSIVELY = "CONSUME_PASSIVELY"
    POP = "CONSUME_POP"


class MessageModel(enum.StrEnum):
    """Whether members share the messages or each gets all."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(enum.StrEnum):
    """Where a group begins that has no offset yet."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


SUB_ALL = "*"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionData:
    """One topic's subscription (Java: SubscriptionData). No tags means every message."""

    topic: str
    expression: str = SUB_ALL
    expression_type: str = ExpressionType.TAG
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    """Java hash codes of the tags."""
    version: int = 0
    """Unix milliseconds at which the subscription was made."""
    class_filter: bool = False

    @property
    def wanted_codes(self) -> list[int] | None:
        """Tag codes that are wanted, ascending; None for all."""
        return sorted(self.codes) if self.tags else None

    def takes_code(self, tag_code: int) -> bool:
        """Tell whether a consume-queue unit with this tag code may be a match."""
        return not self.tags or tag_code in self.codes

    def takes_tag(self, tag: str | None) -> bool:
        """Tell whether a message with this tag matches (codes collide, tags do not)."""
        return not self.tags or tag in self.tags
