"""What a message costs the Python client: `python -m bench.features.client`.

A broker in a process of its own, the client here; the figure is the user and system CPU of this
process, all threads, in microseconds a message of 1 KiB: the median of the rounds. The broker's
CPU and the wall clock are not in it, so a busy machine changes it little.

push: a consumer that acknowledges each message; pull: a pull consumer's polls; submit: sends
under way many at a time; send: each awaited; the same by the blocking client.
`--compare FILE` prints ratios to an earlier `--json FILE`. `--peers` measures aiokafka, nats-py
and RocketMQ's client over gRPC behind it, in environments of their own, on the same work, each with
its server, and writes `bench/results/clients-….json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import roquet
from bench import processes
from bench.features.clients import peers
from bench.result_files import circumstances, save

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = b"x" * 1024
GOALS = {
    "push": 20.0,
    "pull": 8.0,
    "submit": 30.0,
    "send": 90.0,
    "sync push": 26.0,
    "sync pull": 10.4,
    "sync submit": 39.0,
    "sync send": 117.0,
}
TOPIC = "Bench"


class Rounds:
    """Runs each case against one broker and keeps its CPU a message."""

    def __init__(self, url: str, count: int) -> None:
        self.url = url
        self.count = count
        self.groups = iter(range(10_000))

    async def submit(self, mq: roquet.MQ) -> float:
        """Return microseconds a message submitted."""
        async with mq.producer() as producer:
            await producer.send(TOPIC, BODY)
            begun = time.process_time()
            for _ in range(self.count):
                _ = await producer.submit(TOPIC, BODY)
            await producer.flush()
            return self._each(begun)

    async def send(self, mq: roquet.MQ) -> float:
        """Return microseconds a message sent and awaited."""
        count = self.count // 4
        async with mq.producer() as producer:
            await producer.send(TOPIC, BODY)
            begun = time.process_time()
            for _ in range(count):
                await producer.send(TOPIC, BODY)
            return self._each(begun, count)

    async def push(self, mq: roquet.MQ) -> float:
        """Return microseconds a message consumed."""
        group, left = f"push-{next(self.groups)}", self.count
        async with mq.consumer(group, TOPIC, start="earliest") as consumer:
            begun = 0.0
            async for received in consumer:
                begun = begun or time.process_time()
                assert len(received.body) == len(BODY)
                left -= 1
                if not left:
                    break
            return self._each(begun)

    async def pull(self, mq: roquet.MQ) -> float:
        """Return microseconds a message polled."""
        left = self.count
        async with mq.pull_consumer(f"pull-{next(self.groups)}") as consumer:
            await consumer.assign(await consumer.queues(TOPIC), start="earliest")
            begun = time.process_time()
            while left > 0:
                found = await consumer.poll(256)
                assert all(len(it.body) == len(BODY) for it in found)
                left -= len(found)
            return self._each(begun, self.count - left)

    def sync_submit(self, mq: roquet.sync.MQ) -> float:
        """Return microseconds a message submitted by the blocking client."""
        with mq.producer() as producer:
            producer.send(TOPIC, BODY)
            begun = time.process_time()
            for _ in range(self.count):
                producer.submit(TOPIC, BODY)
            producer.flush()
            return self._each(begun)

    def sync_send(self, mq: roquet.sync.MQ) -> float:
        """Return microseconds a message sent by the blocking client."""
        count = self.count // 4
        with mq.producer() as producer:
            producer.send(TOPIC, BODY)
            begun = time.process_time()
            for _ in range(count):
                producer.send(TOPIC, BODY)
            return self._each(begun, count)

    def sync_push(self, mq: roquet.sync.MQ) -> float:
        """Return microseconds a message consumed by the blocking client."""
        group, left = f"push-{next(self.groups)}", self.count
        with mq.consumer(group, TOPIC, start="earliest") as consumer:
            begun = 0.0
            for received in consumer:
                begun = begun or time.process_time()
                assert len(received.body) == len(BODY)
                left -= 1
                if not left:
                    break
            return self._each(begun)

    def sync_pull(self, mq: roquet.sync.MQ) -> float:
        """Return microseconds a message polled by the blocking client."""
        left = self.count
        with mq.pull_consumer(f"pull-{next(self.groups)}") as consumer:
            consumer.assign(consumer.queues(TOPIC), start="earliest")
            begun = time.process_time()
            while left > 0:
                found = consumer.poll(256)
                assert all(len(it.body) == len(BODY) for it in found)
                left -= len(found)
            return self._each(begun, self.count - left)

    def run(self, case: str) -> float:
        """Run one case once."""
        if case.startswith("sync "):
            with roquet.sync.connect(self.url) as mq:
                work: Callable[[roquet.sync.MQ], float] = getattr(self, case.replace(" ", "_"))
                return work(mq)
        return asyncio.run(self._asynchronous(case))

    async def _asynchronous(self, case: str) -> float:
        async with roquet.connect(self.url) as mq:
            figure: float = await getattr(self, case)(mq)
            return figure

    def _each(self, begun: float, count: int | None = None) -> float:
        return (time.process_time() - begun) * 1e6 / (count or self.count)


def measured(cases: list[str], count: int, rounds: int) -> dict[str, list[float]]:
    """Return microseconds of CPU a message by case, one figure a round."""
    found: dict[str, list[float]] = {case: [] for case in cases}
    with (
        tempfile.TemporaryDirectory(prefix="roquet-bench-client-") as folder,
        processes.start("roquet", "async", Path(folder)) as broker,
    ):
        broker.create_topic(TOPIC, 4)
        namesrv = Path(folder, "namesrv.conf").read_text().split()[0].partition("=")[2]
        run = Rounds(f"rmq://127.0.0.1:{namesrv}", count)
        run.run("submit")  # messages to read, and warm
        for _ in range(rounds):
            for case in cases:
                found[case].append(run.run(case))
    return found


def write_beside(own: dict[str, list[float]], options: argparse.Namespace) -> None:
    """Measure the clients of others and write all figures of the run to one file."""
    about = circumstances("clients", "bench.features.client")
    figures = {"roquet": own, **peers.measured(options.count, options.rounds)}
    print(save({**about, "count": options.count, "cpu_us": figures}))


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.features.client", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="messages a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases by name, separated by commas")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--compare", type=Path, help="figures of before")
    parser.add_argument("--peers", action="store_true", help="clients of other brokers as well")
    options = parser.parse_args()
    cases = [it.strip() for it in options.only.split(",") if it.strip()] or list(GOALS)
    if wrong := set(cases) - GOALS.keys():
        parser.error(f"there are {sorted(GOALS)}, not {sorted(wrong)}")
    before = json.loads(options.compare.read_text()) if options.compare else {}
    figures = measured(cases, options.count, options.rounds)
    found = {case: statistics.median(each) for case, each in figures.items()}
    print(f"{'case':12} {'us/message':>10} {'goal':>6} {'before':>7} {'ratio':>6}")
    for case, figure in found.items():
        old = before.get(case)
        rest = f"{old:7.1f} {figure / old:6.2f}" if old else ""
        print(f"{case:12} {figure:10.1f} {GOALS[case]:6.1f} {rest}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    if options.peers:
        write_beside(figures, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
