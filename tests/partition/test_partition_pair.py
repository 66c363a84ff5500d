"""Master, slave and name server on hosts of their own, cut from one another (`make partition`)."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

import pytest

from admin_of import admin_of
from hosts_harness import Hosts, Program, until
from roquet.base.errors import RoquetError
from roquet.protocol.codes import ResponseCode
from roquet.remoting.blocking import BlockingConnection
from roquet.testing.cluster import send_command
from roquet.testing.pair import compare_logs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "Partition"
PORT = 10911
NAMESRV_PORT = 9876
UNSAFE = {
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
}


class World:
    """A SYNC_MASTER, its slave and a name server."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.hosts = hosts
        self.folder = folder
        self.programs: dict[str, Program] = {}
        self.acked: dict[int, bytes] = {}
        self.namesrv = f"{hosts.addresses['names']}:{NAMESRV_PORT}"

    def start(self, role: str = "SYNC_MASTER") -> None:
        """Start all three."""
        words = ("-m", "roquet", "namesrv", "--bind-address", "0.0.0.0")
        self.programs["names"] = self.hosts.run("names", self.folder, *words)
        until("name server", lambda: self.programs["names"].says("boot success"))
        self.broker("master", brokerId="0", brokerRole=role)
        self.broker("slave", brokerId="1", brokerRole="SLAVE")
        until("a slave that keeps up", lambda: self.send(b"first") == ResponseCode.SUCCESS)

    def broker(self, host: str, **more: str) -> None:
        """Start a broker on its host."""
        address = self.hosts.addresses[host]
        settings = {
            "brokerName": "pair",
            "brokerClusterName": "partition",
            "brokerIP1": address,
            "brokerIP2": address,
            "namesrvAddr": self.namesrv,
            "listenPort": str(PORT),
            "storePathRootDir": str(self.folder / host),
            "storePathCommitLog": str(self.folder / host / "commitlog"),
            "mappedFileSizeCommitLog": str(1 << 20),
            "mappedFileSizeConsumeQueue": "20000",
            "maxHashSlotNum": "5000",
            "maxIndexNum": "20000",
            "syncFlushTimeout": "1000",
            "slaveTimeout": "1000",
            "haHousekeepingInterval": "4000",
            "haSendHeartbeatInterval": "500",
            "registerNameServerPeriod": "10000",
            **more,
        }
        file = self.folder / f"{host}.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.programs[host] = self.hosts.run(
            host, self.folder, "-m", "roquet", "broker", "-c", str(file)
        )
        until(f"{host} up", lambda: self.programs[host].says("boot success"))

    def send(self, body: bytes) -> int | None:
        """Send to the master; return the code, None when nobody answered."""
        try:
            with BlockingConnection(f"{self.hosts.addresses['master']}:{PORT}") as connection:
                answer = connection.call(send_command(TOPIC, body), 20.0)
        except RoquetError:
            return None
        if answer.code == ResponseCode.SUCCESS:
            offset = int((answer.ext or {})["queueOffset"])
            assert offset not in self.acked, "a queue offset was given out twice"
            self.acked[offset] = body
        return answer.code

    def equal_in_the_end(self) -> None:
        """Wait for the slave, stop both, compare the logs."""
        until("acknowledged again", lambda: self.send(b"healed") == ResponseCode.SUCCESS)
        assert self.programs["master"].end() == 0
        assert self.programs["slave"].end() == 0
        size = compare_logs(self.folder / "master", self.folder / "slave")
        assert size > len(self.acked) * 90

    def brokers_known(self) -> set[int]:
        """Ask the name server which of the two it knows."""
        with contextlib.suppress(RoquetError), admin_of(self.namesrv) as admin:
            brokers = admin.brokers.cluster().brokers
            return set(brokers["pair"].addresses) if "pair" in brokers else set()
        return set()

    def knows(self, topic: str) -> bool:
        """Ask the name server whether it knows a topic."""
        with contextlib.suppress(RoquetError), admin_of(self.namesrv) as admin:
            return topic in admin.topics.names()
        return False


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Hosts("names", "master", "slave") as hosts:
        built = World(hosts, tmp_path)
        built.start()
        yield built


def acknowledge_nothing(world: World) -> None:
    codes = [world.send(b"cut %d" % number) for number in range(3)]
    assert set(codes) <= UNSAFE, codes


@pytest.mark.parametrize("how", ["both ways", "acknowledgements only", "messages only"])
def test_nothing_is_acknowledged_without_the_slave(world: World, how: str) -> None:
    hosts = world.hosts
    if how != "messages only":
        hosts.cut("slave", "master")
    if how != "acknowledgements only":
        hosts.cut("master", "slave")
    acknowledge_nothing(world)
    if how != "messages only":
        hosts.heal("slave", "master")
    if how != "acknowledgements only":
        hosts.heal("master", "slave")
    world.equal_in_the_end()


@pytest.mark.parametrize("host", ["master", "slave"])
def test_a_cut_from_the_name_server_stops_no_traffic_and_is_made_up(
    world: World, host: str
) -> None:
    hosts = world.hosts
    until("both known", lambda: world.brokers_known() == {0, 1})
    out, back = (host, "names"), ("names", host)
    for number, ways in enumerate(((out, back), (out,), (back,))):
        for way in ways:
            hosts.cut(*way)
        for _ in range(3):
            # A copy may be late for an answer while the machine does other things.
            until("acknowledged meanwhile", lambda: world.send(b"alone") == ResponseCode.SUCCESS)
        topic = f"Meanwhile{number}"
        with BlockingConnection(f"{hosts.addresses['master']}:{PORT}") as connection:
            made = connection.call(send_command(topic, b"made while alone"), 20.0)
        assert made.code == ResponseCode.SUCCESS
        if host == "master" and out in ways:
            with admin_of(world.namesrv) as admin:
                assert topic not in admin.topics.names()
        for way in ways:
            hosts.heal(*way)
        until(f"{topic} is known", functools.partial(world.knows, topic), 90)
    until("both known in the end", lambda: world.brokers_known() == {0, 1}, 90)
    world.equal_in_the_end()


def test_planted_a_master_that_waits_for_nobody_is_noticed(tmp_path: Path) -> None:
    with Hosts("names", "master", "slave") as hosts:
        world = World(hosts, tmp_path)
        world.start(role="ASYNC_MASTER")
        hosts.cut_both("master", "slave")
        with pytest.raises(AssertionError, match=r"\[0, 0, 0\]"):
            acknowledge_nothing(world)
