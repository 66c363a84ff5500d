"""A topic and its lake, for tests of the jobs `archive` and `replay` in a real Spark."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from roquet.client import Message
from roquet.spark.jobs import archive
from roquet.spark.jobs.archiving import upkeep
from roquet.spark.jobs.lake import Lake
from roquet.spark.jobs.storage.files import Files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

    from roquet.spark.jobs.shared.report import Report
    from spark_harness import Running

_numbers = itertools.count()


class At:
    """A clock that stands where it is put."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms

    def steady_ms(self) -> int:
        return self.ms

    async def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


class World:
    """A topic and its lake."""

    def __init__(self, spark: SparkSession, running: Running, folder: Path) -> None:
        self.spark = spark
        self.running = running
        self.topic = f"Archived{next(_numbers)}"
        self.out = folder / "lake"
        self.sent = 0
        running.create_topic(self.topic, 2)

    def send(self, count: int) -> None:
        for queue in range(2):
            bodies = [f'{{"n": {n}}}'.encode() for n in range(self.sent, self.sent + count)]
            made = [Message(self.topic, body, "ab"[n % 2]) for n, body in enumerate(bodies)]
            self.running.send(self.topic, made, queue)
        self.sent += count

    def archive(self, **options: str) -> Report:
        said: list[str] = []
        return archive.run(self.spark, {**self.options, **options}, said.append)

    @property
    def options(self) -> dict[str, str]:
        """What a run that archives the topic needs."""
        given = {"nameServers": self.running.name_servers, "subscribe": self.topic}
        return {**given, "out": str(self.out)}

    def archive_each(self, *counts: int) -> None:
        """Send so many messages and archive them, once for each count."""
        for count in counts:
            self.send(count)
            self.archive()

    def look_after(self, now_ms: int | None = None, **options: str) -> Report:
        clock = None if now_ms is None else At(now_ms)
        return archive.run(self.spark, {"out": str(self.out), **options}, print, clock)

    @property
    def lake(self) -> Lake:
        return Lake(self.spark, str(self.out), "parquet")

    def is_whole(self) -> None:
        """Catalog, lake and folder have each message once."""
        wanted = sorted(itertools.product(range(2), range(self.sent)))
        frames = [self.lake.read(), self.spark.read.parquet(str(self.out))]
        for frame in frames:
            rows = frame.select("queueId", "queueOffset", "body").collect()
            assert sorted((row.queueId, row.queueOffset) for row in rows) == wanted
            assert all(bytes(row.body) == b'{"n": %d}' % row.queueOffset for row in rows)
        assert upkeep.check(self.lake) == []

    def part_folders(self) -> list[Path]:
        return sorted(self.out.glob("topic=*/day=*/part=*"))


class Torn(Exception):  # noqa: N818
    """What stands for the end of the process."""


def tear(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool) -> None:
    """Let a step raise once: before it is done, or after."""
    real: Callable[..., Any] = getattr(owner, name)

    def torn(*arguments: Any, **named: Any) -> None:
        if owner is Files and "topic=" not in arguments[1]:
            real(*arguments, **named)
            return
        if after:
            real(*arguments, **named)
        raise Torn("torn off")

    monkeypatch.setattr(owner, name, torn)
