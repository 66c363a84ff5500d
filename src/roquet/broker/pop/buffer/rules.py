"""Settings of the merge buffer."""

from __future__ import annotations

import dataclasses

from roquet.base.config import setting


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BufferConfig:
    """Settings of checkpoints that wait in memory, and of how records of POP are stored."""

    enabled: bool = setting(
        "enablePopBufferMerge",
        False,
        "Whether checkpoints wait in memory for their acknowledgements, and those that are"
        " acknowledged whole are never stored; a crash then repeats what was popped meanwhile.",
        live=True,
    )
    stay_ms: int = setting(
        "popCkStayBufferTime",
        10_000,
        "How long a checkpoint waits in memory.",
        unit="ms",
        low=0,
        high=3_600_000,
        live=True,
    )
    margin_ms: int = setting(
        "popCkStayBufferTimeOut",
        3000,
        "A checkpoint is stored so long before its messages become visible again; one that has"
        " less than this and 1.5 s is stored at once.",
        unit="ms",
        low=0,
        high=3_600_000,
        live=True,
    )
    checkpoints_max: int = setting(
        "popCkMaxBufferSize",
        200_000,
        "Checkpoints that wait in memory; more are stored at once.",
        low=0,
        high=2_000_000,
        live=True,
    )
    queue_max: int = setting(
        "popCkOffsetMaxQueueSize",
        20_000,
        "Checkpoints of one group and queue that wait in memory; more are stored at once.",
        low=0,
        high=2_000_000,
        live=True,
    )
    batch_acks: bool = setting(
        "enablePopBatchAck",
        False,
        "Whether the acknowledgements of a checkpoint that has to be stored become one record.",
        live=True,
    )
    acks_async: bool = setting(
        "appendAckAsync",
        False,
        "Whether an acknowledgement is a success once it is in the log, however durable;"
        " otherwise it waits for its flush as a send does.",
        live=True,
    )
    checkpoints_async: bool = setting(
        "appendCkAsync",
        False,
        "Whether popped messages leave once their checkpoint is in the log, however durable.",
        live=True,
    )
