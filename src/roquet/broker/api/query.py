"""Requests that find stored messages by key and by place."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    """Asks for the messages of a topic with a key, stored within a span of time."""

    topic: str
    key: str
    messages_max: int
    """The broker's own limits hold as well."""
    begin_ms: int
    """Unix milliseconds, as `end_ms`."""
    end_ms: int
    by_tag: bool = False
    """Whether `key` is a tag."""
    by_unique_key: bool = False
    """Whether `key` is the unique key of one message: another limit holds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """The messages that were found, and how far the index goes."""

    records: Sequence[bytes]
    """Whole records as they are stored; empty when nothing was found."""
    index_time_ms: int
    """Store time of the last indexed message, Unix milliseconds."""
    index_offset: int
    """Its physical offset."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ViewRequest:
    """Asks for the message at a place of the log."""

    physical_offset: int
