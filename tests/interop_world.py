"""What the interoperation tests share: messages, waiting, and the processes of both sides."""

from __future__ import annotations

import dataclasses
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import trustme

from admin_of import admin_of
from roquet.base.errors import Refused, RoquetError
from roquet.testing.java import (
    BrokerPlan,
    Process,
    free_port,
    java_broker,
    java_name_server,
    roquet_process,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from roquet.testing.java import Driver

Sent = dict[str, Any]
Received = dict[str, Any]

JAVA_CLUSTER = "JavaCluster"
OUR_CLUSTER = "RoquetCluster"


def until(what: str, reached: Callable[[], bool], timeout_s: float = 40.0) -> None:
    """Wait for something that other processes do."""
    end = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
        time.sleep(0.1)


def registered(namesrv: str, *brokers: str) -> bool:
    """Tell whether the name server knows the brokers and their topics."""
    try:
        with admin_of(namesrv) as admin:
            route = {broker.broker_name for broker in admin.topics.route("TBW102").brokers}
    except RoquetError:
        return False
    return route >= set(brokers)


def has_route(namesrv: str, topic: str, broker: str) -> bool:
    """Tell whether the topic has a route to the broker."""
    try:
        with admin_of(namesrv) as admin:
            return broker in {one.broker_name for one in admin.topics.route(topic).brokers}
    except Refused:
        return False


def messages(count: int, size: int = 100, seed: int = 1) -> list[dict[str, Any]]:
    """Make messages that compression cannot shrink, each with tag, key and a property."""
    chance = random.Random(seed)
    return [
        {
            "body": b"%d:" % index + chance.randbytes(size),
            "tags": "ab"[index % 2],
            "keys": f"key-{seed}-{index}",
            "properties": {"number": str(index)},
        }
        for index in range(count)
    ]


def by_place(received: Sequence[Received]) -> dict[tuple[int, int], Received]:
    """Arrange messages by queue and offset; none may be there twice."""
    found = {(one["queue"], one["offset"]): one for one in received}
    assert len(found) == len(received), "a message came twice"
    return found


def assert_same(
    given: Sequence[dict[str, Any]], sent: Sequence[Sent], received: Sequence[Received]
) -> None:
    """Check that the reader saw what the writer was told: ids, places, bodies, properties."""
    assert len(sent) == len(given)
    places = by_place(received)
    assert len(places) == len(given)
    for message, answer in zip(given, sent, strict=True):
        assert answer["status"] == "SEND_OK"
        came = places[answer["queue"], answer["offset"]]
        assert came["msg_id"] == answer["msg_id"]
        assert came["offset_msg_id"] == answer["offset_msg_id"]
        assert came["body"] == message["body"]
        assert came["tags"] == message["tags"]
        assert came["keys"] == message["keys"]
        for name, value in message["properties"].items():
            assert came["properties"][name] == value


@dataclasses.dataclass
class Side:
    """A name server and a broker of one make."""

    namesrv: str
    broker: BrokerPlan
    cluster: str

    @property
    def name(self) -> str:
        return self.broker.name


def issue_certificate(folder: Path) -> dict[str, str]:
    """Write an authority's `ca.pem` and a certificate for 127.0.0.1; return a server's settings."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    cert, key = folder / "cert.pem", folder / "key.pem"
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    leaf.private_key_pem.write_to_path(str(key))
    return {"tls.server.certPath": str(cert), "tls.server.keyPath": str(key)}


@dataclasses.dataclass
class World:
    """Both makes, each broker registered at both name servers; and the Java clients."""

    ours: Side
    java: Side
    driver: Driver
    folder: Path
    jars: Path
    processes: list[Process]

    @classmethod
    def start(cls, jars: Path, folder: Path, driver: Driver) -> World:
        chance = random.Random()
        ports = [free_port(chance) for _ in range(4)]
        addresses = [f"127.0.0.1:{port}" for port in ports[:2]]
        both = ";".join(addresses)
        tls = issue_certificate(folder / "tls")
        extra = {"enablePropertyFilter": "true"}
        ours = BrokerPlan(
            "roquet-a",
            ports[2],
            both,
            folder / "our-store",
            {**extra, **tls, "brokerClusterName": OUR_CLUSTER},
        )
        java = BrokerPlan(
            "java-a",
            ports[3],
            both,
            folder / "java-store",
            {**extra, "brokerClusterName": JAVA_CLUSTER},
        )
        processes = [
            our_name_server(folder / "our-namesrv", ports[0], tls),
            java_name_server(jars, folder / "java-namesrv", ports[1]),
            our_broker(folder / "our-broker", ours),
            java_broker(jars, folder / "java-broker", java),
        ]
        world = cls(
            ours=Side(addresses[0], ours, OUR_CLUSTER),
            java=Side(addresses[1], java, JAVA_CLUSTER),
            driver=driver,
            folder=folder,
            jars=jars,
            processes=processes,
        )
        try:
            for process in processes:
                process.start()
            for namesrv in addresses:
                # Java tries its first registration, and then again after ten seconds.
                until("registration", partial(registered, namesrv, ours.name, java.name))
        except BaseException:
            world.stop()
            raise
        return world

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.kill()

    def topic(self, name: str, side: Side, queues: int = 4) -> str:
        """Make a topic on the broker of one side, known to both name servers."""
        make_topic(self.driver, self.java.namesrv, side.broker, name, queues)
        for namesrv in (self.ours.namesrv, self.java.namesrv):
            until(f"route of {name}", partial(has_route, namesrv, name, side.name))
        return name


def make_topic(driver: Driver, namesrv: str, broker: BrokerPlan, name: str, queues: int) -> None:
    """Make a topic on one broker, and wait until the name server knows it."""
    driver.mqadmin(
        *("updateTopic", "-n", namesrv, "-b", broker.address),
        *("-t", name, "-r", str(queues), "-w", str(queues)),
    )
    until(f"route of {name}", partial(has_route, namesrv, name, broker.name))


def our_name_server(folder: Path, port: int, more: Mapping[str, str] | None = None) -> Process:
    flags = ["--listen-port", str(port), "--log-level", "DEBUG"]
    for name, value in (more or {}).items():
        flags += ["-s", f"{name}={value}"]
    return roquet_process("our-namesrv", folder, "namesrv", *flags)


def our_broker(folder: Path, plan: BrokerPlan, *more: str) -> Process:
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ("broker", "-c", str(plan.write(folder)), *more)
    return roquet_process(f"our-{plan.name}", folder, *arguments)
