"""aiokafka's cases; see the package."""

import asyncio
import importlib
import json
import sys
import time
from typing import Any

# Of the environment that this runs in, which is not the one of the project.
aiokafka: Any = importlib.import_module("aiokafka")

BODY = b"x" * 1024
IN_FLIGHT = 1024
address, topic, number, *cases = sys.argv[1:]
COUNT = int(number)


def each(begun: float, count: int = COUNT) -> float:
    return (time.process_time() - begun) * 1e6 / count


async def submit() -> float:
    """Sends under way many at a time: the client makes batches of them."""
    slots = asyncio.Semaphore(IN_FLIGHT)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=address) as producer:
        await producer.send_and_wait(topic, BODY)
        begun = time.process_time()
        for _ in range(COUNT):
            await slots.acquire()
            future = await producer.send(topic, BODY)
            future.add_done_callback(lambda _: slots.release())
        await producer.flush()
        return each(begun)


async def send() -> float:
    """Each awaited."""
    count = COUNT // 4
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=address) as producer:
        await producer.send_and_wait(topic, BODY)
        begun = time.process_time()
        for _ in range(count):
            await producer.send_and_wait(topic, BODY)
        return each(begun, count)


def consumer() -> Any:
    group = f"bench-{time.monotonic_ns()}"
    return aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest"
    )


async def warm() -> float:
    """Have the broker make what it keeps of groups; no case."""
    async with consumer() as it:
        await it.getmany(timeout_ms=3000)
    return 0.0


async def push() -> float:
    """One by one, offsets committed by the client."""
    left = COUNT
    async with consumer() as it:
        begun = time.process_time()
        async for record in it:
            assert len(record.value) == len(BODY)
            left -= 1
            if not left:
                break
        return each(begun)


async def pull() -> float:
    """Polls of up to 256."""
    left = COUNT
    async with consumer() as it:
        begun = time.process_time()
        while left > 0:
            for records in (await it.getmany(timeout_ms=1000, max_records=256)).values():
                assert all(len(record.value) == len(BODY) for record in records)
                left -= len(records)
        return each(begun, COUNT - left)


print(json.dumps({case: asyncio.run(globals()[case]()) for case in cases}))
