"""`roquet bench send|recv`: load on a topic, with rate and latency."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import Refused, UsageError
from roquet.cli import output
from roquet.client import ConsumerOptions, ProducerOptions
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from roquet.admin import Admin
    from roquet.client import MQ

_GROUP = "roquet_bench"
_SIZE_MAX = 4 << 20
_IN_FLIGHT_MAX = 10_000
_WAIT_S = 10.0
_PERCENTS = (50, 90, 99, 99.9)


def percentiles(latencies_ms: Sequence[float]) -> dict[str, float]:
    """Return p50, p90, p99, p99.9 and max in ms by nearest rank; nothing for no sample."""
    ordered = sorted(latencies_ms)
    if not ordered:
        return {}
    found = {
        f"p{percent:g}": ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]
        for percent in _PERCENTS
    }
    return {name: round(it, 3) for name, it in (found | {"max": ordered[-1]}).items()}


async def send(mq: MQ, admin: Admin, options: argparse.Namespace) -> int:
    """Send messages, so many in flight at once; show rate and latency of acknowledgements."""
    if options.size > _SIZE_MAX:
        raise UsageError(f"--size {options.size}: at most {_SIZE_MAX}")
    if options.in_flight > _IN_FLIGHT_MAX:
        raise UsageError(f"--in-flight {options.in_flight}: at most {_IN_FLIGHT_MAX}")
    await _topic(admin, options)
    body = b"x" * options.size
    latencies_ms: list[float] = []
    left = options.count
    tuned = ProducerOptions(in_flight_max=options.in_flight)
    async with mq.producer(_GROUP, options=tuned) as producer:

        async def one_by_one() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                began_s = time.perf_counter()
                await producer.send(options.topic, body)
                latencies_ms.append((time.perf_counter() - began_s) * 1000)
                output.progress(f"{len(latencies_ms)} of {options.count} sent")

        began_s = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(options.in_flight, options.count)):
                    group.create_task(one_by_one())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        took_s = time.perf_counter() - began_s
    size = options.size * len(latencies_ms)
    _show(size, took_s, latencies_ms, options)
    return 0


async def recv(mq: MQ, admin: Admin, options: argparse.Namespace) -> int:
    """Consume messages from the earliest; show rate, and latency from birth to here."""
    await admin.topics.route(options.topic)
    latencies_ms: list[float] = []
    clock = SystemClock()
    size = 0
    began_s = last_s = time.perf_counter()
    async with mq.consumer(
        options.group, options.topic, start="earliest", options=ConsumerOptions()
    ) as consumer:
        while len(latencies_ms) < options.count:
            received = await consumer.receive(timeout_s=_WAIT_S)
            if received is None:
                output.error(f"nothing came for {_WAIT_S:g} s: the topic has no more")
                break
            received.ack()
            last_s = time.perf_counter()
            if not latencies_ms:
                # Joining the group is no part of the rate.
                began_s = last_s
            size += len(received.message.body)
            latencies_ms.append(max(0.0, clock.now_ms() - received.message.born_timestamp))
            output.progress(f"{len(latencies_ms)} of {options.count} received")
    _show(size, last_s - began_s, latencies_ms, options)
    return 0


async def _topic(admin: Admin, options: argparse.Namespace) -> None:
    try:
        await admin.topics.route(options.topic)
    except Refused as refusal:
        if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        await admin.topics.create(options.topic)


def _show(
    size: int, took_s: float, latencies_ms: Sequence[float], options: argparse.Namespace
) -> None:
    took_s, count = max(took_s, 1e-6), len(latencies_ms)
    row = {
        "messages": count,
        "seconds": round(took_s, 3),
        "messages a second": round(count / took_s, 1),
        "MiB a second": round(size / took_s / 2**20, 3),
        **{f"{name} ms": value for name, value in percentiles(latencies_ms).items()},
    }
    output.listed(tuple(row), [tuple(row.values())], options.output)
