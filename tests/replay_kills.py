"""A lake is sent again by a job whose driver, tasks and broker are killed; the target is counted.

A wave that is not noted as done is sent again: nothing may be lost, and what came twice has to have
the same unique key both times, which no other message has.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import random
import time
from typing import TYPE_CHECKING, Any

from tools.spark_kills.judge import QUEUES
from tools.spark_kills.world import WAIT_S, Mark, Result, World, world

from pipeline_kills import Job, started
from roquet.spark.options import SourceOptions
from roquet.spark.reading.batch import BatchReader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WAVE_ROWS = 800


class Replay:
    """The job, and how far it has come as its files and the target tell."""

    def __init__(self, it: World, job: Job, lake: Path) -> None:
        self.it = it
        self.job = job
        self._folder = lake / "_replays/again/done"
        self.mark = Mark(self.done, it.written)

    def done(self) -> int:
        """Return how many waves are noted."""
        return len(list(self._folder.glob("[0-9]*.json")))

    def strike(self, what: str, rng: random.Random) -> bool:
        """Kill in a wave of the seed's choice when some of its rows are sent.

        Returns whether the wave was not noted to the end.
        """
        end = time.monotonic() + WAIT_S
        first, aim = self.done() + rng.randint(0, 1), rng.randint(1, WAVE_ROWS // 2)
        while True:
            self.job.running(end)
            ready = self.done() >= first and self.mark.ahead() >= aim
            if ready and (what != "worker" or self.job.workers()):
                break
            time.sleep(0.01)
        between = self.mark.is_between(lambda: self._kill(what))
        self.it.mend(what)
        self.mark.struck()
        return between

    def _kill(self, what: str) -> None:
        if what == "broker":
            self.it.strike(what)
        else:
            self.job.kill(what)


def run(folder: Path, kills: Sequence[str], seed: int) -> Result:
    """Archive a topic and replay it through kills. Prints its seed, so that it can be repeated."""
    rng = random.Random(seed)
    rows = WAVE_ROWS * (3 * len(kills) // 2 + 4)
    print(f"seed {seed}: {', '.join(kills)}; {rows} rows", flush=True)  # noqa: T201
    result = Result(sent=rows)
    lake = folder / "lake"
    with world(folder) as it:
        it.fill(rows)
        given = ["--nameServers", it.names, "--subscribe", "Source"]
        with started(Job(folder / "archive.log", "archive", *given, "--out", str(lake))) as job:
            job.finish()
        words = [*given, "--lake", str(lake), "--topic", "Target", "--run", "again"]
        wave = ["--waveRows", str(WAVE_ROWS)]
        with started(Job(folder / "replay.log", "replay", *words, *wave)) as job:
            replay = Replay(it, job, lake)
            for what in kills:
                result.between += replay.strike(what, rng)
                result.kills += 1
            job.finish()
        result.falls = job.falls
        count(it, result)
    print(json.dumps(dataclasses.asdict(result)), flush=True)  # noqa: T201
    return result


def count(it: World, result: Result) -> None:
    """Read source and target, and compare them by the place that each message came from."""
    source = {(row["queueId"], row["queueOffset"]): row["body"] for row in rows(it, "Source")}
    assert len(source) == result.sent
    keys: dict[tuple[int, int], list[str]] = collections.defaultdict(list)
    for row in rows(it, "Target"):
        properties = dict(row["properties"])
        place = (int(properties["replay.queueId"]), int(properties["replay.queueOffset"]))
        assert (row["queueId"], row["body"]) == (place[0] % QUEUES, source[place]), place
        keys[place].append(row["uniqKey"])
    result.lost = len(source.keys() - keys.keys())
    result.twice = sum(map(len, keys.values())) - len(keys)
    owners = collections.Counter(key for found in keys.values() for key in set(found))
    result.unrecognizable = sum(len(set(found)) > 1 for found in keys.values())
    result.unrecognizable += sum(number > 1 for number in owners.values())


def rows(it: World, topic: str) -> list[dict[str, Any]]:
    columns = "queueId,queueOffset,uniqKey,properties,body"
    given = {"nameServers": it.names, "subscribe": topic, "columns": columns}
    reader = BatchReader(SourceOptions.parse(given, streaming=False))
    return [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
