"""TLS between the two makes: Java's clients and ours, each with the other's servers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import roquet
from interop_world import assert_same, messages
from roquet.base.errors import Unreachable
from roquet.testing.java import Driver, JavaError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from interop_world import World


@pytest.fixture(scope="module")
def secure(jars: Path, world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    flags = [
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={world.folder / 'tls' / 'ca.pem'}",
    ]
    built = Driver(jars, tmp_path_factory.mktemp("secure-driver"), flags)
    yield built
    built.close()


def test_java_clients_and_tools_over_tls(world: World, secure: Driver) -> None:
    topic = world.topic("Secure", world.ours)
    given = messages(20, size=20_000, seed=31)
    sent = secure.send(world.ours.namesrv, topic, given)
    received = secure.consume(world.ours.namesrv, topic, "secure", len(given))
    assert_same(given, sent, received)
    assert world.ours.name in secure.mqadmin("clusterList", "-n", world.ours.namesrv)
    # What was sent in secret is there for those who came without.
    again = world.driver.consume(world.ours.namesrv, topic, "plain", len(given))
    assert_same(given, sent, again)


def test_a_java_client_that_knows_another_authority_gets_nothing(
    jars: Path, world: World, tmp_path: Path
) -> None:
    topic = world.topic("SecureNot", world.ours)
    flags = [
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        "-Dtls.client.authServer=true",
    ]
    stranger = Driver(jars, tmp_path, flags)
    try:
        with pytest.raises(JavaError):
            stranger.send(world.ours.namesrv, topic, messages(1))
    finally:
        stranger.close()


def test_our_client_and_java_servers_over_tls(world: World) -> None:
    """Java's servers show a certificate that they made themselves."""
    topic = world.topic("SecureJava", world.java)
    given = messages(20, size=20_000, seed=32)

    async def main() -> list[bytes]:
        tls = roquet.TlsOptions(verify=False)
        url = f"rmq://{world.java.namesrv}"
        found: list[bytes] = []
        async with roquet.connect(url, tls=tls) as mq:
            async with mq.producer("secure_ours") as producer:
                for one in given:
                    await producer.send(topic, one["body"], tag=one["tags"])
            consumer = mq.consumer("secure_ours", {topic: "*"}, start="earliest")
            async with asyncio.timeout(60), consumer:
                async for message in consumer:
                    found.append(message.body)
                    message.ack()
                    if len(found) == len(given):
                        break
        async with roquet.connect(url, tls=True) as mq:
            with pytest.raises(Unreachable, match=r"(?i)certificate"):
                await mq.admin().topics.names()
        return found

    assert sorted(asyncio.run(main())) == sorted(one["body"] for one in given)
