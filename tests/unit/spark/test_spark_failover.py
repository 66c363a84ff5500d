"""Reading goes on at a slave when the master is killed, and at the master when it is back."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from typing import TYPE_CHECKING, Any

import pytest
from demo.servers import _process, _until_open, free_port
from pyspark.sql.streaming.datasource import ReadMaxRows

from roquet import sync
from roquet.base.errors import RoquetError
from roquet.client import Message, MessageQueue
from roquet.spark.batch import BatchReader
from roquet.spark.metadata import Metadata
from roquet.spark.options import SourceOptions, Wire
from roquet.spark.stream import StreamReader

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


BROKER = "pair"
QUEUES = 2
ROWS = 400
WAIT_S = 120.0


@dataclasses.dataclass
class Pair:
    """A name server, a master and its slave as processes."""

    folder: Path
    stack: contextlib.ExitStack
    names: str = ""
    ports: tuple[int, int] = (0, 0)
    ha_ports: tuple[int, int] = (0, 0)
    master: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        name_port = free_port()
        self.names = f"127.0.0.1:{name_port}"
        log = self.folder / "namesrv.log"
        self.stack.enter_context(_process(log, "namesrv", "--listen-port", str(name_port)))
        _until_open(name_port)
        self.ports = (free_port(), free_port())
        self.ha_ports = (free_port(), free_port())
        self.start_master()
        own = f"brokerRole=SLAVE\nbrokerId=1\nhaListenPort={self.ha_ports[1]}\n"
        own += "slaveReadEnable=true\n"
        self._server("slave", self.ports[1], own)

    def start_master(self) -> None:
        own = f"brokerRole=SYNC_MASTER\nhaListenPort={self.ha_ports[0]}\n"
        self.master = self._server("master", self.ports[0], own)

    def kill_master(self) -> None:
        assert self.master is not None
        self.master.kill()
        self.master.wait()

    def fill(self, topic: str, begin: int) -> None:
        """Send ROWS bodies, and wait until the slave shows all of them."""
        with sync.connect(self.names) as mq:
            retried(lambda: mq.admin().create_topic(topic, queues=QUEUES))
            with mq.producer("fill") as producer:
                for number in range(QUEUES):
                    queue = MessageQueue(topic, BROKER, number)
                    ids = range(begin + number, begin + ROWS, QUEUES)
                    made = [Message(topic, b"%06d" % n + b"x" * 1000) for n in ids]
                    retried(functools.partial(producer.send_batch, topic, made, queue=queue))
        metadata = Metadata(Wire(name_servers=(self.names,), retries=0))

        def shown() -> None:
            found = metadata.stats(topic, (f"127.0.0.1:{self.ports[1]}",)).offsets
            if sum(it.max_offset for it in found.values()) < begin + ROWS:
                raise RoquetError("the slave lacks messages")

        retried(shown)
        # The route has the slave too, or a reader would not know it.
        retried(lambda: _has_both(metadata, topic))
        metadata.close()

    def _server(self, name: str, port: int, more: str) -> subprocess.Popen[bytes]:
        settings = self.folder / f"{name}.properties"
        settings.write_text(
            f"brokerName={BROKER}\nlistenPort={port}\nbindAddress=127.0.0.1\n"
            f"namesrvAddr={self.names}\nstorePathRootDir={self.folder / name}\n"
            "brokerFastFailureEnable=false\n"
            "mappedFileSizeCommitLog=16777216\ndiskMaxUsedSpaceRatio=95\n"
            "registerNameServerPeriod=10000\nslaveSyncInterval=200\n" + more
        )
        log = self.folder / f"{name}-{time.monotonic_ns()}.log"
        started = self.stack.enter_context(_process(log, "broker", "-c", str(settings)))
        _until_open(port)
        return started


def retried(call: Callable[[], Any]) -> None:
    end = time.monotonic() + WAIT_S
    while True:
        try:
            call()
        except RoquetError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def _has_both(metadata: Metadata, topic: str) -> None:
    (broker,) = metadata.route(topic).brokers
    if len(broker.addresses) < 2:
        raise RoquetError("the slave is not registered")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with contextlib.ExitStack() as stack:
        found = Pair(tmp_path, stack)
        found.start()
        yield found


def numbers(bodies: list[Any]) -> list[int]:
    return sorted(int(bytes(body)[:6]) for body in bodies)


def read(reader: BatchReader | StreamReader, parts: Sequence[Any]) -> list[Any]:
    batches = [batch for part in parts for batch in reader.read(part)]
    return [body for batch in batches for body in batch.column("body").to_pylist()]


@pytest.mark.timeout(400)
def test_a_batch_goes_on_at_the_slave_and_at_the_restarted_master(pair: Pair) -> None:
    pair.fill("Orders", 0)
    given = {"nameServers": pair.names, "subscribe": "Orders", "maxBytesPerBatch": "65536"}
    reader = BatchReader(SourceOptions.parse(given, streaming=False))
    first, second = reader.partitions()
    rows = reader.read(first)
    got = [*next(rows).column("body").to_pylist()]
    assert 0 < len(got) < ROWS // QUEUES
    pair.kill_master()
    for batch in rows:
        got += batch.column("body").to_pylist()
    got += read(reader, [second])
    assert numbers(got) == list(range(ROWS))
    # Planned at the slave, read when the master is back and has more.
    parts = reader.partitions()
    pair.start_master()
    pair.fill("Orders", ROWS)
    assert numbers(read(reader, parts)) == list(range(ROWS))
    assert numbers(read(reader, reader.partitions())) == list(range(2 * ROWS))


@pytest.mark.timeout(400)
def test_a_stream_goes_on_at_the_slave_and_at_the_restarted_master(pair: Pair) -> None:
    pair.fill("Orders", 0)
    given = {"nameServers": pair.names, "subscribe": "Orders", "startingOffsets": "earliest"}
    reader = StreamReader(SourceOptions.parse(given, streaming=True))
    half: Any = ReadMaxRows(ROWS // 2)
    start = reader.initialOffset()
    offsets = [start, reader.latestOffset(start, half)]
    got = read(reader, reader.partitions(*offsets))
    assert len(got) == ROWS // 2
    pair.kill_master()
    offsets.append(reader.latestOffset(offsets[-1], half))
    got += read(reader, reader.partitions(*offsets[-2:]))
    assert numbers(got) == list(range(ROWS))
    assert reader.latestOffset(offsets[-1], half) == offsets[-1]
    pair.start_master()
    pair.fill("Orders", ROWS)
    offsets.append(reader.latestOffset(offsets[-1], reader.getDefaultReadLimit()))
    got += read(reader, reader.partitions(*offsets[-2:]))
    assert numbers(got) == list(range(2 * ROWS))
    reader.stop()
