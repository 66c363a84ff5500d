"""Redelivery of what was popped and never acknowledged, beside Java, in one run.

`python -m bench.features.revive [--kinds roquet,java] [--messages 100000] [--invisible 60]`

Messages of 1 KiB are popped 32 at a time and left; when their invisible time is over, the broker
stores each of them once more in the group's pop retry topic. CPU counts from the last pop until all
are there: the records of the pops that wait in the timer wheel, their way back, the copies, and
what the broker uses while it waits. The first round warms the broker up and does not count.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import checks, processes, timers
from bench.result_files import circumstances, save
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.headers.pop import PopMessageRequest
from roquet.protocol.pop.topics import pop_retry_topic

if TYPE_CHECKING:
    from bench.processes import Broker
    from bench.timers import Figures

BATCH = 32
QUEUES = 4
CONFIG = ("timerWheelEnable=true", "brokerFastFailureEnable=false")
WARM = 20_000
"""Messages of the first round."""


def pop_all(broker: Broker, topic: str, group: str, count: int, invisible_ms: int) -> float:
    """Pop so many messages; return the seconds it took. Raises RuntimeError when some come late."""
    begin = time.monotonic()
    left = count
    with broker.connect() as connection:
        while left > 0:
            header = PopMessageRequest(
                consumer_group=group,
                topic=topic,
                queue_id=-1,
                max_msg_nums=BATCH,
                invisible_time=invisible_ms,
                poll_time=0,
                init_mode=0,
            )
            command = Command(RequestCode.POP_MESSAGE, ext=header.encode())
            answer = connection.call(command, timeout=30)
            if answer.code == 0:
                offsets = (answer.ext or {})["msgOffsetInfo"].split(";")
                left -= sum(len(each.rpartition(" ")[2].split(",")) for each in offsets)
            if time.monotonic() - begin > invisible_ms / 1000:
                raise RuntimeError(f"{broker.kind}: pops take longer than their invisible time")
    return time.monotonic() - begin


def revive(broker: Broker, name: str, count: int, invisible_s: int) -> Figures:
    """Have so many messages delivered again; return what that took."""
    topic, group = f"ReviveBench{name}", f"revive_{name}"
    broker.create_topic(topic, QUEUES)
    shape = {"size": 1024, "conns": 4, "depth": 8}
    timers.load(broker, topic, messages=count, secs=timers.SEND_LIMIT_S, **shape)
    broker.settle()
    retry = pop_retry_topic(topic, group, v2=False)
    popped_s = pop_all(broker, topic, group, count, invisible_s * 1000)
    begin, before = time.monotonic(), broker.cpu_s()
    checks.wait_for(broker, {(retry, 0): 0}, count, limit_s=invisible_s + 300)
    broker.settle()
    cpu_s, took_s = broker.cpu_s() - before, time.monotonic() - begin
    again = sum(checks.ends(broker, [retry], 1).values())
    return {
        "popped_s": popped_s,
        "all_again_after_last_pop_s": took_s,
        "cpu_us": cpu_s * 1e6 / count,
        "delivered_again": float(again),
    }


def measure(kind: str, folder: Path, count: int, invisible_s: int) -> Figures:
    """Measure one make of broker."""
    broker = processes.start(kind, "async", folder, CONFIG)
    try:
        revive(broker, "Warm", min(count, WARM), invisible_s)
        found = revive(broker, "Measured", count, invisible_s)
        timers.show(kind, f"revive {count:,}", found)
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default="roquet,java")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--invisible", type=int, default=60, help="seconds")
    parser.add_argument("--folder", help="where the stores are")
    options = parser.parse_args()
    about = circumstances("revive", "bench.features.revive")
    with tempfile.TemporaryDirectory(prefix="roquet-revive-", dir=options.folder) as place:
        rows = {
            kind: measure(kind, Path(place) / kind, options.messages, options.invisible)
            for kind in options.kinds.split(",")
        }
    if {"roquet", "java"} <= rows.keys():
        ratio = rows["roquet"]["cpu_us"] / rows["java"]["cpu_us"]
        sys.stdout.write(f"CPU x {ratio:.2f} of Java's (goal 0.25)\n")
    path = save({**about, "messages": options.messages, "rows": rows})
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
