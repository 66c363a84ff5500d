"""Timer messages beside Java: sent and fired, many due in one second, and many that wait.

`python -m bench.timers [--only spread,burst,pending] [--kinds roquet,java] [--pending 1000000]`

* spread: messages due within the next 60 s; CPU counts until the last of them is delivered;
* burst: 50,000 due at the same moment, hence in one step of the wheel; how long it takes from the
  first to the last delivery, and what the sends of another connection take meanwhile and before;
* pending: so many wait for hours; memory, lateness of a few that are due meanwhile, and how long
  the broker takes to serve again after a stop and after kill -9.

Lateness is the store time of the delivered copy less the time that was asked for: below zero would
be early. Messages that wait have bodies of 16 bytes; each needs some 400 bytes of disk.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import checks, processes
from bench.result_files import circumstances, save
from bench.run import LOADGEN
from roquet.protocol import properties as props
from roquet.store.records import read_records
from roquet.testing.cluster import pull_command

if TYPE_CHECKING:
    from bench.processes import Broker

TOPIC, OTHER, FAR = "TimerBench", "TimerBeside", "TimerFar"
QUEUES = 4
CONFIG = ("timerWheelEnable=true", "timerMaxDelaySec=604800", "brokerFastFailureEnable=false")
SPREAD, SPREAD_MS = 100_000, 60_000
BURST = 50_000
BURST_AFTER_S = 20
BESIDE_RATE = 1_000
BESIDE_S = 8
SOON, SOON_MS = 10_000, 10_000
FAR_FROM_MS, FAR_MS = 3_600_000, 80_000_000
SEND_LIMIT_S = 3_600
Figures = dict[str, float]


def now_ms() -> int:
    """Return the time, Unix milliseconds."""
    return time.time_ns() // 1_000_000


def command(broker: Broker, topic: str, **options: int | str) -> list[str]:
    """Return the load generator's command line for sends."""
    found = [str(LOADGEN), "send", broker.address, topic, "--queues", str(QUEUES)]
    for name, value in options.items():
        found += ["--" + name.replace("_", "-"), str(value)]
    return found


def load(broker: Broker, topic: str, **options: int | str) -> Figures:
    """Send, and return what the load generator counted. Raises RuntimeError for a refused send."""
    done = subprocess.run(
        command(broker, topic, **options), capture_output=True, text=True, check=False
    )
    return read(done.stdout, done.stderr)


def read(out: str, error: str) -> Figures:
    """Return what a load generator printed. Raises RuntimeError for a refused send."""
    figures: Figures = json.loads(out) if out else {"errors": math.nan}
    if figures["errors"]:
        raise RuntimeError(f"sends failed: {out} {error}")
    return figures


def lateness(broker: Broker, topic: str, begin: checks.Ends) -> tuple[list[int], int, int]:
    """Read what was delivered: sorted milliseconds after the time asked for, first and last ms."""
    late: list[int] = []
    stored: list[int] = []
    with broker.connect() as connection:
        for (_, queue_id), last in checks.ends(broker, [topic], QUEUES).items():
            at = begin[topic, queue_id]
            while at < last:
                answer = connection.call(pull_command(topic, at, queueId=str(queue_id)), timeout=30)
                for record in read_records(answer.body):
                    asked = int(props.read(record.properties)[props.TIMER_DELIVER_MS])
                    late.append(record.store_timestamp - asked)
                    stored.append(record.store_timestamp)
                    at = record.queue_offset + 1
    return sorted(late), min(stored), max(stored)


def lateness_figures(late: list[int]) -> Figures:
    """Return the least, the middle, the 99.9th of a hundred and the largest of sorted numbers."""
    place = max(0, math.ceil(len(late) * 0.999) - 1)
    return {
        "earliest_ms": late[0],
        "late_p50_ms": statistics.median(late),
        "late_p999_ms": late[place],
        "late_max_ms": late[-1],
    }


def spread(broker: Broker) -> Figures:
    """Send messages due within the next minute; CPU until all of them are delivered."""
    begin = checks.ends(broker, [TOPIC], QUEUES)
    before = broker.cpu_s()
    options = {"size": 1024, "conns": 4, "depth": 8, "timer_within": SPREAD_MS}
    sent = load(broker, TOPIC, messages=SPREAD, secs=SEND_LIMIT_S, **options)
    checks.wait_for(broker, begin, SPREAD, limit_s=SPREAD_MS / 1000 + 120)
    broker.settle()
    cpu_us = (broker.cpu_s() - before) * 1e6 / SPREAD
    late, _, _ = lateness(broker, TOPIC, begin)
    return {
        "sends_per_second": sent["per_second"],
        "cpu_us": cpu_us,
        **lateness_figures(late),
    }


