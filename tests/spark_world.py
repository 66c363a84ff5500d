"""A name server and two brokers in a thread; each broker may be stopped and started at its port."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

from roquet import sync
from roquet.client import Encoded, Message, MessageQueue, connect
from roquet.model.topic import TopicConfig
from roquet.protocol import properties
from roquet.testing.cluster import running_broker, running_name_server
from roquet.testing.java import free_port
from roquet.testing.pair import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

BROKERS = ("broker-a", "broker-b")


class World:
    """Two brokers without slaves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stacks: dict[str, contextlib.AsyncExitStack] = {}
        self._ports = {name: free_port() for name in BROKERS}
        self._timers: list[threading.Timer] = []
        self.name_servers = ""

    def start(self) -> None:
        self._thread.start()
        self._do(self._begin())
        for name in BROKERS:
            self.start_broker(name)

    def stop(self) -> None:
        for timer in self._timers:
            timer.join(60)
        for name in reversed([*self._stacks]):
            self._do(self._stacks.pop(name).aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def start_broker(self, name: str) -> None:
        self._do(self._broker(name))

    def stop_broker(self, name: str) -> None:
        self._do(self._stacks.pop(name).aclose())

    def start_later(self, name: str, after_s: float) -> None:
        """Start a broker while something else waits for it."""
        timer = threading.Timer(after_s, self.start_broker, [name])
        self._timers.append(timer)
        timer.start()

    def start_when(self, name: str, ready: Callable[[], bool]) -> None:
        """Start a broker once something is so, which it has to be within a minute."""

        def start() -> None:
            wait_until(f"the start of {name}", ready, 60)
            self.start_broker(name)

        timer = threading.Timer(0, start)
        self._timers.append(timer)
        timer.start()

    def fill(self, topic: str, count: int, *, queues: int = 2, begin: int = 0) -> None:
        """Make a topic on both brokers, and put `count` numbers from `begin` on in each queue."""
        with sync.connect(self.name_servers) as mq:
            config = TopicConfig(name=topic, read_queues=queues, write_queues=queues)
            mq.admin().topics.put(config)
            with mq.producer("fill") as producer:
                for name in BROKERS:
                    for number in range(queues):
                        queue = MessageQueue(topic, name, number)
                        made = [Message(topic, b"%d" % n) for n in range(begin, begin + count)]
                        if made:
                            producer.send_batch(topic, made, queue=queue)

    def put(self, topic: str, broker: str, found: dict[str, str]) -> None:
        """Make a topic of one queue on one broker, and put a message with any properties in it."""

        async def send() -> None:
            async with connect(self.name_servers) as mq, mq.producer("put") as producer:
                await mq.admin().topics.create(topic, queues=1, brokers=[broker])
                queue = MessageQueue(topic, broker, 0)
                text = properties.write(found)
                await producer.send_encoded(Encoded(topic, b"x", text, ("u",)), queue=queue)

        asyncio.run(send())

    async def _begin(self) -> None:
        stack = contextlib.AsyncExitStack()
        server = await stack.enter_async_context(running_name_server(self._folder / "names"))
        self._stacks[""] = stack
        self.name_servers = f"127.0.0.1:{server.server.port}"

    async def _broker(self, name: str) -> None:
        stack = contextlib.AsyncExitStack()
        changes = {
            "brokerName": name,
            "listenPort": str(self._ports[name]),
            "mappedFileSizeCommitLog": "8388608",
        }
        where = self._folder / name
        await stack.enter_async_context(running_broker(where, self.name_servers, changes=changes))
        self._stacks[name] = stack

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)
