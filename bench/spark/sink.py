"""CPU of the Spark sink per million rows: what a task does, without Spark around it.

`python -m bench.spark.sink [--rows 400000] [--runs 3] [--body 417] [--partitioner none]
[--delivery at-least-once transactional idempotent]` starts a broker, hands Arrow batches of 10,000
rows (Spark's own size) to the function that a task calls, then calls what the driver does at the
commit, and prints seconds of CPU of this process and of the broker, and rows per second. Several
deliveries take turns within a run. An idempotent write gets rows that are by queue already: Spark's
shuffle is not in it, sorting within the task is.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench import processes
from bench.spark.sources import QUIET, name_server
from roquet.spark.option_table import DELIVERIES
from roquet.spark.options import SinkOptions
from roquet.spark.sink.decisions import Decisions
from roquet.spark.sink.epochs import Begun
from roquet.spark.sink.release import commit
from roquet.spark.sink.sequenced import Epoch, check_ends
from roquet.spark.sink.write import Written, write, write_once

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "BenchSink"
BATCH_ROWS = 10_000
QUEUES = 8
_RUNS = itertools.count()


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


def placed(made: list[Any], broker: str) -> list[Any]:
    """Return the batches with the columns that say which queue a row goes to."""
    found: list[Any] = []
    for batch in made:
        rows = batch.num_rows
        queues = pa.array((n % QUEUES for n in range(rows)), pa.int32(), size=rows)
        with_broker = batch.append_column("brokerName", pa.array([broker] * rows))
        found.append(with_broker.append_column("queueId", queues))
    return found


def deliver(options: SinkOptions, rows: Iterator[Any], run: str) -> Written:
    """Do what a task does, and what the driver does when it commits."""
    if options.idempotent:
        begun = Begun(-1, 0, time.time_ns() // 1_000_000)
        done = write_once(options, rows, begun, run)
        asyncio.run(check_ends(options, Epoch(run, 0, begun.of(0)), done.ends))
        return done
    done = write(options, rows, f"{run}/0/")
    if options.transactional:
        commit(options, Decisions(options.transaction_path or "", run), 0, done.halves)
    return done


def measure(given: dict[str, str], made: list[Any], broker: processes.Broker) -> dict[str, float]:
    """Write the batches once; returns seconds of CPU per million rows, and rows per second."""

    def lent() -> Iterator[Any]:
        yield from made

    run = f"run-{next(_RUNS)}"
    before, begun, mine = broker.cpu_s(), time.monotonic(), time.process_time()
    written = deliver(SinkOptions.parse({**given, "runId": run}), lent(), run)
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
    parser.add_argument("--delivery", nargs="+", choices=DELIVERIES, default=[DELIVERIES[0]])
    asked = parser.parse_args()
    made = batches(asked.rows, asked.body)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in asked.delivery}
    with (
        tempfile.TemporaryDirectory(prefix="roquet-bench-") as temporary,
        processes.start("roquet", "async", Path(temporary), QUIET) as broker,
    ):
        broker.create_topic(TOPIC, QUEUES)
        processes.wait_for_send(broker, TOPIC)
        given = {"nameServers": name_server(broker), "topic": TOPIC}
        given |= {"partitioner": asked.partitioner, "transactionPath": temporary}
        by_queue = placed(made, f"bench-{broker.kind}")
        for _ in range(asked.runs + 1):
            for name, runs in found.items():
                rows = by_queue if name == "idempotent" else made
                runs.append(measure({**given, "delivery": name}, rows, broker))
    for name, runs in found.items():
        # The first of each warms up.
        tell(name, runs[1:])
    return 0


def tell(delivery: str, runs: list[dict[str, float]]) -> None:
    """Print the medians of a delivery, with the least and the most."""
    for name in runs[0]:
        values = [it[name] for it in runs]
        text = f"{statistics.median(values):,.1f} ({min(values):,.1f} to {max(values):,.1f})"
        unit = "rows/s" if name == "rows_per_s" else "s of CPU per million rows"
        print(f"{delivery}: {name}: {text} {unit}")


if __name__ == "__main__":
    raise SystemExit(main())
