"""CPU of the Spark sink per million rows: what a task does, without Spark around it.

`python -m bench.spark.sink [--rows 400000] [--runs 3] [--body 417] [--partitioner none]` starts a
broker, hands Arrow batches of 10,000 rows (Spark's own size) to the function that a task calls, and
prints seconds of CPU of this process and of the broker, and rows per second.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench import processes
from bench.spark.sources import QUIET, name_server
from roquet.spark.options import SinkOptions
from roquet.spark.sink.write import write

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "BenchSink"
BATCH_ROWS = 10_000


def batches(rows: int, size: int) -> list[Any]:
    """Return Arrow batches with a body, a key, a tag and two properties in each row."""
    found: list[Any] = []
    kinds = pa.map_(pa.string(), pa.string())
    for begin in range(0, rows, BATCH_ROWS):
        numbers = range(begin, min(rows, begin + BATCH_ROWS))
        found.append(
            pa.RecordBatch.from_pydict(
                {
                    "body": pa.array([b"%d " % n + bytes(size - 1 - len(str(n))) for n in numbers]),
                    "keys": pa.array([f"order-{n}" for n in numbers]),
                    "tags": pa.array(["even" if n % 2 == 0 else "odd" for n in numbers]),
                    "properties": pa.array(
                        [[("n", str(n)), ("source", "bench")] for n in numbers], type=kinds
                    ),
                }
            )
        )
    return found


def measure(given: dict[str, str], made: list[Any], broker: processes.Broker) -> dict[str, float]:
    """Write the batches once; returns seconds of CPU per million rows, and rows per second."""

    def lent() -> Iterator[Any]:
        yield from made

    before, begun, mine = broker.cpu_s(), time.monotonic(), time.process_time()
    written = write(SinkOptions.parse(given), lent())
    used, took = time.process_time() - mine, time.monotonic() - begun
    broker.settle()
    millions = written.rows / 1e6
    return {
        "task": used / millions,
        "broker": (broker.cpu_s() - before) / millions,
        "rows_per_s": written.rows / took,
    }


def main() -> int:
    """Print the medians of some runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--body", type=int, default=417, help="bytes of a body")
    parser.add_argument("--partitioner", default="none")
    asked = parser.parse_args()
    made = batches(asked.rows, asked.body)
    with (
        tempfile.TemporaryDirectory(prefix="roquet-bench-") as temporary,
        processes.start("roquet", "async", Path(temporary), QUIET) as broker,
    ):
        broker.create_topic(TOPIC, 8)
        processes.wait_for_send(broker, TOPIC)
        given = {"nameServers": name_server(broker), "topic": TOPIC}
        given["partitioner"] = asked.partitioner
        found = [measure(given, made, broker) for _ in range(asked.runs + 1)][1:]
    for name in found[0]:
        values = [it[name] for it in found]
        text = f"{statistics.median(values):,.1f} ({min(values):,.1f} to {max(values):,.1f})"
        unit = "rows/s" if name == "rows_per_s" else "s of CPU per million rows"
        print(f"{name}: {text} {unit}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
