"""A client of Spark Connect; prints what it found. Arguments: URL, name servers, folder.

It is a program of its own because one process has either a Spark of its own or Spark Connect.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from roquet.base.errors import UsageError
from roquet.spark.jobs import archive, cdc, dedup, rebuild, replay, sessionize, stats
from roquet.spark.jobs.archiving import quarantine
from roquet.spark.jobs.lake import Lake
from roquet.spark.source import register

STREAM_S: Final = 300


def bodies(spark: Any, servers: str, topic: str) -> list[int]:
    """Return the numbers that a topic's messages have as bodies, in order."""
    reader = spark.read.format("roquet").options(nameServers=servers, subscribe=topic)
    return sorted(int(bytes(row.body)) for row in reader.load().select("body").collect())


def stream(spark: Any, servers: str, topic: str, checkpoint: str) -> None:
    """Copy what `Orders` has now to a topic. Raises TimeoutError."""
    reader = spark.readStream.format("roquet").options(nameServers=servers, subscribe="Orders")
    rows = reader.option("startingOffsets", "earliest").load().select("body", "tags")
    writer = rows.writeStream.format("roquet").options(nameServers=servers, topic=topic)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    if not query.awaitTermination(STREAM_S):
        query.stop()
        raise TimeoutError(f"the stream to {topic} did not end within {STREAM_S} s")
    if (failure := query.exception()) is not None:
        raise failure


def refusals(spark: Any, servers: str, folder: Path) -> dict[str, str]:
    """Return what each job says that needs a JVM."""
    topics = {"nameServers": servers, "subscribe": "Orders"}
    table = {**topics, "key": "id", "columns": "id bigint", "out": str(folder / "table")}
    given: dict[str, tuple[Any, dict[str, str]]] = {
        "cdc": (cdc, table),
        "dedup": (dedup, {**topics, "out": str(folder / "once")}),
        "sessionize": (sessionize, {**topics, "out": str(folder / "sessions")}),
        "rebuild": (rebuild, {"store": str(folder / "store"), "out": str(folder / "rebuilt")}),
    }
    found: dict[str, str] = {}
    for name, (job, options) in given.items():
        try:
            job.run(spark, options, _say)
        except UsageError as error:
            found[name] = str(error)
    return found


def lake(spark: Any, servers: str, folder: Path) -> dict[str, object]:
    """Archive a topic in parts and with a newer schema, look after the lake, and replay it."""
    out = str(folder / "lake")
    given = {"nameServers": servers, "subscribe": "Orders", "out": out, "body": "json"}
    said: list[str] = []
    first = archive.run(
        spark, {**given, "schema": "a int", "maxOffsetsPerTrigger": "25"}, said.append
    )
    again = archive.run(spark, {**given, "schema": "a bigint, b int"}, said.append)
    done = archive.run(spark, {"out": out, "compact": "true", "check": "true"}, said.append)
    kept = Lake(spark, out, "parquet")
    rows = kept.read().select("body").collect()
    bad = quarantine.read(kept).count()
    to = {"lake": out, "nameServers": servers, "topic": "Replayed", "run": "one", "waveRows": "40"}
    sent = [replay.run(spark, to, said.append).lines for _ in range(2)]
    return {
        "archived": [first.lines[0], again.lines[0], *done.lines],
        "kept": sorted(int(bytes(row.body)) for row in rows),
        "bad": bad,
        "sent": sent,
        "said": said,
    }


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main(url: str, servers: str, folder: Path) -> None:
    spark: Any = SparkSession.builder.remote(url).getOrCreate()
    try:
        register(spark)
        found: dict[str, object] = {"session": type(spark).__module__}
        found["Orders"] = bodies(spark, servers, "Orders")
        rows = spark.read.format("roquet").options(nameServers=servers, subscribe="Orders").load()
        writer = rows.select("body", "tags").write.format("roquet").mode("append")
        writer.options(nameServers=servers, topic="Copied").save()
        found["Copied"] = bodies(spark, servers, "Copied")
        stream(spark, servers, "Streamed", str(folder / "checkpoint"))
        found["Streamed"] = bodies(spark, servers, "Streamed")
        out = str(folder / "out")
        options = {"nameServers": servers, "subscribe": "Orders", "out": out}
        found["lines"] = stats.run(spark, options, _say).lines
        (topic,) = spark.read.parquet(f"{out}/topics").collect()
        found["topics"] = (topic.topic, topic.messages, topic.queues)
        found["lake"] = lake(spark, servers, folder)
        found["Replayed"] = bodies(spark, servers, "Replayed")
        found["refusals"] = refusals(spark, servers, folder)
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