def burst(broker: Broker) -> Figures:
    """Have many due at one moment, and send beside them."""
    begin = checks.ends(broker, [TOPIC], QUEUES)
    due_ms = (now_ms() // 1000 + BURST_AFTER_S) * 1000
    # Not over the second: a broker would have to wait for what is due at its end.
    when = {"timer_from": due_ms, "timer_within": 1}
    shape = {"size": 1024, "conns": 4, "depth": 8}
    load(broker, TOPIC, messages=BURST, secs=SEND_LIMIT_S, **shape, **when)
    # What the sends alone cost, well before the messages are due.
    beside = {"size": 1024, "conns": 1, "rate": BESIDE_RATE}
    idle = load(broker, OTHER, secs=5, **beside)
    if now_ms() > due_ms:
        raise RuntimeError("sending took longer than BURST_AFTER_S")
    time.sleep(max(0.0, (due_ms - now_ms()) / 1000 - 0.5))
    before = broker.cpu_s()
    sender = command(broker, OTHER, secs=BESIDE_S, **beside)
    done = subprocess.Popen(sender, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    checks.wait_for(broker, begin, BURST)
    busy = read(*done.communicate())
    cpu_s = broker.cpu_s() - before
    late, first_ms, last_ms = lateness(broker, TOPIC, begin)
    seconds = max(1, last_ms - first_ms) / 1000
    return {
        "drained_per_second": BURST / seconds,
        "drain_s": seconds,
        "cpu_s_of_drain_and_sends": cpu_s,
        "idle_send_p99_us": idle["p99_us"],
        "send_p99_us": busy["p99_us"],
        **lateness_figures(late),
    }


def pending(broker: Broker, count: int) -> tuple[Broker, Figures]:
    """Let so many wait; returns the broker, which was started again, and the figures."""
    empty = broker.memory_mib()
    soon = {"size": 16, "conns": 4, "depth": 8}
    before = broker.cpu_s()
    when = {"timer_from": now_ms() + FAR_FROM_MS, "timer_within": FAR_MS}
    sent = load(broker, FAR, messages=count, secs=SEND_LIMIT_S, **{**soon, "depth": 32}, **when)
    wait_for_entry(broker)
    figures = {
        "sends_per_second": sent["per_second"],
        "cpu_us": (broker.cpu_s() - before) * 1e6 / count,
        **{f"{name}_before_mib": value for name, value in empty.items()},
        **{f"{name}_mib": value for name, value in broker.memory_mib().items()},
    }
    begin = checks.ends(broker, [TOPIC], QUEUES)
    load(broker, TOPIC, messages=SOON, secs=SEND_LIMIT_S, timer_within=SOON_MS, **soon)
    checks.wait_for(broker, begin, SOON)
    late, _, _ = lateness(broker, TOPIC, begin)
    figures |= lateness_figures(late)
    for how in ("stop", "kill"):
        broker = restart(broker, how)
        figures[f"{how}_to_send_s"] = time.monotonic() - broker.exec_s
        wait_for_entry(broker)
        figures[f"{how}_to_caught_up_s"] = time.monotonic() - broker.exec_s
        rss = broker.memory_mib()
        figures |= {f"{name}_after_{how}_mib": value for name, value in rss.items()}
    return broker, figures


def wait_for_entry(broker: Broker) -> None:
    """Wait until all messages of the timer topic are in the wheel. Raises TimeoutError."""
    end = time.monotonic() + SEND_LIMIT_S
    while int(broker.runtime_info().get("timerOffsetBehind", 0)) > 0:
        if time.monotonic() > end:
            raise TimeoutError(f"{broker.kind} does not take its timers in")
        time.sleep(0.1)


def restart(broker: Broker, how: str) -> Broker:
    """Stop or kill a broker and start it on its store again; it took a message when it is back."""
    if how == "kill":
        broker.process.kill()
        broker.process.wait()
    broker.stop()
    again = processes.start(broker.kind, broker.flush, broker.folder, CONFIG)
    processes.wait_for_send(again, OTHER)
    return again


def measure(kind: str, folder: Path, only: set[str], count: int) -> dict[str, Figures]:
    """Measure one make of broker."""
    found: dict[str, Figures] = {}
    broker = processes.start(kind, "async", folder, CONFIG)
    try:
        for topic in (TOPIC, OTHER, FAR):
            broker.create_topic(topic, QUEUES)
        processes.wait_for_send(broker, OTHER)
        load(broker, OTHER, size=1024, conns=4, depth=8, secs=3)
        for name, run in (("spread", spread), ("burst", burst)):
            if name in only:
                found[name] = run(broker)
                show(kind, name, found[name])
        if "pending" in only:
            broker, found["pending"] = pending(broker, count)
            show(kind, f"pending {count:,}", found["pending"])
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def show(kind: str, name: str, figures: Figures) -> None:
    """Print one line a figure."""
    for what, value in figures.items():
        sys.stdout.write(f"{kind:8} {name:20} {what:28} {value:12,.2f}\n")
    sys.stdout.flush()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="spread,burst,pending")
    parser.add_argument("--kinds", default="roquet,java")
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--folder", help="where the stores are")
    options = parser.parse_args()
    only = set(options.only.split(","))
    about = circumstances("timers", "bench.timers")
    with tempfile.TemporaryDirectory(prefix="roquet-timers-", dir=options.folder) as place:
        rows = {
            kind: measure(kind, Path(place) / kind, only, options.pending)
            for kind in options.kinds.split(",")
        }
    path = save({**about, "pending": options.pending, "rows": rows})
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
