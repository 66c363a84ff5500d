"""Unique keys that a repeated task makes again, so that consumers can drop what comes twice.

A key is made of the run, the partition and the number of the row. It is the same in a second try
when the plan is: the same input in the same order in the same partitions. That holds for what our
sources read and for files, also filtered and mapped; behind a shuffle it holds only with a sort
within partitions over columns that tell all rows apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import TaskContext

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from roquet.spark.options import SinkOptions

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


def of_task(options: SinkOptions, run: str | None) -> str | None:
    """Return the prefix of the keys of this task's rows; None when they are to be random.

    A stream gives no run: its query, which the checkpoint keeps, and the micro-batch name it.
    Raises UsageError outside of a task.
    """
    if not options.plan_keys:
        return None
    context = TaskContext.get()
    if context is None:
        raise UsageError("uniqueKeys=plan: there is no Spark task")
    if run is None:
        run = _of_stream(context, options)
        if run is None:
            raise UsageError("uniqueKeys=plan: Spark does not say which micro-batch this is")
    return prefix(run, context.partitionId())


def place_of_task(options: SinkOptions, run: str | None) -> tuple[str, int]:
    """Return the run and the partition of this task, as far as Spark says; never fails."""
    context = TaskContext.get()
    if context is None:
        return run or "", 0
    return run or _of_stream(context, options) or "", context.partitionId()


def epoch_of_task(options: SinkOptions, run: str | None) -> tuple[str, int]:
    """Return the run and the epoch of this task's rows, 0 of a batch. Raises UsageError."""
    if run is not None:
        return run, 0
    context = TaskContext.get()
    found = None if context is None else _micro_batch(context, options)
    if found is None:
        raise UsageError("delivery = idempotent: Spark does not say which micro-batch this is")
    return found[0], int(found[1])


def _of_stream(context: TaskContext, options: SinkOptions) -> str | None:
    found = _micro_batch(context, options)
    return None if found is None else "/".join(found)


def _micro_batch(context: TaskContext, options: SinkOptions) -> tuple[str, str] | None:
    """Return the run and the number of a micro-batch, as far as Spark says."""
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    return (options.run_id or query, batch) if query and batch else None


def prefix(run: str, partition: int) -> str:
    """Return what the keys of a task are made of, in front of the row's number.

    A key is the first half of the SHA-256 of both, 32 hexadecimal digits (`sink_key`).
    """
    return f"{run}/{partition}/"
