"""A topic is archived by a job whose driver and tasks are killed; then the lake is counted.

The job is the command that people run. It is killed while a micro-batch is being written, between
the lake's folder and its catalog, between the catalog and Spark's own note, or at any moment; the
Python of its tasks at any moment of a micro-batch.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import random
import time
from typing import TYPE_CHECKING, Final

import pyarrow.dataset
from tools.spark_kills.judge import QUEUES
from tools.spark_kills.world import ROWS_A_BATCH, WAIT_S, world

from pipeline_kills import Job, started

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MOMENTS: Final = ("staged", "worker", "placed", "worker", "cataloged", "worker", "any")
"""What is killed and when, one after the other: tasks, and drivers at a moment."""


@dataclasses.dataclass
class Result:
    """What a run left behind."""

    kills: int = 0
    workers: int = 0
    """Kills of tasks; the others are of drivers."""
    between: int = 0
    """Kills of drivers that struck when rows were written and their micro-batch was not noted."""
    sent: int = 0
    lost: int = 0
    twice: int = 0
    falls: int = 0
    """Runs that ended with an error by themselves, and were started again."""


class Lake:
    """How far the job has come, as its files tell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def is_at(self, moment: str) -> bool:
        """Whether a micro-batch is there right now."""
        begun, cataloged = self._latest("_checkpoint/offsets"), self._count("_catalog", "b*.json")
        if moment == "cataloged":
            return cataloged > self._latest("_checkpoint/commits")
        if cataloged >= begun:
            return False
        if moment == "placed":
            return self._count("_staged", "b*.plan") > 0
        return moment != "staged" or any(self.folder.glob("_staged/b*/topic=*"))

    def _latest(self, folder: str) -> int:
        """Return how many micro-batches Spark has noted there; they are numbered from 0."""
        found = (self.folder / folder).glob("[0-9]*")
        return 1 + max((int(path.name) for path in found), default=-1)

    def _count(self, folder: str, pattern: str) -> int:
        return len(list((self.folder / folder).glob(pattern)))


def run(folder: Path, moments: Sequence[str], seed: int) -> Result:
    """Archive a topic through kills, then count. Prints its seed, so that it can be repeated."""
    rng = random.Random(seed)
    rows = ROWS_A_BATCH * (len(moments) + 6)
    print(f"seed {seed}: {', '.join(moments)}; {rows} rows", flush=True)  # noqa: T201
    result = Result(sent=rows)
    lake = Lake(folder / "lake")
    with world(folder) as it:
        it.fill(rows)
        words = ["--out", str(lake.folder), "--nameServers", it.names, "--subscribe", "Source"]
        limit = ["--maxOffsetsPerTrigger", str(ROWS_A_BATCH), "--check"]
        with started(Job(folder / "archive.log", "archive", *words, *limit)) as job:
            for moment in moments:
                strike(lake, job, moment, rng)
                result.kills += 1
                if moment == "worker":
                    result.workers += 1
                else:
                    result.between += any(map(lake.is_at, ("staged", "placed", "cataloged")))
            job.finish()
        result.falls = job.falls
        assert "no difference" in job.log.read_text().splitlines()[-1]
        count(lake.folder, result)
    print(json.dumps(dataclasses.asdict(result)), flush=True)  # noqa: T201
    return result


def strike(lake: Lake, job: Job, moment: str, rng: random.Random) -> None:
    """Kill the job at a moment of a micro-batch, or its tasks when it has some."""
    end = time.monotonic() + WAIT_S
    late = rng.choice((0, 0, 0.05))
    if moment in {"any", "worker"}:
        late = rng.uniform(0, 1.5 if moment == "any" else 0.3)
    while not lake.is_at(moment):
        job.running(end)
        time.sleep(0.002)
    time.sleep(late)
    while moment == "worker" and not job.workers():
        job.running(end)
        time.sleep(0.002)
    job.kill("worker" if moment == "worker" else "driver")


def count(lake: Path, result: Result) -> None:
    """Read the lake's folder as any program would."""
    files = [str(path) for path in lake.glob("topic=Source/day=*/part=*/*.parquet")]
    table = pyarrow.dataset.dataset(files).to_table(["queueId", "queueOffset", "body"])
    found = collections.Counter(
        (row["queueId"], row["queueOffset"], int(row["body"])) for row in table.to_pylist()
    )
    wanted = {(n % QUEUES, n // QUEUES, n) for n in range(result.sent)}
    result.lost = len(wanted - found.keys())
    result.twice = sum(found.values()) - len(found)
    assert not found.keys() - wanted
