"""The cases of `rocketmq-python-client` (gRPC, 5.x), a blocking client; see the package."""

import importlib
import json
import sys
import threading
import time
from typing import Any

# Of the environment that this runs in, which is not the one of the project.
rocketmq: Any = importlib.import_module("rocketmq")

BODY = b"x" * 1024
IN_FLIGHT = 1024
address, topic, number, *cases = sys.argv[1:]
COUNT = int(number)


def each(begun: float, count: int) -> float:
    return (time.process_time() - begun) * 1e6 / count


def configuration() -> object:
    return rocketmq.ClientConfiguration(address, rocketmq.Credentials(), request_timeout=30)


def message() -> object:
    made = rocketmq.Message()
    made.topic = topic
    made.body = BODY
    return made


def sync_submit() -> float:
    """`send_async`, many under way at a time."""
    count = COUNT // 4
    slots = threading.Semaphore(IN_FLIGHT)
    producer = rocketmq.Producer(configuration(), [topic])
    producer.startup()
    producer.send(message())
    begun = time.process_time()
    futures = []
    for _ in range(count):
        slots.acquire()
        future = producer.send_async(message())
        future.add_done_callback(lambda _: slots.release())
        futures.append(future)
    for future in futures:
        future.result()
    figure = each(begun, count)
    producer.shutdown()
    return figure


def sync_send() -> float:
    """Each waited for."""
    count = COUNT // 8
    producer = rocketmq.Producer(configuration(), [topic])
    producer.startup()
    producer.send(message())
    begun = time.process_time()
    for _ in range(count):
        producer.send(message())
    figure = each(begun, count)
    producer.shutdown()
    return figure


class Listener(rocketmq.MessageListener):  # type: ignore[misc]
    """Counts."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.begun = 0.0
        self.figure = 0.0
        self.count = count
        self.lock = threading.Lock()
        self.done = threading.Event()

    def consume(self, it: Any) -> Any:
        with self.lock:
            self.begun = self.begun or time.process_time()
            assert len(it.body) == len(BODY)
            self.left -= 1
            if not self.left:
                self.figure = each(self.begun, self.count)
                self.done.set()
        return rocketmq.ConsumeResult.SUCCESS


def sync_push() -> float:
    """A push consumer that acknowledges each message."""
    count = COUNT // 8
    listener = Listener(count)
    group = f"bench-{time.monotonic_ns()}"
    consumer = rocketmq.PushConsumer(
        configuration(), group, listener, {topic: rocketmq.FilterExpression()}
    )
    consumer.startup()
    # A new group begins at the end: what it gets is sent by another process while it waits.
    print("ready", flush=True)
    assert listener.done.wait(200), f"{listener.left} of {count} messages did not come"
    consumer.shutdown()
    return listener.figure


print(json.dumps({case: globals()[case.replace(" ", "_")]() for case in cases}), flush=True)
