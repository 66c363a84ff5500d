"""Requests about topics: create, change, delete, show."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roquet.model.attributes import AttributeChange
    from roquet.model.data_version import DataVersion
    from roquet.model.topic import TopicConfig


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PutTopic:
    """A topic as it is to be, but for its attributes: those are changed one by one."""

    config: TopicConfig
    """Its own attributes do not count."""
    changes: Sequence[AttributeChange] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """All topics at one moment."""

    topics: Mapping[str, TopicConfig]
    version: DataVersion
