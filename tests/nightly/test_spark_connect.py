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
    for topic in ("Orders", "Copied", "Streamed"):
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
        lake = str(tmp_path / "lake")
        refused = server.client(*job, "archive", *given, lake, code=2, remote=server.url)
        conf = ("--conf", "spark.executor.memory=1g")
        fixed = server.client(*master, *conf, "stats", *given, lake, code=2)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["session"].startswith("pyspark.sql.connect.")
    for topic in ("Orders", "Copied", "Streamed"):
        assert found[topic] == list(range(COUNT)), topic
    assert found["lines"] == [f"{COUNT} messages counted"]
    assert found["topics"] == ["Orders", COUNT, 2]
    assert (tmp_path / "out" / "report.html").stat().st_size > 1000
    assert f"{COUNT} messages counted" in told.stdout.splitlines()
    assert set(found["refusals"]) == {"archive", "rebuild", "replay"}
    for name, text in found["refusals"].items():
        assert text.startswith(f"the job {name} cannot run over Spark Connect"), text
        assert "\n" not in text
    for answer, start in ((refused, "the job archive"), (fixed, "spark.executor.memory")):
        (line,) = [it for it in answer.stderr.splitlines() if start in it]
        assert "over Spark Connect" in line
        assert "Traceback" not in answer.stderr
    assert not (tmp_path / "lake").exists()
