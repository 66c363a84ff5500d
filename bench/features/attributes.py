"""What a topic's type costs sends: `message.type=NORMAL` beside a topic without attributes.

`python -m bench.features.attributes [--rounds 5] [--secs 3]`: one broker, both topics in turn, so
that a slow second of the machine meets both. Wanted: at most 1.03 times the CPU of the other one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from bench import processes
from bench.run import QUEUES, TOPIC, Figures, measure
from bench.scenarios import Scenario

TYPED = "Typed"
LOADS: dict[str, dict[str, int | str]] = {
    "send 16x1": {"conns": 16, "depth": 1, "size": 1024},
    "send 4x32": {"conns": 4, "depth": 32, "size": 1024},
}


def said(values: list[float]) -> str:
    """Return the median with its range."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    """Measure and print medians, with their ranges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--secs", type=float, default=3.0)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="roquet-attributes-") as folder,
        processes.start("roquet", "async", Path(folder)) as broker,
    ):
        broker.create_topic(TOPIC, QUEUES)
        broker.create_topic(TOPIC + TYPED, QUEUES, "+message.type=NORMAL")
        for name, load in LOADS.items():
            runs: dict[str, list[Figures]] = {"": [], TYPED: []}
            for number in range(options.rounds + 1):
                # Who comes first changes, and the first round warms both up.
                for topic in ("", TYPED) if number % 2 else (TYPED, ""):
                    one = measure(Scenario(name, "send", load, topic=topic), broker, options.secs)
                    if number:
                        runs[topic].append(one)
            plain, typed = ([it["cpu_us"] for it in runs[topic]] for topic in ("", TYPED))
            ratio = statistics.median(typed) / statistics.median(plain)
            print(f"{name}: {said(plain)} us a message, typed {said(typed)}: x {ratio:.3f}")


if __name__ == "__main__":
    main()
