"""nats-py's cases, JetStream; see the package. The stream has all of the topic's messages."""

import asyncio
import importlib
import json
import sys
import time
from typing import Any

# Of the environment that this runs in, which is not the one of the project.
nats: Any = importlib.import_module("nats")
api: Any = importlib.import_module("nats.js.api")

BODY = b"x" * 1024
IN_FLIGHT = 1024
address, topic, number, *cases = sys.argv[1:]
COUNT = int(number)


def each(begun: float, count: int = COUNT) -> float:
    return (time.process_time() - begun) * 1e6 / count


async def create(stream: Any) -> float:
    """Make the stream, in files; no case."""
    await stream.add_stream(name=topic, subjects=[topic], storage="file")
    return 0.0


async def submit(stream: Any) -> float:
    """Sends under way many at a time."""
    await stream.publish(topic, BODY)
    begun = time.process_time()
    for _ in range(COUNT):
        await stream.publish_async(topic, BODY)
    await stream.publish_async_completed()
    return each(begun)


async def send(stream: Any) -> float:
    """Each awaited."""
    count = COUNT // 4
    await stream.publish(topic, BODY)
    begun = time.process_time()
    for _ in range(count):
        await stream.publish(topic, BODY)
    return each(begun, count)


async def push(stream: Any) -> float:
    """A push consumer that acknowledges each message."""
    config = api.ConsumerConfig(
        deliver_policy=api.DeliverPolicy.ALL, ack_policy=api.AckPolicy.EXPLICIT
    )
    got = await stream.subscribe(topic, config=config, manual_ack=True)
    left, begun = COUNT, 0.0
    async for message in got.messages:
        begun = begun or time.process_time()
        assert len(message.data) == len(BODY)
        await message.ack()
        left -= 1
        if not left:
            break
    figure = each(begun)
    await got.unsubscribe()
    return figure


async def pull(stream: Any) -> float:
    """Fetches of 256 without acknowledgements."""
    config = api.ConsumerConfig(deliver_policy=api.DeliverPolicy.ALL, ack_policy=api.AckPolicy.NONE)
    got = await stream.pull_subscribe(topic, config=config)
    left, begun = COUNT, time.process_time()
    while left > 0:
        found = await got.fetch(256, timeout=10)
        assert all(len(message.data) == len(BODY) for message in found)
        left -= len(found)
    figure = each(begun, COUNT - left)
    await got.unsubscribe()
    return figure


async def main() -> None:
    connection = await nats.connect(address)
    stream = connection.jetstream(publish_async_max_pending=IN_FLIGHT, timeout=30)
    print(json.dumps({case: await globals()[case](stream) for case in cases}))
    await connection.close()


asyncio.run(main())
