"""What `audit` costs between two stores: seconds of processor time for each GB of log.

`python -m bench.spark.audit [--mb 256] [--body 1024]`. The stores are written by the store itself,
with the same messages; the job is run as from the command line. Its time is that of all its
processes, JVM and workers included: they are adopted by this one when their parents are gone
(Linux).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import weights
from bench.result_files import circumstances
from roquet import roquet_native as native

BATCH = 64
QUEUES = 8
TOPICS = 4


def write(folder: Path, wanted: int, body: int) -> tuple[int, int]:
    """Write a store of so many bytes of bodies; return messages and bytes of its log."""
    store = native.Store.open({"storePathRootDir": str(folder), "mappedFileSizeCommitLog": 1 << 28})
    store.start()
    sent = 0
    content = bytes(range(256)) * (-(-body // 256))
    for turn in range(max(1, wanted // body // BATCH)):
        topic, queue = f"Audit{turn % TOPICS}", turn // TOPICS % QUEUES
        made = [
            (0, content[:body], f"UNIQ_KEY\x01{sent + at:032X}\x02TAGS\x01a\x02".encode())
            for at in range(BATCH)
        ]
        store.put_batch(topic, queue, made)
        sent += BATCH
    end = store.max_physical_offset()
    store.close()
    return sent, end


def audit(folder: Path) -> tuple[float, float, str]:
    """Run the job; return its seconds, those of all its processes, and its last line."""
    words = ["pipeline", "run", "audit", "--out", str(folder / "out")]
    for end in ("left", "right"):
        words += [f"--{end}", f"store:{folder / end}"]
    before, begin = spent(), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "roquet", *words], stdout=subprocess.PIPE, text=True, check=True
    )
    took = time.monotonic() - begin
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return took, spent() - before, done.stdout.splitlines()[-1]


def spent() -> float:
    """Return the processor time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure and print it as JSON."""
    parser = argparse.ArgumentParser(prog="bench.spark.audit", description=__doc__)
    parser.add_argument("--mb", type=int, default=256, help="bodies in each store")
    parser.add_argument("--body", type=int, default=1024, help="bytes of each body")
    given = parser.parse_args()
    weights.adopt()
    about = circumstances("spark-audit", "bench.spark.audit")
    folder = Path(tempfile.mkdtemp(prefix="roquet-bench-audit-"))
    try:
        count, size = write(folder / "left", given.mb << 20, given.body)
        write(folder / "right", given.mb << 20, given.body)
        took, cpu, said = audit(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = {
        **about,
        "messages": count,
        "bytes_each": size,
        "seconds": round(took, 1),
        "cpu_s": round(cpu, 1),
        "cpu_s_per_gb_of_both": round(cpu / (2 * size / 1e9), 1),
        "said": said,
    }
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
