"""Kill the job `cdc` at drawn moments while changes are sent, and judge its table from outside.

`python -m tools.spark_kills.changes --each 5` runs `roquet pipeline run cdc` as people do, with an
executor of its own, and kills its driver, its executor, the Python of its tasks and the broker
`--each` times, each after a drawn pause. Meanwhile a producer changes rows of a table. At the end
the job runs once more up to the present: each row that the producer has left has to be there once,
with the last value that was sent, and no other. Of a table of Delta that is read from its log and
its files too (`delta_log.py`). Exit code 1 when that is not so.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from demo.kills import kill_tree

from roquet import sync
from roquet.base.errors import RoquetError
from roquet.base.overriding import override
from roquet.client import Message, MessageQueue
from roquet.model.topic import TopicConfig
from tools.spark_kills import delta_log
from tools.spark_kills.judge import QUEUES
from tools.spark_kills.world import CLUSTER, CONF, SHORT_LIVED, WAIT_S, World, parts

KINDS = ("driver", "executor", "worker", "broker")
TOPIC = "Changes"
KEYS = 400
PAUSE_S = 8.0
"""A kill comes so long after a micro-batch was begun, at most."""
EVERY_S = 0.01
"""Between two changes."""
ROWS_A_BATCH = 300
ROWS_AT_LAST = 100_000
"""Of a micro-batch once nothing is killed any more."""
FALLS_MAX = 40
READ = """
import json, sys
from pyspark.sql import SparkSession
from roquet.spark.jobs import cdc
from roquet.spark.jobs.lake import configuration
builder = SparkSession.builder.master("local[2]")
for key, value in configuration(sys.argv[2]).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
rows = cdc.table(spark, sys.argv[1]).select("id", "n").collect()
print(json.dumps([[it.id, it.n] for it in rows]))
"""


class Producer(threading.Thread):
    """Changes rows of a table, one after the other, through whatever happens to the broker."""

    def __init__(self, names: str, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.names = names
        self.rng = rng
        self.rows: dict[int, int] = {}
        """The table as it is in the database: the last value of each key."""
        self.sent = 0
        self.again = 0
        self.is_done = threading.Event()

    @override
    def run(self) -> None:
        """Send until told to end; each change until it is acknowledged, so one may come twice."""
        with sync.connect(self.names) as mq, mq.producer("database") as producer:
            while not self.is_done.is_set():
                key = self.rng.randrange(KEYS)
                queue = MessageQueue(TOPIC, "b", key % QUEUES)
                self._acknowledged(producer, Message(TOPIC, self._change(key)), queue)
                self.sent += 1
                self.is_done.wait(EVERY_S)

    def _change(self, key: int) -> bytes:
        before = None if key not in self.rows else {"id": key, "n": self.rows[key]}
        after = None
        if before is not None and self.rng.random() < 0.2:
            del self.rows[key]
        else:
            self.rows[key] = self.sent
            after = {"id": key, "n": self.sent}
        op = "d" if after is None else "c" if before is None else "u"
        return json.dumps({"before": before, "after": after, "op": op, "ts_ms": 1}).encode()

    def _acknowledged(self, producer: sync.Producer, message: Message, queue: MessageQueue) -> None:
        while True:
            try:
                producer.send(TOPIC, message.body, queue=queue)
            except RoquetError:
                self.again += 1
                time.sleep(0.05)
            else:
                return


class Changes(World):
    """Name server and broker as processes, and the job `cdc` in the place of the copy."""

    def __init__(self, folder: Path, form: str) -> None:
        super().__init__(folder, master=CLUSTER)
        self.falls: int = 0
        self.form = form
        self.out = folder / "table"
        self.interval, self.rows_a_batch = "1", ROWS_A_BATCH

    @override
    def run_job(self) -> subprocess.Popen[bytes]:
        """Return the running job, started anew when it has ended by itself."""
        if self.job is not None and self.job.poll() is not None:
            self.falls += 1
            assert self.falls < FALLS_MAX, self.told()
            self.job = None
        if self.job is None:
            self.job = self.started()
        return self.job

    def started(self) -> subprocess.Popen[bytes]:
        """Start the job."""
        conf = {**CONF, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
        words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        given = ["--nameServers", self.names, "--subscribe", TOPIC, "--key", "id"]
        given += ["--columns", "id bigint, n bigint", "--out", str(self.out), "--buckets", "3"]
        given += ["--interval", self.interval, "--format", self.form]
        given += ["--maxOffsetsPerTrigger", str(self.rows_a_batch)]
        program = [sys.executable, "-m", "roquet", "pipeline", "run", "--master", self.master]
        with (self.folder / "job.log").open("ab") as out:
            return subprocess.Popen(
                [*program, *words, "cdc", *given],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **SHORT_LIVED},
            )

    @override
    def latest(self, folder: str) -> int:
        """Return the newest micro-batch that Spark has noted in `offsets` or `commits`."""
        found = (self.out / "_checkpoint" / folder).glob("[0-9]*")
        return max((int(path.name) for path in found), default=-1)

    @override
    def written(self) -> int:
        """Return how many changes the topic has; -1: nobody answers."""
        try:
            offsets = self.metadata.offsets(TOPIC, (f"127.0.0.1:{self.broker_port}",))
        except RoquetError:
            return -1
        return sum(it.max_offset for it in offsets.values())

    def strike_at_random(self, what: str, rng: random.Random) -> bool:
        """Kill a part at a drawn moment; return whether a micro-batch was open then."""
        begun, end = self.latest("offsets"), time.monotonic() + WAIT_S
        while self.latest("offsets") == begun or (
            what in {"executor", "worker"} and not parts(what, self.run_job().pid)
        ):
            self.run_job()
            assert time.monotonic() < end, self.told()
            time.sleep(0.02)
        time.sleep(rng.uniform(0, PAUSE_S if what == "driver" else PAUSE_S / 4))
        is_open = self.is_open()
        self.strike(what)
        print(
            f"{time.strftime('%X')} {what} killed, micro-batch {self.latest('offsets')}", flush=True
        )
        self.mend(what)
        return is_open

    def finished(self) -> str:
        """Let the job come to the present, and return what that run said."""
        if self.job is not None:
            kill_tree(self.job)
        self.job, self.interval, self.rows_a_batch = None, "0", ROWS_AT_LAST
        at = (self.folder / "job.log").stat().st_size
        self.job = self.started()
        self.job.wait(WAIT_S)
        assert self.job.returncode == 0, self.told()
        return (self.folder / "job.log").read_bytes()[at:].decode()

    def table(self) -> list[tuple[int, int]]:
        """Return key and value of each row, as a reader of the table finds them.

        Of Delta they have to be those that the table's log says, too, read by nobody's library.
        """
        found = self._by_spark()
        if self.form == "delta":
            outside = [(it["id"], it["n"]) for it in delta_log.current(self.out)]
            if sorted(outside) != sorted(found):
                raise delta_log.LogError(
                    f"Spark has {len(found)} rows, the log {len(outside)}, and they differ"
                )
            print(f"{len(delta_log.versions(self.out))} versions of Delta", flush=True)
        return found

    def _by_spark(self) -> list[tuple[int, int]]:
        env = {**os.environ, **SHORT_LIVED}
        found = subprocess.run(
            [sys.executable, "-c", READ, str(self.out), self.form],
            capture_output=True,
            text=True,
            check=True,
            env=env,
        )
        return [(key, value) for key, value in json.loads(found.stdout.splitlines()[-1])]


def one_round(folder: Path, kills: list[str], seed: int, form: str) -> bool:
    """Keep a table through kills; return whether it is that of the database."""
    rng, begun, between = random.Random(seed), time.monotonic(), 0
    it = Changes(folder, form)
    try:
        it.start()
        with sync.connect(it.names) as mq:
            while not (mq.admin().brokers.cluster()).brokers:
                time.sleep(0.05)
            mq.admin().topics.put(TopicConfig(name=TOPIC, read_queues=QUEUES, write_queues=QUEUES))
        producer = Producer(it.names, random.Random(seed + 1))
        producer.start()
        for what in kills:
            between += it.strike_at_random(what, rng)
        producer.is_done.set()
        producer.join(60)
        assert not producer.is_alive()
        print(it.finished(), flush=True)
        found, falls = it.table(), it.falls
    finally:
        it.stop()
    wanted = producer.rows
    counted = collections.Counter(key for key, _ in found)
    lost = len(wanted.keys() - counted.keys())
    twice = sum(count - 1 for count in counted.values())
    foreign = len(counted.keys() - wanted.keys())
    wrong = sum(key in wanted and wanted[key] != value for key, value in found)
    kinds = ", ".join(f"{kills.count(kind)} of {kind}" for kind in KINDS if kind in kills)
    print(
        f"cdc {form}, seed {seed}: {len(kills)} kills ({kinds}), {between} in an open micro-batch,"
        f" {producer.sent} changes ({producer.again} sent again), {len(wanted)} rows: {lost} lost,"
        f" {twice} twice, {foreign} foreign, {wrong} with another value; started again {falls}"
        f" times after an end; {time.monotonic() - begun:.0f} s, load {os.getloadavg()[0]:.0f}",
        flush=True,
    )
    return not (lost or twice or foreign or wrong)


def main() -> int:
    """Run one round for each format; a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=5, help="kills of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--format", choices=("parquet", "delta"), default="parquet")
    parser.add_argument("--keep", type=Path, help="folder for everything, kept")
    asked = parser.parse_args()
    # Ended by a limit of time, too, it leaves no driver behind: those have sessions of their own.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    kills = list(asked.kinds) * asked.each
    random.Random(asked.seed).shuffle(kills)
    with contextlib.ExitStack() as stack:
        folder = asked.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="roquet-cdc-kills-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        return 0 if one_round(folder, kills, asked.seed, asked.format) else 1


if __name__ == "__main__":
    sys.exit(main())
