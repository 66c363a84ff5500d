"""A stream from topic to topic whose driver, tasks, executor and broker are killed, and counted.

A sink that writes at least once repeats a killed micro-batch: nothing may be lost, and whatever
comes twice has to have the same unique key both times, and no other message's. One that writes once
may double nothing.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from demo.kills import descendants, kill_tree
from demo.servers import running_process, until_open, until_registered

from roquet import sync
from roquet.base.errors import RoquetError
from roquet.client import Message, MessageQueue
from roquet.model.topic import TopicConfig
from roquet.spark.cluster.metadata import Metadata
from roquet.spark.options import SourceOptions, Wire
from roquet.spark.reading.batch import BatchReader
from roquet.testing.java import free_port
from tools.spark_kills import judge
from tools.spark_kills.judge import QUEUES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROWS_A_BATCH = 1500
MORE_BATCHES = 4
"""What a source gets that was copied before all kills were made."""
WAIT_S = 500.0
LOCAL = "local[2,4]"
CLUSTER = "local-cluster[1,2,768]"
"""An executor that is a process of its own, in a cluster within the driver."""
FALLS_MAX = 20
SHORT_LIVED = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""The environment of a Spark that will be killed soon: it starts with less work."""
CONF = {
    "spark.executor.memory": "640m",
    "spark.task.maxFailures": "1000",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.python.authenticate.socketTimeout": "120s",
}
"""Executors that are killed again and again are no reason to give up a job."""

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

    def __init__(self, folder: Path, delivery: str = "at-least-once", master: str = LOCAL) -> None:
        self.folder = folder
        self.delivery = delivery
        self.master = master
        self.stack = contextlib.ExitStack()
        self.name_port, self.broker_port = free_port(), free_port()
        self.names = f"127.0.0.1:{self.name_port}"
        self.job: subprocess.Popen[bytes] | None = None
        self.falls = 0
        self.broker: subprocess.Popen[bytes] | None = None
        self.runs = 0
        self.rows = 0
        """Numbers that are in the source."""
        self.begun = time.time()
        self.metadata = Metadata(Wire(name_servers=(self.names,), retries=0))

    def start(self) -> None:
        """Start both servers."""
        self.stack.enter_context(
            running_process(
                self.folder / "namesrv.log", "namesrv", "--listen-port", str(self.name_port)
            )
        )
        until_open(self.name_port)
        (self.folder / "broker.properties").write_text(
            f"brokerName=b\nlistenPort={self.broker_port}\nbindAddress=127.0.0.1\n"
            f"namesrvAddr={self.names}\nstorePathRootDir={self.folder / 'store'}\n"
            "brokerFastFailureEnable=false\nwaitTimeMillsInSendQueue=60000\nmappedFileSizeCommitLog=67108864\n"
            "diskMaxUsedSpaceRatio=95\n"
        )
        self.start_broker()

    def start_broker(self) -> None:
        """Start the broker, anew after a kill."""
        self.runs += 1
        self.broker = self.stack.enter_context(
            running_process(
                self.folder / f"broker-{self.runs}.log",
                *("broker", "-c", str(self.folder / "broker.properties")),
            )
        )
        until_open(self.broker_port)

    def stop(self) -> None:
        """End all that runs."""
        if self.job is not None:
            kill_tree(self.job)
        self.metadata.close()
        self.stack.close()
        # A cluster within the driver leaves what it gave its executors with Spark itself.
        # Those of another world are in use: executors without their folder fail every task.
        used = used_folders()
        for path in (Path(pyspark.__file__).parent / "work").glob("app-*"):
            if path.stat().st_mtime >= self.begun and not any(path in it.parents for it in used):
                shutil.rmtree(path, ignore_errors=True)

    def fill(self, rows: int) -> None:
        """Make both topics, and put the numbers below `rows` into the first."""
        with sync.connect(self.names) as mq:
            until_registered(mq)
            for topic in ("Source", "Target"):
                config = TopicConfig(name=topic, read_queues=QUEUES, write_queues=QUEUES)
                mq.admin().topics.put(config)
        self.add(rows)

    def add(self, rows: int) -> None:
        """Put as many more numbers into the source."""
        first, self.rows = self.rows, self.rows + rows
        with sync.connect(self.names) as mq, mq.producer("fill") as producer:
            for number in range(QUEUES):
                queue = MessageQueue("Source", "b", number)
                bodies = [f"{n}".encode() for n in range(first + number, self.rows, QUEUES)]
                for at in range(0, len(bodies), 500):
                    batch = [Message("Source", body) for body in bodies[at : at + 500]]
                    producer.send_batch("Source", batch, queue=queue)

    # --- the job -----------------------------------------------------------------------------

    def run_job(self) -> subprocess.Popen[bytes]:
        """Return the running job, started anew when it has ended with an error."""
        if self.job is not None and self.job.poll() is not None and self.job.returncode != 0:
            self.falls += 1
            assert self.falls < FALLS_MAX, self.told()
            self.job = None
        if self.job is None:
            with (self.folder / "job.log").open("ab") as out:
                self.job = subprocess.Popen(
                    [sys.executable, "-c", JOB, str(self.folder), self.names, self.delivery],
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, **SHORT_LIVED, **self._spark()},
                )
        return self.job

    def told(self) -> str:
        """Return the end of the job's log."""
        return (self.folder / "job.log").read_text()[-4000:]

    def _spark(self) -> dict[str, str]:
        if self.master == LOCAL:
            return {"DEMO_MASTER": LOCAL}
        given = " ".join(f"--conf {name}={value}" for name, value in CONF.items())
        return {"DEMO_MASTER": self.master, "PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell"}

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
            for pid in parts(what, job.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def mend(self, what: str) -> None:
        """Start what was struck, as far as nothing else does."""
        if what == "driver":
            self.job = None
        elif what == "broker":
            self.start_broker()
            # What is there is counted before the next kill is drawn: it needs rows above that.
            end = time.monotonic() + WAIT_S
            while self.written() < 0:
                assert time.monotonic() < end, "the broker does not answer after its restart"
                time.sleep(0.02)


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


def used_folders() -> set[Path]:
    """Return the folders that processes work in."""
    found: set[Path] = set()
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            found.add(link.readlink())
    return found


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


def executors(root: int) -> list[int]:
    """Return the executors of a cluster within the driver, processes of their own."""
    found: list[int] = []
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"CoarseGrainedExecutorBackend" in line:
                found.append(pid)
    return found


def parts(what: str, root: int) -> list[int]:
    """Return the processes below a driver that a kind of kill strikes."""
    return executors(root) if what == "executor" else task_workers(root)


@contextlib.contextmanager
def world(folder: Path, delivery: str = "at-least-once", master: str = LOCAL) -> Iterator[World]:
    """Run a world for the length of a block."""
    found = World(folder, delivery, master)
    try:
        found.start()
        yield found
    finally:
        found.stop()


def run(folder: Path, kills: Sequence[str], seed: int, delivery: str = "at-least-once") -> Result:
    """Copy a topic through kills, then count. Prints its seed, so that a run can be repeated.

    A kill is that of the `driver`, the Python of all tasks (`worker`), the `executor` or the
    `broker`.
    """
    rng = random.Random(seed)
    print(f"{delivery}, seed {seed}: {', '.join(kills)}", flush=True)
    result = Result()
    with world(folder, delivery, CLUSTER if "executor" in kills else LOCAL) as it:
        it.fill(rows_for(kills))
        mark = Mark(it.committed, it.written)
        for what in kills:
            result.between += strike(it, mark, what, rng)
            result.kills += 1
        finish(it)
        result.falls, result.sent = it.falls, it.rows
        count(it, result)
    print(json.dumps(dataclasses.asdict(result)), flush=True)
    return result


def rows_for(kills: Sequence[str]) -> int:
    """Return how many rows kills need, about: a micro-batch has one or two; `strike` adds some."""
    return ROWS_A_BATCH * (2 * len(kills) // 3 + 3)


def finish(it: World) -> None:
    """Let the job come to its end, started again after errors."""
    end = time.monotonic() + WAIT_S
    while it.run_job().poll() != 0:
        assert time.monotonic() < end, it.told()
        time.sleep(0.1)


def strike(it: World, mark: Mark, what: str, rng: random.Random) -> bool:
    """Kill when rows of an open micro-batch are written; return whether that was so to the end."""
    # A row of a transactional write is first a half message, then one that is released.
    high = ROWS_A_BATCH * (5 if it.delivery == "transactional" else 2) // 3
    aim, end = rng.randint(1, high), time.monotonic() + WAIT_S
    while True:
        job = it.run_job()
        assert time.monotonic() < end, it.told()
        if job.poll() == 0:
            # It has copied all that there was: the next run has a kill to wait for, too.
            it.add(ROWS_A_BATCH * MORE_BATCHES)
            it.job = None
            continue
        if (
            mark.ahead() >= aim
            and it.is_open()
            and (what in {"driver", "broker"} or parts(what, job.pid))
        ):
            break
        time.sleep(0.02)
    between = mark.is_between(lambda: it.strike(what))
    it.mend(what)
    mark.struck()
    return between


def count(it: World, result: Result) -> None:
    """Count by the product's reader, and hold that against what is seen from outside."""
    given = {"nameServers": it.names, "subscribe": "Target", "columns": "uniqKey,body"}
    reader = BatchReader(SourceOptions.parse(given, streaming=False))
    keys: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for part in reader.partitions():
        for batch in reader.read(part):
            for row in batch.to_pylist():
                keys[int(row["body"])][row["uniqKey"]] += 1
    result.lost = len(set(range(result.sent)) - keys.keys())
    result.twice = sum(sum(found.values()) - 1 for found in keys.values())
    outside = judge.seen(f"127.0.0.1:{it.broker_port}", "Target")
    assert outside == {number: found.total() for number, found in keys.items()}
    owners = collections.Counter(key for found in keys.values() for key in found)
    result.unrecognizable = sum(len(found) > 1 for found in keys.values())
    result.unrecognizable += sum(number > 1 for number in owners.values())
