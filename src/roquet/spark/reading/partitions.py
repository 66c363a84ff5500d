"""What one Spark task reads: small, picklable, complete."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from roquet.spark.offsets import Range


@dataclasses.dataclass(frozen=True)
class QueuePartition(InputPartition):
    """Ranges of queues of one broker, with its addresses, the master first.

    The plan of an earlier moment: a task that finds none of them looks for the broker again.
    """

    ranges: tuple[Range, ...]
    addresses: tuple[str, ...]


class NothingPartition(InputPartition):
    """Stands for no partition at all: Spark would otherwise make up one of its own."""
