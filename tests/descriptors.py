"""What is open in the test's own process, and what is freed without the garbage collector."""

from __future__ import annotations

import asyncio
import collections
import gc
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Free what its count frees, and nothing else."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def opened() -> collections.Counter[str]:
    """Count this process's sockets, event descriptors and pipes; files of stores come and go."""
    found: collections.Counter[str] = collections.Counter()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            to = os.readlink(entry)  # noqa: PTH115  (it is no path)
        except FileNotFoundError:
            continue
        if not to.startswith("/"):
            found["eventfd" if "eventfd" in to else to.partition(":")[0]] += 1
    return found


def alive(kind: type) -> int:
    """Count the objects of a class."""
    return sum(type(it) is kind for it in gc.get_objects())


async def returned(before: collections.Counter[str]) -> None:
    """Wait until no more is open than before; fail with what is open."""
    end = time.monotonic() + 30
    while not (now := opened()) <= before:
        if time.monotonic() > end:
            raise AssertionError(f"open: {now}, before: {before}")
        await asyncio.sleep(0.01)
