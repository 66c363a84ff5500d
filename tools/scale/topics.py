"""Many topics: how long the start takes, and what a registration of all of them costs."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from roquet._native import Store
from roquet.base.clock import SystemClock
from roquet.model.data_version import DataVersion
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.topics import TopicTableBody, encode_data_version
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.headers.namesrv import QueryDataVersionRequest
from roquet.store.results import PutStatus
from roquet.testing.cluster import TINY
from roquet.testing.java import free_port, roquet_process
from roquet.testing.process import BrokerProcess
from tools.scale.lines import Line, Probe, pid_of, processor_s, resident_kib, share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUEUES = 8
STARTS = 3
QUIET_S = 3.0
REGISTRATIONS = 4
REGISTERED_S = 60.0
NAME = "broker-a"
STORE_KEYS = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum")


def fill(store: Path, count: int, messages: int) -> None:
    """Make a store with so many topics, and so many messages in each of their queues."""
    settings: dict[str, str | int | bool] = {key: int(TINY[key]) for key in STORE_KEYS}
    # A log of 80,000 messages in files of 1 MiB would be a matter of files, not of queues.
    settings |= {"storePathRootDir": str(store), "mappedFileSizeCommitLog": 64 << 20}
    native = Store.open(settings)
    native.start()
    for number in range(count):
        for queue in range(QUEUES):
            for _ in range(messages):
                status = native.put(f"t{number}", queue, b"x", b"")[0]
                assert status == PutStatus.PUT_OK, status
    native.close()
    topics = {
        name: TopicConfig(name=name, read_queues=QUEUES, write_queues=QUEUES, perm=6)
        for name in (f"t{number}" for number in range(count))
    }
    body = TopicTableBody(topics=topics, version=DataVersion(timestamp=1, counter=1))
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_bytes(body.encode_file())


async def topics(count: int, messages: int, folder: Path) -> dict[str, Any]:
    """Make topics, then measure restarts and registrations."""
    begun = time.monotonic()
    fill(folder / "store", count, messages)
    made_s = time.monotonic() - begun
    sizes = {"mappedFileSizeCommitLog": str(64 << 20), "metricsExporterType": "DISABLE"}
    broker = BrokerProcess(folder, env=None, **sizes)
    starts: list[float] = []
    used: list[float] = []
    stops: list[float] = []
    resident = 0
    for _ in range(STARTS):
        starts.append(await started(broker))
        used.append(processor_s(pid_of(broker)))
        resident = resident_kib(pid_of(broker))
        begun = time.monotonic()
        broker.kill(signal.SIGTERM)
        stops.append(time.monotonic() - begun)
    seen = await registered(count, folder, sizes)
    return {
        "topics": count,
        "queues": count * QUEUES,
        "messages": count * QUEUES * messages,
        "made_s": round(made_s, 1),
        "warm_start_s": [round(one, 2) for one in starts],
        "warm_start_processor_s": [round(one, 2) for one in used],
        "stop_s": [round(one, 2) for one in stops],
        "resident_mib": round(resident / 1024, 1),
        **seen,
    }


async def started(broker: BrokerProcess) -> float:
    """Start the broker; return the seconds until its boot line."""
    begun = time.monotonic()
    broker.start()
    try:
        await broker.booted(SystemClock())
    except BaseException:
        broker.kill()
        raise
    return time.monotonic() - begun


async def registered(count: int, folder: Path, settings: dict[str, str]) -> dict[str, Any]:
    """Start beside a name server and let the broker register all topics anew, some times."""
    port = free_port(random.Random(time.monotonic_ns()))
    flags = ("namesrv", "--listen-port", str(port))
    name_server = roquet_process("scale-namesrv", folder / "namesrv", *flags).start()
    names = f"127.0.0.1:{port}"
    broker = BrokerProcess(folder, env=None, namesrvAddr=names, **settings)
    try:
        start_s = await started(broker)
        quiet = watch(broker, names, lambda _: time.sleep(QUIET_S))
        told: list[float] = []
        busy = watch(broker, names, lambda seen: told.extend(register(broker, seen)))
        resident = resident_kib(name_server.pid)
        known = known_topics(names)
        assert known >= count, f"the name server knows {known} topics"
    finally:
        broker.kill(signal.SIGTERM)
        name_server.kill()
    return {
        "start_with_name_server_s": round(start_s, 2),
        "registration_s": [round(one, 2) for one in told],
        "broker_worst_ms": busy[0],
        "name_server_worst_ms": busy[1],
        "quiet_worst_ms": list(quiet),
        "name_server_mib": round(resident / 1024, 1),
    }


class Version:
    """The version of the broker's topics that the name server has, as it was last told."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.body = b""
        self._news = threading.Condition()

    def see(self, answer: Command) -> None:
        """Take an answer to QUERY_DATA_VERSION."""
        with self._news:
            if answer.body != self.body:
                self.body = answer.body
                self._news.notify_all()

    def wait_for_another(self, old: bytes) -> None:
        """Wait until it is not `old` any more."""
        with self._news:
            assert self._news.wait_for(lambda: self.body not in (b"", old), REGISTERED_S)


def watch(
    broker: BrokerProcess, names: str, during: Callable[[Version], object]
) -> tuple[float, float]:
    """Ask broker and name server all the time; return the longest answer of each in ms."""
    seen = Version()
    header = QueryDataVersionRequest(
        broker_name=NAME,
        broker_addr=broker.address,
        cluster_name="DefaultCluster",
        broker_id=0,
    )
    command = Command(
        RequestCode.QUERY_DATA_VERSION,
        ext=header.encode(),
        body=encode_data_version(DataVersion(timestamp=1)),
    )
    where = {"topic": "t0", "queueId": "0"}
    probes = (
        Probe(broker.address, Command(RequestCode.GET_MAX_OFFSET, ext=where)),
        Probe(names, command, seen.see),
    )
    with running(probes):
        during(seen)
    return share(probes[0].times_ms, 1.0), share(probes[1].times_ms, 1.0)


@contextlib.contextmanager
def running(probes: tuple[Probe, ...]) -> Iterator[None]:
    """Run probes for the length of a block."""
    for probe in probes:
        probe.start()
    try:
        yield
    finally:
        for probe in probes:
            probe.end()


def register(broker: BrokerProcess, seen: Version) -> Iterator[float]:
    """Change what all topics mean, again and again; yield how long the name server knew not."""
    seen.wait_for_another(b"-")
    with Line(broker.address) as line:
        for number in range(REGISTRATIONS):
            old = seen.body
            body = b"brokerPermission=%d\n" % (4 + 2 * (number % 2))
            begun = time.monotonic()
            answer = line.call(Command(RequestCode.UPDATE_BROKER_CONFIG, body=body), number)
            assert answer.code == 0, answer.remark
            seen.wait_for_another(old)
            yield time.monotonic() - begun


def known_topics(names: str) -> int:
    """Return how many topics the name server lists."""
    with Line(names) as line:
        answer = line.call(Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    return answer.body.count(b'"t')
