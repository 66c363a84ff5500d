"""A topic is archived by a job whose driver is killed again and again; then the lake is counted.

The job is the command that people run. It is killed while a micro-batch is being written, between
the lake's folder and its catalog, between the catalog and Spark's own note, or at any moment.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import pyarrow.dataset
from demo.kills import kill_tree

from spark_kills import FALLS_MAX, QUEUES, ROWS_A_BATCH, WAIT_S, World, world

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MOMENTS: Final = ("staged", "placed", "cataloged", "any")


@dataclasses.dataclass
class Result:
    """What a run left behind."""

    kills: int = 0
    between: int = 0
    """Kills that struck when rows were written and Spark had not noted their micro-batch."""
    sent: int = 0
    lost: int = 0
    twice: int = 0
    falls: int = 0
    """Runs that ended with an error by themselves, and were started again."""


class Job:
    """The archive job as a process, and what it has done as its files tell."""

    def __init__(self, it: World) -> None:
        self.lake = it.folder / "lake"
        self.log = it.folder / "archive.log"
        self.words = ["--out", str(self.lake), "--nameServers", it.names, "--subscribe", "Source"]
        self.process: subprocess.Popen[bytes] | None = None
        self.falls = 0

    def run(self) -> subprocess.Popen[bytes]:
        """Return the running job, started anew when it was killed or has ended with an error."""
        if self.process is not None and self.process.poll() not in {None, 0}:
            self.falls += 1
            assert self.falls < FALLS_MAX, self.log.read_text()[-4000:]
            self.process = None
        if self.process is None:
            command = ["pipeline", "run", "--master", "local[2]", "archive"]
            limit = ["--maxOffsetsPerTrigger", str(ROWS_A_BATCH), "--check"]
            with self.log.open("ab") as out:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "roquet", *command, *self.words, *limit],
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
                )
        return self.process

    def kill(self) -> None:
        assert self.process is not None
        kill_tree(self.process)
        self.process = None

    def begun(self) -> int:
        """Return how many micro-batches Spark has noted as begun."""
        return self._count("_checkpoint/offsets", "[0-9]*")

    def noted(self) -> int:
        return self._count("_checkpoint/commits", "[0-9]*")

    def cataloged(self) -> int:
        return self._count("_catalog", "b*.json")

    def is_at(self, moment: str) -> bool:
        """Whether a micro-batch is there right now."""
        if moment == "cataloged":
            return self.cataloged() > self.noted()
        if self.cataloged() >= self.begun():
            return False
        if moment == "any":
            return True
        if moment == "placed":
            return self._count("_staged", "b*.plan") > 0
        return any(self.lake.glob("_staged/b*/topic=*"))

    def _count(self, folder: str, pattern: str) -> int:
        return len(list((self.lake / folder).glob(pattern)))


def run(folder: Path, moments: Sequence[str], seed: int) -> Result:
    """Archive a topic through kills, then count. Prints its seed, so that it can be repeated."""
    rng = random.Random(seed)
    rows = ROWS_A_BATCH * (len(moments) + 3)
    print(f"seed {seed}: {', '.join(moments)}; {rows} rows", flush=True)  # noqa: T201
    result = Result(sent=rows)
    with world(folder) as it:
        it.fill(rows)
        job = Job(it)
        try:
            for moment in moments:
                strike(job, moment, rng)
                result.kills += 1
                result.between += any(map(job.is_at, ("staged", "placed", "cataloged")))
            end = time.monotonic() + WAIT_S
            while job.run().poll() is None or job.run().returncode != 0:
                assert time.monotonic() < end, job.log.read_text()[-4000:]
                time.sleep(0.1)
        finally:
            if job.process is not None:
                kill_tree(job.process)
        result.falls = job.falls
        assert "no difference" in job.log.read_text().splitlines()[-1]
        count(job.lake, result)
    print(json.dumps(dataclasses.asdict(result)), flush=True)  # noqa: T201
    return result


def strike(job: Job, moment: str, rng: random.Random) -> None:
    """Kill the job at a moment of a micro-batch."""
    end = time.monotonic() + WAIT_S
    late = rng.uniform(0, 1.5) if moment == "any" else rng.choice((0, 0, 0.05))
    while not job.is_at(moment):
        assert job.run().poll() != 0, "the job was done before it could be killed"
        assert time.monotonic() < end, job.log.read_text()[-4000:]
        time.sleep(0.002)
    time.sleep(late)
    job.kill()


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
