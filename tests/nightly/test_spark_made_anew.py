"""Topics made anew, or deleted, while jobs read them, in real Spark."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from roquet.client import Message
from roquet.protocol import names
from roquet.spark.jobs import audit, dlq, stats, trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from roquet.spark.jobs.shared.report import Report
    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]
_numbers = itertools.count()


@pytest.mark.parametrize("longer", [True, False])
@pytest.mark.parametrize("job", ["stats", "trace", "dlq", "audit"])
def test_a_topic_made_anew_under_a_job_is_named_by_its_report(
    spark: SparkSession, running: Running, tmp_path: Path, job: str, longer: bool
) -> None:
    number = next(_numbers)
    topic = names.dlq_topic(f"Anew{number}") if job == "dlq" else f"Anew{number}"

    def fill(count: int) -> None:
        running.create_topic(topic, 1)
        running.send(topic, [Message(topic, b"x", keys=("k",)) for _ in range(count)], 0)

    fill(20)
    said: list[str] = []

    def say(line: str) -> None:
        if not said:
            # The job has begun to read, and is far from its end.
            running.delete_topic(topic)
            if longer:
                fill(30)
        said.append(line)

    given = {"nameServers": running.name_servers, "out": str(tmp_path / "out")}
    end = f"topic:{running.name_servers}"
    if job == "audit":
        del given["nameServers"]
    more: dict[str, tuple[Callable[..., Report], dict[str, str]]] = {
        "stats": (stats.run, {"subscribe": topic}),
        "trace": (trace.run, {"traceTopic": topic}),
        "audit": (audit.run, {"left": end, "right": end, "subscribe": topic}),
        "dlq": (dlq.run, {"groups": f"Anew{number}"}),
    }
    run, options = more[job]
    report = run(spark, {**given, **options}, say)
    assert report.exit_code == 1
    (line,) = [it for it in report.lines if f"topic {topic} is not the one any more" in it]
    assert ("made anew" in line) == longer
    assert line.endswith("it was deleted)") != longer
