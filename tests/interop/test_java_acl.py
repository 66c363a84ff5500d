"""Access control with RocketMQ 4.9.7: its clients and tools with our broker, ours with its own."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import random
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import roquet
from interop_world import our_broker, our_name_server, registered, until
from roquet.base.errors import Refused, UsageError
from roquet.testing.java import (
    OLD_VERSION,
    PROGRAMS,
    BrokerPlan,
    Driver,
    JavaError,
    Process,
    fetch_jars,
    free_port,
    java_command,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

USER = roquet.Credentials("user-one", "secret-of-user")
ADMIN = roquet.Credentials("admin-one", "secret-of-admin")
ACCOUNTS = f"""\
accounts:
- accessKey: {USER.access_key}
  secretKey: {USER.secret_key}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - Signed=PUB|SUB
  - Readable=SUB
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  admin: true
"""
BODIES = [b"%d:" % number + bytes(100) for number in range(12)]
LOG_FILE = '<configuration><root level="WARN"/></configuration>'


@dataclasses.dataclass
class Signed:
    """Our open name server, our broker and the Java one of 4.9, both with accounts."""

    namesrv: str
    ours: BrokerPlan
    java: BrokerPlan
    driver: Driver
    tools: Path
    """Where the Java tools look for credentials."""

    def ask(self, what: str, who: roquet.Credentials | None, **more: Any) -> Any:
        request = {"do": what, "namesrv": self.namesrv, "group": "signed", **more}
        if who is not None:
            request |= {"key": who.access_key, "secret": who.secret_key}
        return self.driver.ask(request, 90.0)

    def mqadmin(self, who: roquet.Credentials, *arguments: str) -> str:
        self.tools.write_text(f"accessKey: {who.access_key}\nsecretKey: {who.secret_key}\n")
        return str(self.ask("mqadmin", None, args=list(arguments)))


def home(folder: Path) -> Path:
    """Make a RocketMQ home with accounts and silent logs."""
    conf = folder / "conf"
    conf.mkdir(parents=True)
    accounts = conf / "plain_acl.yml"
    accounts.touch(0o600)
    accounts.write_text(ACCOUNTS)
    for name in ("broker", "tools"):
        (conf / f"logback_{name}.xml").write_text(LOG_FILE)
    return folder


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Signed]:
    folder = tmp_path_factory.mktemp("signed")
    jars = fetch_jars(OLD_VERSION)
    chance = random.Random()
    ports = [free_port(chance) for _ in range(3)]
    namesrv = f"127.0.0.1:{ports[0]}"
    extra = {"aclEnable": "true"}
    ours = BrokerPlan("signed-ours", ports[1], namesrv, folder / "our-store", extra)
    java = BrokerPlan("signed-java", ports[2], namesrv, folder / "java-store", extra)
    java_home = home(folder / "java")
    main = "org.apache.rocketmq.broker.BrokerStartup"
    config = str(java.write(java_home))
    homes = [f"-Drocketmq.home.dir={java_home}"]
    command = java_command(jars, java_home, main, "-c", config, heap="384m")
    command[1:1] = homes
    processes = [
        our_name_server(folder / "namesrv", ports[0]),
        our_broker(home(folder / "ours"), ours),
        Process("signed-java", command, java_home),
    ]
    driver = Driver(
        jars,
        folder / "driver",
        homes,
        main="SignedDriver",
        programs=PROGRAMS.with_name("java4"),
    )
    try:
        for process in processes:
            process.start()
        until("registration", partial(registered, namesrv, ours.name, java.name))
        yield Signed(namesrv, ours, java, driver, java_home / "conf" / "tools.yml")
    finally:
        driver.close()
        for process in reversed(processes):
            process.kill()


def make_topic(signed: Signed, broker: BrokerPlan, name: str) -> str:
    command = ("updateTopic", "-n", signed.namesrv, "-b", broker.address, "-t", name)
    shown = signed.mqadmin(ADMIN, *command, "-r", "2", "-w", "2")
    assert "success" in shown, shown

    async def route() -> bool:
        async with roquet.connect(f"rmq://{signed.namesrv}") as mq:
            try:
                found = await mq.admin().topics.route(name)
            except Refused:
                return False
            return any(one.broker_name == broker.name for one in found.brokers)

    until(f"route of {name}", lambda: asyncio.run(route()))
    return name


def encoded(bodies: Sequence[bytes]) -> list[str]:
    return [base64.b64encode(body).decode() for body in bodies]


def test_java_clients_that_sign_send_to_us_and_consume(signed: Signed) -> None:
    topic = make_topic(signed, signed.ours, "Signed")
    sent = signed.ask("send", USER, topic=topic, bodies=encoded(BODIES))
    assert sent == ["SEND_OK"] * len(BODIES)
    wanted = {"topic": topic, "count": len(BODIES), "timeout_ms": 40_000}
    received = signed.ask("consume", USER, **wanted)
    assert sorted(received) == sorted(encoded(BODIES))


def test_java_clients_are_refused_in_the_words_of_a_java_broker(signed: Signed) -> None:
    make_topic(signed, signed.ours, "Readable")
    stranger = roquet.Credentials(USER.access_key, "not-the-secret")
    for who, said in (
        (None, "No accessKey is configured"),
        (stranger, "Check signature failed for accessKey=user-one"),
        (USER, "No default permission for topic:Readable"),
    ):
        with pytest.raises(JavaError, match=said):
            signed.ask("send", who, topic="Readable", bodies=encoded(BODIES[:1]))


def test_java_clients_that_sign_nothing_send_to_us_and_consume(
    signed: Signed, tmp_path: Path
) -> None:
    store, port = tmp_path / "store", free_port(random.Random())
    plan = BrokerPlan("open-ours", port, signed.namesrv, store, {"autoCreateTopicEnable": "false"})
    broker = our_broker(tmp_path / "home", plan).start()
    try:
        topic = make_topic(signed, plan, "Unsigned")
        sent = signed.ask("send", None, topic=topic, bodies=encoded(BODIES))
        assert sent == ["SEND_OK"] * len(BODIES)
        wanted = {"topic": topic, "count": len(BODIES), "timeout_ms": 40_000}
        received = signed.ask("consume", None, **wanted)
        assert sorted(received) == sorted(encoded(BODIES))
    finally:
        broker.kill()


def test_mqadmin_changes_our_accounts(signed: Signed) -> None:
    where = ("-n", signed.namesrv, "-b", signed.ours.address)
    names = ("-a", "made-by-tool", "-s", "secret-of-made")
    refused = signed.mqadmin(USER, "updateAclConfig", *where, *names)
    assert "Need admin permission for request code=50" in refused
    made = signed.mqadmin(ADMIN, "updateAclConfig", *where, *names, "-t", "Tools=PUB|SUB")
    assert "success" in made, made
    tool = roquet.Credentials("made-by-tool", "secret-of-made")
    make_topic(signed, signed.ours, "Tools")
    assert signed.ask("send", tool, topic="Tools", bodies=encoded(BODIES[:1])) == ["SEND_OK"]
    versions = signed.mqadmin(ADMIN, "clusterAclConfigVersion", *where)
    assert signed.ours.name in versions
    white = signed.mqadmin(ADMIN, "updateGlobalWhiteAddr", *where, "-g", "10.7.*.*,10.8.8.8")
    assert "success" in white, white
    shown = signed.mqadmin(ADMIN, "getAclConfig", *where)
    assert "made-by-tool" in shown
    assert "10.7.*.*" in shown
    assert "secret-of" not in shown
    gone = signed.mqadmin(ADMIN, "deleteAclConfig", *where, "-a", "made-by-tool")
    assert "success" in gone, gone
    with pytest.raises(JavaError, match="Check signature failed for accessKey=made-by-tool"):
        signed.ask("send", tool, topic="Tools", bodies=encoded(BODIES[:1]))


def test_our_client_delays_by_exact_levels_at_an_old_broker(signed: Signed) -> None:
    topic = make_topic(signed, signed.java, "Signed3")

    async def main() -> None:
        async with roquet.connect(f"rmq://{signed.namesrv}", credentials=ADMIN) as mq:
            async with mq.producer("ours") as producer:
                sent_ms = time.time() * 1000
                await producer.send(topic, b"level 2", delay=timedelta(seconds=5))
                with pytest.raises(UsageError, match="no delay level of 1500 ms"):
                    await producer.send(topic, b"no level", delay=1.5)
                with pytest.raises(UsageError, match="no timers"):
                    await producer.send(topic, b"a time", at=datetime.now(UTC))
            options = roquet.ConsumerOptions(handover_s=0.0)
            consumer = mq.consumer("late", topic, start="earliest", options=options)
            async with asyncio.timeout(60), consumer:
                received = await consumer.receive()
                assert received is not None
                assert received.body == b"level 2"
                # At this broker, whose levels are short, the second one is a second.
                assert received.message.store_timestamp >= sent_ms + 999
                assert received.properties["REAL_TOPIC"] == topic
                assert await consumer.receive(0.5) is None

    asyncio.run(main())


def test_our_client_signs_for_the_java_broker(signed: Signed) -> None:
    topic = make_topic(signed, signed.java, "Signed2")
    where = ("-n", signed.namesrv, "-b", signed.java.address)
    keys = ("-a", USER.access_key, "-s", USER.secret_key)
    # An update drops what it does not name: the group needs its permission for the heartbeat.
    grants = ("-t", f"{topic}=PUB|SUB", "-g", "ours_too=SUB")
    changed = signed.mqadmin(ADMIN, "updateAclConfig", *where, *keys, *grants)
    assert "success" in changed, changed

    async def main() -> list[bytes]:
        url = f"rmq://{signed.namesrv}"
        found: list[bytes] = []
        async with roquet.connect(url, credentials=USER) as mq:
            async with mq.producer("ours") as producer:
                for body in BODIES:
                    await producer.send(topic, body)
            consumer = mq.consumer("ours_too", [topic], start="earliest")
            async with asyncio.timeout(60), consumer:
                async for message in consumer:
                    found.append(message.body)
                    message.ack()
                    if len(found) == len(BODIES):
                        break
        async with roquet.connect(url) as nobody, nobody.producer("ours") as producer:
            with pytest.raises(Refused, match="No accessKey is configured"):
                await producer.send(topic, b"x")
        return found

    assert sorted(asyncio.run(main())) == sorted(BODIES)
