"""Seconds of processor time that the job `archive` needs to stage a million rows.

`python -m bench.spark.staging [--rows 300000] [--runs 3]` stages record batches as a task does:
write them as Parquet, read the file back and compare both by count and checksum. Rows are made
before, so reading from a broker is not in the figure; bodies have 200 bytes, keys 32, and every
column of the source is there. Prints a line of JSON for each run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from roquet.spark.jobs.storage.staging import Form, stage

BATCH: Final = 10_000
"""Rows of a record batch."""
SIZE: Final = 417
"""Bytes of a record in the log, as it is said in the column."""
STORED_US: Final = 1_790_000_000_000_000


def batch(first: int, rng: random.Random) -> Any:
    """Return rows of one queue from an offset on."""
    numbers = range(first, first + BATCH)
    times = pa.array([STORED_US + it * 1000 for it in numbers], pa.timestamp("us", "UTC"))
    pairs = [[("KEYS", f"k{it}"), ("carrier", "UA")] for it in numbers]
    return pa.record_batch(
        {
            "topic": ["Flights"] * BATCH,
            "brokerName": ["b"] * BATCH,
            "queueId": pa.array([3] * BATCH, pa.int32()),
            "queueOffset": pa.array(numbers, pa.int64()),
            "physicalOffset": pa.array([it * SIZE for it in numbers], pa.int64()),
            "storeSize": pa.array([SIZE] * BATCH, pa.int32()),
            "msgId": [f"7F00000100002A9F{it * SIZE:016X}" for it in numbers],
            "uniqKey": [rng.randbytes(16).hex().upper() for _ in numbers],
            "keys": [f"k{it}" for it in numbers],
            "tags": [rng.choice(("JFK", "LGA", "EWR")) for _ in numbers],
            "properties": pa.array(pairs, pa.map_(pa.string(), pa.string())),
            "bornTimestamp": times,
            "storeTimestamp": times,
            "bornHost": ["127.0.0.1:40000"] * BATCH,
            "storeHost": ["127.0.0.1:10911"] * BATCH,
            "reconsumeTimes": pa.array([0] * BATCH, pa.int32()),
            "sysFlag": pa.array([0] * BATCH, pa.int32()),
            "bodyCRC": pa.array([rng.getrandbits(31) for _ in numbers], pa.int32()),
            "body": pa.array([body(it, rng) for it in numbers], pa.binary()),
        }
    )


def body(number: int, rng: random.Random) -> bytes:
    """Return about 200 bytes of JSON, of which 60 random ones are most."""
    fields = {"id": number, "carrier": rng.choice(("UA", "AA")), "note": rng.randbytes(60).hex()}
    return json.dumps({**fields, "dep_delay": rng.randrange(500)}).encode()


def main() -> int:
    """Stage the rows, once a run."""
    parser = argparse.ArgumentParser(prog="bench.spark.staging", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="of a run, to the next 10,000")
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    rng = random.Random(1)
    made = [batch(at, rng) for at in range(0, asked.rows, BATCH)]
    rows = len(made) * BATCH
    for _ in range(asked.runs):
        with tempfile.TemporaryDirectory(prefix="roquet-staging-") as folder:
            begun = time.process_time()
            lines = list(stage(Path(folder), made, Form("zstd", "INT96")))
            took_s = time.process_time() - begun
            size = sum(it.stat().st_size for it in Path(folder).rglob("*.parquet"))
        assert sum(it.rows for it in lines) == rows
        found = {"rows": rows, "cpu_s_a_million": round(took_s / rows * 1e6, 2), "bytes": size}
        print(json.dumps({**found, "load": round(os.getloadavg()[0], 1)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
