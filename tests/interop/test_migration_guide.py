"""The guide of migration, docs/guide/migration.md, line by line with a Java broker and ours."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import random
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from admin_of import admin_of
from interop_world import assert_same, has_route, make_topic, messages, our_name_server, until
from roquet.cli.app import run
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.blocking import BlockingConnection
from roquet.testing.java import BrokerPlan, Process, free_port, java_broker, roquet_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from interop_world import Sent
    from roquet.testing.java import Driver

GUIDE = Path(__file__).parents[2] / "docs/guide/migration.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
TOPIC = "orders"
pytestmark = pytest.mark.timeout(600)


def section(title: str) -> str:
    """Return a section of the guide."""
    found = GUIDE.read_text().split(f"\n## {title}\n")
    assert len(found) == 2, title
    return found[1].split("\n## ")[0]


def lines(title: str) -> list[list[str]]:
    """Return the command lines of each block of a section."""
    return [block.splitlines() for language, block in BLOCK.findall(section(title)) if not language]


@dataclasses.dataclass
class Hosts:
    """The machines of the guide, on this one: what is typed there starts and ends processes."""

    jars: Path
    folder: Path
    namesrv: str
    driver: Driver
    plans: dict[str, BrokerPlan]
    """Configuration file of the guide -> the broker that has it."""
    places: Mapping[str, str]
    """What stands in the guide -> what it is here."""
    java: Process | None = None
    ours: Process | None = None
    given: list[dict[str, object]] = dataclasses.field(default_factory=list[dict[str, object]])
    sent: list[Sent] = dataclasses.field(default_factory=list["Sent"])

    def type(self, line: str) -> str:
        """Do what one line says; return what it printed. Each has to end well."""
        for there, here in self.places.items():
            line = line.replace(there, here)
        match shlex.split(line):
            case ["sh", "bin/mqbroker", "-c", file]:
                assert self.java is None
                self.java = java_broker(self.jars, self.folder / "java", self.plans[file])
                self.java.start()
            case ["sh", "bin/mqshutdown", "broker"]:
                assert self.java is not None
                self.java.stop(90)
                self.java = None
            case ["systemctl", "stop", "roquet-broker@a"]:
                assert self.ours is not None
                assert self.ours.stop() == 0
                self.ours = None
            case ["roquet", "broker", "-c", file]:
                assert self.ours is None
                folder = self.folder / "ours"
                folder.mkdir(parents=True, exist_ok=True)
                words = ("broker", "-c", str(self.plans[file].write(folder)))
                self.ours = roquet_process("our-broker", folder, *words).start()
            case ["roquet", *words]:
                return self._run(words)
            case _:
                raise AssertionError(line)
        return ""

    def _run(self, words: list[str]) -> str:
        files = {
            name: str(plan.write(self.folder)) for name, plan in self.plans.items() if name in words
        }
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = run([files.get(word, word) for word in words])
        # A machine with one broker and little memory has warnings, no problems.
        assert code == 0, (words, out.getvalue())
        return out.getvalue()

    def write(self, count: int, seed: int) -> None:
        """Send by the Java producer."""
        more = messages(count, 300, seed)
        self.sent += self.driver.send(self.namesrv, TOPIC, more)
        self.given += more

    def stop(self) -> None:
        for process in (self.java, self.ours):
            if process is not None:
                process.kill()

    def until_routed(self, name: str) -> None:
        until("the route", lambda: has_route(self.namesrv, TOPIC, name), 90)


@pytest.fixture
def hosts(jars: Path, driver: Driver, tmp_path: Path) -> Iterator[Hosts]:
    chance = random.Random()
    port = free_port(chance)
    address = f"127.0.0.1:{port}"
    name_server = our_name_server(tmp_path / "namesrv", port).start()
    plan = BrokerPlan(
        "broker-a",
        free_port(chance),
        address,
        tmp_path / "java-store",
        {"brokerFastFailureEnable": "false", "diskMaxUsedSpaceRatio": "95"},
    )
    slave = dataclasses.replace(
        plan,
        port=free_port(chance),
        store=tmp_path / "slave-store",
        extra={
            **plan.extra,
            "brokerId": "1",
            "brokerRole": "SLAVE",
            "slaveReadEnable": "true",
            "haReconnectInterval": "200",
            "slaveSyncInterval": "500",
        },
    )
    beside = dataclasses.replace(
        plan,
        name="broker-r",
        port=free_port(chance),
        store=tmp_path / "beside-store",
        extra={**plan.extra, "autoCreateTopicEnable": "false"},
    )
    made = Hosts(
        jars,
        tmp_path,
        address,
        driver,
        {"/etc/rocketmq/broker.conf": plan, "slave.conf": slave, "broker-r.conf": beside},
        {
            "10.0.0.1:9876": address,
            "10.0.0.2:10911": plan.address,
            "/data/rocketmq/store": str(plan.store),
        },
    )
    try:
        made.type("sh bin/mqbroker -c /etc/rocketmq/broker.conf")
        make_topic(driver, address, plan, TOPIC, 4)
        made.write(60, seed=1)
        yield made
    finally:
        made.stop()
        name_server.kill()


def test_a_broker_changes_its_make_on_its_store_and_back_as_the_guide_says(hosts: Hosts) -> None:
    there, look, back = lines("One broker, on its own store")
    received = hosts.driver.consume(hosts.namesrv, TOPIC, "billing", 60)
    assert_same(hosts.given, hosts.sent, received)
    for line in there:
        hosts.type(line)
    hosts.until_routed("broker-a")
    hosts.write(40, seed=2)
    received = hosts.driver.consume(hosts.namesrv, TOPIC, "billing", 40, linger_s=1.0)
    assert_same(hosts.given[60:], hosts.sent[60:], received)
    shown = [hosts.type(line) for line in look]
    assert "broker-a" in shown[1]
    for line in back:
        hosts.type(line)
    hosts.until_routed("broker-a")
    hosts.write(20, seed=3)
    received = hosts.driver.consume(hosts.namesrv, TOPIC, "billing", 20, linger_s=1.0)
    assert_same(hosts.given[100:], hosts.sent[100:], received)
    received = hosts.driver.consume(hosts.namesrv, TOPIC, "all-of-it", 120)
    assert_same(hosts.given, hosts.sent, received)


def test_a_pair_changes_its_make_and_back_as_the_guide_says(hosts: Hosts) -> None:
    follow, change, again, back = lines("A pair, one side at a time")
    slave = hosts.plans["slave.conf"]
    hosts.places = {**hosts.places, "10.0.0.3:10911": slave.address}
    settings = re.findall(
        r"^```properties\n(.*?)^```",
        section("A pair, one side at a time"),
        re.DOTALL | re.MULTILINE,
    )
    wanted = dict(line.split("=") for line in settings[0].splitlines() if "=" in line)
    here = dict(line.split("=", 1) for line in slave.text().splitlines())
    own = {"brokerIP1", "namesrvAddr", "storePathRootDir"}
    assert {name: here.get(name) for name in wanted if name not in own} == {
        name: value for name, value in wanted.items() if name not in own
    }
    hosts.type(follow[0])
    assert len(follow) == 2
    until("the slave is in sync", lambda: "in sync" in hosts.type(follow[1]), 120)
    # Java gives its tables to whoever asks; ours asks twice a second here.
    until("the slave has the topic", lambda: has_topic(slave), 90)
    for line in change:
        hosts.type(line)
    hosts.until_routed("broker-a")
    until("it is the master", lambda: master_of(hosts) == slave.address, 60)
    hosts.write(30, seed=4)
    received = hosts.driver.consume(hosts.namesrv, TOPIC, "all-of-it", 90)
    # Where a message lies is said with the address of the broker that has stored it.
    ids = sorted(str(one["msg_id"]) for one in hosts.sent)
    assert sorted(str(one["msg_id"]) for one in received) == ids
    _back_to_java(hosts, again, back)


def _back_to_java(hosts: Hosts, again: list[str], back: list[str]) -> None:
    """Have a Java slave with an empty store follow our master and take its place."""
    slave = hosts.plans["slave.conf"]
    java = dataclasses.replace(
        slave, port=free_port(random.Random()), store=hosts.folder / "java-again"
    )
    extra = {**java.extra, "brokerId": "0", "brokerRole": "ASYNC_MASTER"}
    master = dataclasses.replace(java, extra=extra)
    hosts.plans |= {"java-slave.conf": java, "java-master.conf": master}
    hosts.type(again[0])
    until("the Java slave is in sync", lambda: "in sync" in hosts.type(again[1]), 120)
    until("the Java slave has the topic", lambda: has_topic(java), 120)
    for line in back:
        hosts.type(line)
    until("Java's is the master", lambda: master_of(hosts) == java.address, 60)
    hosts.until_routed("broker-a")
    hosts.write(10, seed=6)
    received = hosts.driver.consume(hosts.namesrv, TOPIC, "all-of-it-again", 100)
    assert sorted(str(one["msg_id"]) for one in received) == sorted(
        str(one["msg_id"]) for one in hosts.sent
    )


def has_topic(plan: BrokerPlan) -> bool:
    """Tell whether a slave has the topic in its own table."""
    with BlockingConnection(plan.address) as connection:
        answer = connection.call(Command(RequestCode.GET_ALL_TOPIC_CONFIG), 20.0)
        return f'"{TOPIC}"'.encode() in answer.body


def master_of(hosts: Hosts) -> str | None:
    with admin_of(hosts.namesrv) as admin:
        found = admin.brokers.cluster().brokers.get("broker-a")
        return None if found is None else found.master


def test_a_topic_moves_to_a_broker_beside_as_the_guide_says(hosts: Hosts) -> None:
    ((start, make, close, lag),) = lines("Topic by topic")
    beside = hosts.plans["broker-r.conf"]
    hosts.places = {**hosts.places, "10.0.0.3:10911": beside.address}
    received = hosts.driver.consume(hosts.namesrv, TOPIC, "billing", 60)
    assert_same(hosts.given, hosts.sent, received)
    hosts.type(start)
    until("it is registered", lambda: has_route(hosts.namesrv, "SELF_TEST_TOPIC", "broker-r"), 90)
    hosts.type(make)
    hosts.until_routed("broker-r")
    hosts.type(close)
    until("nobody writes to the old one", lambda: writers(hosts) == {"broker-r"}, 60)
    hosts.write(24, seed=5)
    received = hosts.driver.consume(hosts.namesrv, TOPIC, "billing", 24, linger_s=1.0)
    assert sorted(str(one["msg_id"]) for one in received) == sorted(
        str(one["msg_id"]) for one in hosts.sent[60:]
    )
    until("the group has committed", lambda: no_lag(hosts.type(lag)), 60)
    # And back, as the page says.
    hosts.type(close.replace("-p 4", "-p 6"))
    hosts.type(close.replace("10.0.0.2:10911", "10.0.0.3:10911"))
    until("nobody writes to the new one", lambda: writers(hosts) == {"broker-a"}, 60)


def writers(hosts: Hosts) -> set[str]:
    with admin_of(hosts.namesrv) as admin:
        return {it.broker_name for it in admin.topics.route(TOPIC).queues if it.perm & 2}


def no_lag(text: str) -> bool:
    found = re.search(r"lag of billing: (\d+)", text)
    return found is not None and found[1] == "0"
