"""A stream from topic to topic whose driver, tasks and broker are killed; what is left is counted.

The sink writes at least once: a killed micro-batch is written again. Nothing may be lost, and
whatever comes twice has to have the same unique key both times, and no other message's.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from demo.kills import descendants, kill_tree
from demo.servers import free_port, running_process, until_open
from tools.attack.kills import read
from tools.attack.raw import RawClient

from roquet import sync
from roquet.base.errors import RoquetError
from roquet.client import Message, MessageQueue
from roquet.model.topic import TopicConfig
from roquet.spark.cluster.metadata import Metadata
from roquet.spark.options import SourceOptions, Wire
from roquet.spark.reading.batch import BatchReader
from spark_pair import retried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

QUEUES = 4
ROWS_A_BATCH = 1500
WAIT_S = 500.0
FALLS_MAX = 20
SHORT_LIVED = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""The environment of a Spark that will be killed soon: it starts with less work."""

JOB = """
import sys
from pathlib import Path
from demo.job import session
from roquet.spark.once import by_queue

folder, names, delivery = sys.argv[1:4]
spark = session(Path(folder))
wire = {"nameServers": names}
sink = {
    **wire,
    "topic": "Target",
    "delivery": delivery,
    "partitioner": "queue",
    "uniqueKeys": "plan",
    "checkpointLocation": folder + "/checkpoint",
}
rows = (
    spark.readStream.format("roquet").options(**wire, subscribe="Source")
    .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", ROWS).load()
    .select("body", "keys", "queueId")
)
if delivery == "idempotent":
    rows = by_queue(rows, {**sink, "transactionPath": folder + "/checkpoint/roquet-sink"})
rows.writeStream.format("roquet").options(**sink).trigger(availableNow=True).start().awaitTermination()
""".replace("ROWS", str(ROWS_A_BATCH))
HALVES = "RMQ_SYS_TRANS_HALF_TOPIC"


@dataclasses.dataclass
class Result:
    """What a run left behind."""

    kills: int = 0
    between: int = 0
    """Kills between the writing of rows and the commit of their micro-batch or wave."""
    sent: int = 0
    lost: int = 0
    twice: int = 0
    unrecognizable: int = 0
    falls: int = 0
    """Runs that ended with an error by themselves, and were started again."""


