"""What a slave of ours asks its master for beside 43: which topics and groups were deleted."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Self

from roquet.protocol import fastjson
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class DeletionsBody:
    """Deleted topics and groups; a name may have been made again since."""

    topics: Mapping[str, int]
    """When, in Unix milliseconds."""
    groups: Mapping[str, int]
    log_ends: Mapping[str, int]
    """By topic: messages in front of this offset of the log are not the topic's any more."""

    def encode(self) -> bytes:
        """Write it as JSON."""
        return fastjson.java(
            {
                "topics": dict(self.topics),
                "groups": dict(self.groups),
                "logEnds": dict(self.log_ends),
            }
        )

    @classmethod
    def decode(cls, data: bytes, *, tolerant_size_max: int = fastjson.TOLERANT_SIZE_MAX) -> Self:
        """Read it. Raises JsonError."""
        source = fastjson.read_object(data, tolerant_size_max=tolerant_size_max)
        return cls(*(_numbers(source, name) for name in ("topics", "groups", "logEnds")))


def _numbers(source: fields.Json, name: str) -> dict[str, int]:
    rows = fields.obj(source, name)
    return {key: max(fields.i64(rows, key), 0) for key in rows}
