"""Source, sink, a stream and jobs over Spark Connect: the client has no JVM and no context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roquet.client import Message
from spark_connect import connect_server

if TYPE_CHECKING:
    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
CLIENT = str(Path(__file__).parents[1] / "spark_connect_client.py")
COUNT = 60


def test_source_sink_stream_and_jobs_run_over_spark_connect(
    running: Running, tmp_path: Path
) -> None:
    for topic in ("Orders", "Copied", "Streamed", "Replayed"):
        running.create_topic(topic, 2)
    for queue in range(2):
        numbers = range(queue, COUNT, 2)
        running.send("Orders", [Message("Orders", f"{n}".encode(), "t") for n in numbers], queue)
    with connect_server(tmp_path / "server") as server:
        done = server.client(CLIENT, server.url, running.name_servers, str(tmp_path))
        job = ("-m", "roquet", "pipeline", "run")
        given = ("--nameServers", running.name_servers, "--subscribe", "Orders", "--out")
        master = (*job, "--master", server.url)
        told = server.client(*master, "stats", *given, str(tmp_path / "told"))
        lake = str(tmp_path / "lake2")
        archived = server.client(*master, "archive", *given, lake)
        endless = ("--interval", "5")
        refused = server.client(*job, "archive", *given, lake, *endless, code=2, remote=server.url)
        conf = ("--conf", "spark.executor.memory=1g")
        fixed = server.client(*master, *conf, "stats", *given, lake, code=2)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["session"].startswith("pyspark.sql.connect.")
    for topic in ("Orders", "Copied", "Streamed", "Replayed"):
        assert found[topic] == list(range(COUNT)), topic
    assert found["lines"] == [f"{COUNT} messages counted"]
    assert found["topics"] == ["Orders", COUNT, 2]
    assert (tmp_path / "out" / "report.html").stat().st_size > 1000
    assert f"{COUNT} messages counted" in told.stdout.splitlines()
    assert f"{COUNT} messages archived in 1 micro-batches" in archived.stdout.splitlines()
    kept = found["lake"]
    # Bodies are numbers, and no objects.
    assert kept["kept"] == list(range(COUNT))
    assert kept["bad"] == COUNT
    assert kept["archived"] == [
        f"{COUNT} messages archived in 3 micro-batches",
        "0 messages archived in 0 micro-batches",
        "3 parts merged into 1",
        "no difference",
    ]
    assert [it[0] for it in kept["sent"]] == [
        f"{COUNT} messages sent in 2 waves",
        "0 messages sent in 0 waves",
    ]
    assert "schema 2 of the lake: value.a was int and is bigint; value.b int is new" in kept["said"]
    assert set(found["refusals"]) == {"cdc", "dedup", "rebuild", "sessionize"}
    for name, text in found["refusals"].items():
        assert text.startswith(f"the job {name} cannot run over Spark Connect"), text
        assert "\n" not in text
    for answer, start in (
        (refused, "over Spark Connect archive has"),
        (fixed, "spark.executor.memory"),
    ):
        (line,) = [it for it in answer.stderr.splitlines() if start in it]
        assert "over Spark Connect" in line
        assert "Traceback" not in answer.stderr
