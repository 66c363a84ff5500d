"""Jobs, sources and sink on a Spark cluster whose workers have nothing of the driver's."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from demo.servers import BROKER, servers

from roquet import sync
from roquet.client import Message, MessageQueue, connect
from roquet.spark.options import SourceOptions
from roquet.spark.reading.batch import BatchReader
from spark_cluster import ROOT, standalone

if TYPE_CHECKING:
    from spark_cluster import Standalone

pytestmark = pytest.mark.spark
QUEUES = 4
ROWS, BODIES = 400, 300
JOBS = 11
BEGUN = 10**12
TRACE = (
    ("Pub", 1000, "R", "p", "Source", "A", "a", "k", "h:1", 5, 10, 0, "OID", "true"),
    ("SubBefore", 1100, "R", "c", "r1", "A", 0, "k"),
    ("SubAfter", "r1", "A", 30, "true", "k", 0, 0, "c"),
)
GROUP = "watchers"


def fill(name_servers: str) -> None:
    """Make the topics, and send rows of which a quarter have the body of another one."""
    with sync.connect(name_servers) as mq:
        for topic in ("Source", "Target", "Again"):
            mq.admin().topics.create(topic, queues=QUEUES)
        for topic in ("Traces", "Events", "Changes"):
            mq.admin().topics.create(topic, queues=1)
        with mq.producer("fill") as producer:
            producer.send_batch("Traces", [b"".join(map(traced, TRACE))])
            # Three sessions are over when the fourth begins, hours later.
            events = [{"id": n, "at": BEGUN + 1000 * n} for n in range(3)]
            events.append({"id": 9, "at": BEGUN + 10**7})
            producer.send_batch("Events", [json.dumps(it).encode() for it in events])
            rows = [{"op": "c", "after": {"id": n, "name": "n"}} for n in range(3)]
            changes = [*rows, {"op": "d", "before": {"id": 0}, "after": None}]
            producer.send_batch("Changes", [json.dumps(it).encode() for it in changes])
            for number in range(QUEUES):
                queue = MessageQueue("Source", BROKER, number)
                made = [
                    Message("Source", b"%d" % (n % BODIES)) for n in range(number, ROWS, QUEUES)
                ]
                producer.send_batch("Source", made, queue=queue)


def traced(record: tuple[object, ...]) -> bytes:
    """Return a record as Java's clients write it."""
    return ("\x01".join(map(str, record)) + "\x02").encode()


def bodies(name_servers: str, topic: str) -> list[int]:
    """Return what a topic has."""
    given = {"nameServers": name_servers, "subscribe": topic, "columns": "body"}
    reader = BatchReader(SourceOptions.parse(given, streaming=False))
    rows = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted(int(body) for batch in rows for body in batch.column("body").to_pylist())


async def consume(name_servers: str) -> None:
    """Let a group read all of the source, and leave its offsets."""
    async with (
        connect(name_servers) as mq,
        mq.consumer(GROUP, "Source", start="earliest") as consumer,
    ):
        for number in range(ROWS):
            received = await consumer.receive(120)
            assert received is not None
            received.ack() if number else received.dead_letter()


def rebuilding(rocket: Path, shared: Path) -> list[str]:
    new = ["--store", f"{rocket / 'store'}", "--out", f"{shared}/rebuilt"]
    return [*new, "--mappedFileSizeConsumeQueue", "20000", "--index", "none"]


