"""One Spark for all tests here (starting a JVM takes seconds), and one small cluster."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

from roquet.client import Message, MessageQueue, connect
from roquet.model.topic import TopicConfig
from roquet.testing.cluster import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roquet.client import SendReceipt


def spark_session(**conf: str) -> SparkSession:
    """Start a small Spark that uses this Python."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Its tasks have the environment that it began with: keys for a store of logs in S3.
    os.environ.update(ROQUET_ACCESS_KEY_LAKE="reader", ROQUET_SECRET_KEY_LAKE="of-this-test")
    builder = SparkSession.builder.master("local[2]").appName("roquet-tests")
    settings = {
        "spark.driver.memory": "1g",
        # A busy machine may take long to start a Python worker.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **conf,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


class Running:
    """A cluster in a thread of its own, so that tests and Spark may block."""

    def __init__(self, folder: Any, **settings: str) -> None:
        self._folder = folder
        self._settings = {"mappedFileSizeCommitLog": "8388608", **settings}
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stop = asyncio.Event()
        self.cluster: Cluster | None = None

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(30), "the cluster did not start"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def name_servers(self) -> str:
        assert self.cluster is not None
        return self.cluster.name_servers

    @property
    def store(self) -> Path:
        """The folder of the broker's store."""
        return Path(self._folder) / "broker-a"

    def create_topic(self, topic: str, queues: int = 4) -> None:
        async def create() -> None:
            async with connect(self.name_servers) as mq:
                config = TopicConfig(name=topic, read_queues=queues, write_queues=queues)
                await mq.admin().topics.put(config)

        asyncio.run(create())

    def delete_topic(self, topic: str) -> None:
        async def delete() -> None:
            async with connect(self.name_servers) as mq:
                await mq.admin().topics.delete(topic)

        asyncio.run(delete())

    def send(self, topic: str, messages: Sequence[Message], queue_id: int) -> list[SendReceipt]:
        async def send() -> list[SendReceipt]:
            async with connect(self.name_servers) as mq, mq.producer() as producer:
                queue = MessageQueue(topic, "broker-a", queue_id)
                return await producer.send_batch(topic, messages, queue=queue)

        return asyncio.run(send())

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        async with cluster(self._folder, **self._settings) as found:
            self.cluster = found
            self._ready.set()
            await self._stop.wait()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("cluster"))
    found.start()
    yield found
    found.stop()