class World:
    """Name server and broker as processes, and the job."""

    def __init__(self, folder: Path, delivery: str = "at-least-once") -> None:
        self.folder = folder
        self.delivery = delivery
        self.stack = contextlib.ExitStack()
        self.name_port, self.broker_port = free_port(), free_port()
        self.names = f"127.0.0.1:{self.name_port}"
        self.job: subprocess.Popen[bytes] | None = None
        self.falls = 0
        self.broker: subprocess.Popen[bytes] | None = None
        self.runs = 0
        self.metadata = Metadata(Wire(name_servers=(self.names,), retries=0))

    def start(self) -> None:
        self.stack.enter_context(
            running_process(
                self.folder / "namesrv.log", "namesrv", "--listen-port", str(self.name_port)
            )
        )
        until_open(self.name_port)
        (self.folder / "broker.properties").write_text(
            f"brokerName=b\nlistenPort={self.broker_port}\nbindAddress=127.0.0.1\n"
            f"namesrvAddr={self.names}\nstorePathRootDir={self.folder / 'store'}\n"
            "brokerFastFailureEnable=false\nmappedFileSizeCommitLog=67108864\n"
            "diskMaxUsedSpaceRatio=95\n"
        )
        self.start_broker()

    def start_broker(self) -> None:
        self.runs += 1
        self.broker = self.stack.enter_context(
            running_process(
                self.folder / f"broker-{self.runs}.log",
                *("broker", "-c", str(self.folder / "broker.properties")),
            )
        )
        until_open(self.broker_port)

    def stop(self) -> None:
        if self.job is not None:
            kill_tree(self.job)
        self.metadata.close()
        self.stack.close()

    def fill(self, rows: int) -> None:
        with sync.connect(self.names) as mq:
            for topic in ("Source", "Target"):
                config = TopicConfig(name=topic, read_queues=QUEUES, write_queues=QUEUES)
                retried(functools.partial(mq.admin().topics.put, config), within_s=30)
            with mq.producer("fill") as producer:
                for number in range(QUEUES):
                    queue = MessageQueue("Source", "b", number)
                    bodies = [f"{n}".encode() for n in range(number, rows, QUEUES)]
                    for at in range(0, len(bodies), 500):
                        batch = [Message("Source", body) for body in bodies[at : at + 500]]
                        producer.send_batch("Source", batch, queue=queue)

    # --- the job -----------------------------------------------------------------------------

    def run_job(self) -> subprocess.Popen[bytes]:
        """Return the running job, started anew when it has ended with an error."""
        if self.job is not None and self.job.poll() is not None and self.job.returncode != 0:
            self.falls += 1
            assert self.falls < FALLS_MAX, (self.folder / "job.log").read_text()[-4000:]
            self.job = None
        if self.job is None:
            with (self.folder / "job.log").open("ab") as out:
                self.job = subprocess.Popen(
                    [sys.executable, "-c", JOB, str(self.folder), self.names, self.delivery],
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, **SHORT_LIVED, "DEMO_MASTER": "local[2,4]"},
                )
        return self.job

    def written(self) -> int:
        """Return how many messages the target has, with its half messages; -1: nobody answers."""
        topics = ["Target", HALVES] if self.delivery == "transactional" else ["Target"]
        found = 0
        for topic in topics:
            try:
                offsets = self.metadata.offsets(topic, (f"127.0.0.1:{self.broker_port}",))
            except RoquetError:
                return -1
            found += sum(it.max_offset for it in offsets.values())
        return found

    def latest(self, folder: str) -> int:
        """Return the newest micro-batch that Spark has noted in `offsets` (begun) or `commits`."""
        found = (self.folder / "checkpoint" / folder).glob("[0-9]*")
        return max((int(path.name) for path in found), default=-1)

    def committed(self) -> int:
        """Return the last micro-batch that Spark has noted as done."""
        return self.latest("commits")

    def is_open(self) -> bool:
        """Whether a micro-batch has begun that is not noted as done."""
        return self.latest("offsets") > self.committed()

    def strike(self, what: str) -> None:
        """Kill a part of what runs; `mend` starts the broker again."""
        if what == "broker":
            assert self.broker is not None
            self.broker.kill()
            self.broker.wait()
            return
        job = self.run_job()
        if what == "driver":
            kill_tree(job)
        else:
            for pid in task_workers(job.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def mend(self, what: str) -> None:
        if what == "driver":
            self.job = None
        elif what == "broker":
            self.start_broker()


class Mark:
    """What the target had when the last commit appeared: rows above it are of nothing committed.

    Rows that were written twice count twice in a target, so its length alone tells nothing. What is
    noted may be too high, by rows of the next micro-batch that came before the look; then a kill
    does not count as one between write and commit, though it is.
    """

    def __init__(self, committed: Callable[[], int], written: Callable[[], int]) -> None:
        self._committed = committed
        self._written = written
        self._commit = committed()
        self._noted = max(0, written())
        self._floor = self._noted

    def ahead(self) -> int:
        """Return how many rows are above the mark, and above what there was at the last kill."""
        return self._look() - self._floor

    def struck(self) -> None:
        """Let the next kill wait for rows that are not there yet."""
        self._floor = self._look()

    def is_between(self, kill: Callable[[], None]) -> bool:
        """Kill; return whether rows above the mark were there and nothing was committed since."""
        now, before = self._look(), self._commit
        kill()
        return now > self._noted and self._committed() == before

    def _look(self) -> int:
        commit, now = self._committed(), self._written()
        if now < 0:
            return self._floor
        if commit != self._commit:
            self._commit, self._noted = commit, now
            self._floor = max(self._floor, now)
        return now


def task_workers(root: int) -> list[int]:
    """Return the Python processes of Spark's tasks: those that its daemon has forked."""
    found: list[int] = []
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
            lines = [Path(f"/proc/{it}/cmdline").read_bytes() for it in (str(pid), parent)]
            if all(b"pyspark.daemon" in line for line in lines):
                found.append(pid)
    return found


@contextlib.contextmanager
def world(folder: Path, delivery: str = "at-least-once") -> Iterator[World]:
    found = World(folder, delivery)
    try:
        found.start()
        yield found
    finally:
        found.stop()


def run(folder: Path, kills: Sequence[str], seed: int, delivery: str = "at-least-once") -> Result:
    """Copy a topic through kills, then count. Prints its seed, so that a run can be repeated."""
    rng = random.Random(seed)
    rows = ROWS_A_BATCH * (3 * len(kills) // 2 + 3)
    print(f"{delivery}, seed {seed}: {', '.join(kills)}; {rows} rows", flush=True)  # noqa: T201
    result = Result(sent=rows)
    with world(folder, delivery) as it:
        it.fill(rows)
        mark = Mark(it.committed, it.written)
        for what in kills:
            result.between += strike(it, mark, what, rng)
            result.kills += 1
        end = time.monotonic() + WAIT_S
        while it.run_job().poll() != 0:
            assert time.monotonic() < end, (folder / "job.log").read_text()[-4000:]
            time.sleep(0.1)
        result.falls = it.falls
        count(it, result)
    print(json.dumps(dataclasses.asdict(result)), flush=True)  # noqa: T201
    return result


def strike(it: World, mark: Mark, what: str, rng: random.Random) -> bool:
    """Kill when rows of an open micro-batch are written; return whether that was so to the end."""
    # A row of a transactional write is first a half message, then one that is released.
    high = ROWS_A_BATCH * (5 if it.delivery == "transactional" else 2) // 3
    aim, end = rng.randint(1, high), time.monotonic() + WAIT_S
    while True:
        job = it.run_job()
        assert job.poll() != 0, "the job was done before it could be killed"
        assert time.monotonic() < end, (it.folder / "job.log").read_text()[-4000:]
        if mark.ahead() >= aim and it.is_open() and (what != "worker" or task_workers(job.pid)):
            break
        time.sleep(0.02)
    between = mark.is_between(lambda: it.strike(what))
    it.mend(what)
    mark.struck()
    return between


def seen_from_outside(it: World) -> collections.Counter[int]:
    """Return how often each body is in the target, as a client and reader of their own find it."""
    found: collections.Counter[int] = collections.Counter()
    with RawClient(f"127.0.0.1:{it.broker_port}") as client:
        for number in range(QUEUES):
            for one in read(client, ("Target", number), 0, 0):
                found[int(one.body)] += 1
    return found


def count(it: World, result: Result) -> None:
    given = {"nameServers": it.names, "subscribe": "Target", "columns": "uniqKey,body"}
    reader = BatchReader(SourceOptions.parse(given, streaming=False))
    keys: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for part in reader.partitions():
        for batch in reader.read(part):
            for row in batch.to_pylist():
                keys[int(row["body"])][row["uniqKey"]] += 1
    result.lost = len(set(range(result.sent)) - keys.keys())
    result.twice = sum(sum(found.values()) - 1 for found in keys.values())
    outside = seen_from_outside(it)
    assert outside == {number: found.total() for number, found in keys.items()}
    owners = collections.Counter(key for found in keys.values() for key in found)
    result.unrecognizable = sum(len(found) > 1 for found in keys.values())
    result.unrecognizable += sum(number > 1 for number in owners.values())