def queues(store: Path) -> list[bytes]:
    """Return what the queues of the source say."""
    files = (store / f"consumequeue/Source/{n}/{0:020}" for n in range(QUEUES))
    return [path.read_bytes()[: 20 * ROWS // QUEUES] for path in files]


def nothing_is_there(cluster: Standalone) -> None:
    """Look from a worker's place for what belongs to the driver."""
    (cluster.driver / "mine").touch()
    for folder in (cluster.driver, ROOT, Path(sys.prefix)):
        assert any(folder.iterdir())
        # A virtual environment within the project is not even an empty folder.
        seen = cluster.as_worker(f"ls -A {folder}; echo seen")
        assert (seen.returncode, seen.stdout) == (0, "seen\n"), seen
    found = cluster.as_worker(f"{os.path.realpath(sys.executable)} -c 'import roquet'")
    assert "No module named 'roquet'" in found.stderr


def letters_traces_sessions_and_changes(
    cluster: Standalone, archive: Path, name_servers: str, shared: Path
) -> None:
    """Run the jobs that have topics of their own, and the one about what the group gave up."""
    every = ["--nameServers", name_servers]
    told = cluster.job(archive, "dlq", *every, "--groups", GROUP, "--out", f"{shared}/dlq", code=1)
    assert "1 " in told
    told = cluster.job(
        archive, "trace", *every, "--traceTopic", "Traces", "--out", f"{shared}/traces"
    )
    assert list((shared / "traces/sends").glob("*.parquet"))
    told = cluster.job(
        archive,
        "sessionize",
        *[*every, "--subscribe", "Events", "--key", "$.id", "--time", "$.at"],
        *["--gap", "60", "--late", "1", "--out", f"{shared}/sessions"],
    )
    assert "4 messages read, 0 without a key, 3 sessions written" in told
    told = cluster.job(
        archive,
        "cdc",
        *[*every, "--subscribe", "Changes", "--key", "id"],
        *["--columns", "id bigint, name string", "--out", f"{shared}/table"],
    )
    assert "4 messages read, of them 1 deletions, 3 inserts and updates" in told


@pytest.mark.timeout(7000)
def test_jobs_run_where_only_the_archive_is(tmp_path: Path) -> None:
    shared, rocket = tmp_path / "shared", tmp_path / "roquet"
    shared.mkdir()
    rocket.mkdir()
    with standalone(tmp_path / "spark") as cluster:
        nothing_is_there(cluster)
        archive = cluster.driver / "env.tar.gz"
        cluster.run("pipeline", "pack", str(archive))
        with servers(rocket) as it:
            fill(it.name_servers)
            read = ["--nameServers", it.name_servers, "--subscribe", "Source"]
            told = cluster.job(archive, "stats", *read, "--out", f"{shared}/stats")
            assert f"{ROWS} messages" in told
            # Source, state and sink.
            given = ["--key", "bodyCRC", "--topic", "Target", "--checkpoint", f"{shared}/state"]
            told = cluster.job(archive, "dedup", *read, *given)
            assert f"{ROWS} messages read, {ROWS - BODIES} repetitions dropped" in told
            assert bodies(it.name_servers, "Target") == list(range(BODIES))
            told = cluster.job(archive, "archive", *read, "--out", f"{shared}/lake", "--check")
            assert told.splitlines()[-1] == "no difference"
            to = ["--lake", f"{shared}/lake", "--topic", "Again", "--run", "cluster"]
            told = cluster.job(archive, "replay", *read, *to)
            assert f"{ROWS} messages sent in " in told
            assert bodies(it.name_servers, "Again") == sorted(n % BODIES for n in range(ROWS))
            asyncio.run(consume(it.name_servers))
            watch = ["--groups", GROUP, "--samples", "2", "--interval", "1"]
            told = cluster.job(archive, "lag", *read, *watch, "--out", f"{shared}/lag")
            assert f"{GROUP} Source: 0 left" in told
            assert told.splitlines()[-1] == "no alert"
            letters_traces_sessions_and_changes(cluster, archive, it.name_servers, shared)
        # The log of a broker that is no more, beside the lake.
        ends = ["--left", f"store:{rocket / 'store'}", "--right", f"lake:{shared}/lake"]
        scope = ["--subscribe", "Source", "--brokerName", BROKER]
        told = cluster.job(archive, "audit", *ends, *scope, "--out", f"{shared}/audit")
        assert told.count("100 left (0 to 99), 100 right (0 to 99)") == QUEUES
        assert told.splitlines()[-1] == "no difference"
        told = cluster.job(archive, "rebuild", *rebuilding(rocket, shared))
        assert "everything was readable" in told
        assert queues(shared / "rebuilt") == queues(rocket / "store")
        executors = cluster.executors()
    assert len(executors) >= 2 * JOBS
    assert all("Unpacking an archive" in text for text in executors)
