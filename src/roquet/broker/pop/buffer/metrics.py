"""Numbers of the merge buffer, those of RocketMQ's names first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquet.broker.pop.buffer.service import PopBuffer
    from roquet.service.metrics import Metrics

SCAN_MS = (1, 10, 100, 1000, 2000, 3000)
"""Bounds of the classes of looks, milliseconds."""


def watch_buffer(buffer: PopBuffer, metrics: Metrics) -> None:
    """Show the numbers."""
    merge = buffer.merge
    metrics.standard(
        "pop_checkpoint_buffer_size",
        "Checkpoints that wait in memory for their acknowledgements",
        (),
        lambda: [((), float(len(merge)))],
    )
    metrics.standard(
        "pop_offset_buffer_size",
        "Steps of committed offsets that wait for checkpoints in memory",
        (),
        lambda: [((), float(merge.offsets))],
    )
    buffer.looks = metrics.distribution(
        "pop_buffer_scan_time_consume_milliseconds",
        "Looks for checkpoints in memory that have to be stored, by milliseconds",
        (),
        SCAN_MS,
    )
    metrics.watch_many(
        "pop_buffer",
        "What the merge buffer kept from the log: acknowledgements taken, checkpoints never stored",
        "kind",
        lambda: {"acks": float(merge.merged_acks), "checkpoints": float(merge.unsaved)},
        counts=True,
    )
