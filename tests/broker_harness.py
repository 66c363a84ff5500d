"""What the broker's tests share: a story told to a running cluster, and records read back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet.protocol import properties as props
from roquet.store.records import Record, read_records
from roquet.testing.cluster import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.protocol.command import Command


def play(folder: Path, tell: Callable[[Cluster], Awaitable[None]], **changes: str) -> None:
    """Run a cluster over `folder` while `tell` is told."""

    async def run() -> None:
        async with cluster(folder, **changes) as it:
            await tell(it)

    asyncio.run(run())


async def dispatched(it: Cluster) -> None:
    """Wait until everything that was sent can be read."""
    for _ in range(3000):
        if it.broker.store.dispatch_behind() == 0:
            # One more turn: the listeners hear of it through the loop.
            await asyncio.sleep(0.01)
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the dispatcher does not keep up")


def records(answer: Command) -> list[Record]:
    """Return the records of a pull's answer."""
    return read_records(answer.body) if answer.body else []


def properties(record: Record) -> dict[str, str]:
    """Return a record's properties."""
    return props.read(record.properties)


def ext(answer: Command) -> dict[str, str]:
    """Return the answer's fields, which have to be there."""
    assert answer.ext is not None
    return answer.ext
