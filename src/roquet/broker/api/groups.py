"""Requests about consumer groups: create, change, delete, show, forbid."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roquet.model.attributes import AttributeChange
    from roquet.model.data_version import DataVersion
    from roquet.model.group import SubscriptionGroupConfig


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PutGroup:
    """A group as it is to be, but for its attributes: those are changed one by one."""

    config: SubscriptionGroupConfig
    """Its own attributes do not count."""
    changes: Sequence[AttributeChange] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupRequest:
    """Deletes a group."""

    group: str
    with_offsets: bool = False
    """Whether its committed offsets go as well."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupReadableRequest:
    """Asks whether a group may read a topic, and may change that first."""

    group: str
    topic: str
    readable: bool | None = None
    """None: change nothing."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """All groups at one moment."""

    groups: Mapping[str, SubscriptionGroupConfig]
    version: DataVersion
    forbidden: Mapping[str, Mapping[str, int]]
    """Group -> topic -> bits of what it may not do there."""
