"""A consumer for which nothing can arrive says so within 3 s: it raises, or it warns once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import TYPE_CHECKING

import pytest

import roquet
from roquet.base.errors import Refused, RoquetError, Unreachable, UsageError
from roquet.client import ConsumerOptions, Credentials, Sql
from roquet.model.group import SubscriptionGroupConfig
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

SOON_S = 3.0


async def refusal(consumer: roquet.client.Consumer) -> RoquetError:
    """Return what the consumer raises, which has to be soon."""
    began_s = time.monotonic()
    async with consumer:
        with pytest.raises(RoquetError) as caught:
            async with asyncio.timeout(30):
                await consumer.receive()
    assert time.monotonic() - began_s < SOON_S + 2  # a busy machine
    return caught.value


@pytest.mark.parametrize("how", ["receive", "loop", "run", "blocking"])
def test_consumer_of_unknown_topic_without_auto_create_raises(tmp_path: Path, how: str) -> None:
    async def use(consumer: roquet.client.Consumer) -> None:
        if how == "receive":
            await consumer.receive(timeout_s=20)
        elif how == "loop":
            async for _ in consumer:
                pass
        else:
            await consumer.run(lambda _: asyncio.sleep(0), concurrency=3)

    def block(url: str) -> None:
        with (
            roquet.sync.connect(url) as mq,
            mq.consumer("g", "nowhere") as consumer,
        ):
            for _ in consumer:
                pass

    async def tell() -> None:
        async with cluster(tmp_path, autoCreateTopicEnable="false") as it:
            url = f"rmq://{it.name_servers}"
            if how == "blocking":
                with pytest.raises(Refused, match="type: roquet topic create nowhere"):
                    await asyncio.to_thread(block, url)
                return
            async with roquet.connect(url) as mq, mq.consumer("g", "nowhere") as one:
                with pytest.raises(Refused, match="type: roquet topic create nowhere") as caught:
                    await asyncio.wait_for(use(one), 20)
            assert caught.value.code == 17

    asyncio.run(tell())


def test_consumer_of_unknown_topic_with_auto_create_warns_once_and_goes_on(tmp_path: Path) -> None:
    async def tell() -> None:
        heard: list[RoquetError] = []
        options = ConsumerOptions(on_error=heard.append)
        async with (
            asyncio.timeout(40),
            cluster(tmp_path) as it,
            roquet.connect(f"rmq://{it.name_servers}") as mq,
            mq.consumer("g", "later", start="earliest", options=options) as consumer,
            mq.producer() as producer,
        ):
            assert await consumer.receive(timeout_s=2.5) is None
            (error,) = heard
            assert isinstance(error, Unreachable)
            assert "its first message makes it" in str(error)
            await producer.send("later", b"x")
            received = await consumer.receive(timeout_s=20)
            assert received is not None
            assert received.body == b"x"
            assert len(heard) == 1

    asyncio.run(tell())


def test_consumer_without_server_warns_once_within_3_s() -> None:
    async def tell(address: str) -> None:
        heard: list[tuple[float, RoquetError]] = []
        began_s = time.monotonic()
        options = ConsumerOptions(
            on_error=lambda error: heard.append((time.monotonic() - began_s, error))
        )
        async with roquet.connect(f"rmq://{address}") as mq:
            consumer = mq.consumer("g", "t", options=options)
            starting = asyncio.create_task(consumer.start())
            await asyncio.sleep(SOON_S)
            await asyncio.wait({starting})
            assert await consumer.receive(timeout_s=0.5) is None
            await consumer.close()
        ((after_s, error),) = heard
        assert after_s < SOON_S
        assert address in str(error)

    with socket.create_server(("127.0.0.1", 0)) as closed:
        away = f"127.0.0.1:{closed.getsockname()[1]}"
    asyncio.run(tell(away))
    # A server that takes connections and never answers.
    with socket.create_server(("127.0.0.1", 0)) as mute:
        asyncio.run(tell(f"127.0.0.1:{mute.getsockname()[1]}"))


@pytest.mark.parametrize(
    ("credentials", "hint"),
    [
        (Credentials("reader-one", "wrong-secret"), "check ROQUET_ACCESS_KEY"),
        (None, "set ROQUET_ACCESS_KEY and ROQUET_SECRET_KEY"),
        (Credentials("reader-one", "12345678"), "an administrator has to grant it"),
    ],
    ids=["wrong secret", "no account", "no permission"],
)
def test_consumer_that_may_not_read_raises_what_to_do(
    tmp_path: Path, credentials: Credentials | None, hint: str
) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(
        "accounts:\n- accessKey: reader-one\n  secretKey: '12345678'\n  admin: false\n"
        "  defaultTopicPerm: DENY\n  defaultGroupPerm: SUB\n"
        "- accessKey: root_user\n  secretKey: '12345678'\n  admin: true\n"
    )

    settings = {
        "aclEnable": "true",
        "rocketmqHome": str(tmp_path),
        "rocketmq.acl.plain.file": file.name,
    }

    async def tell() -> None:
        async with cluster(tmp_path, **settings) as it:
            url = f"rmq://{it.name_servers}"
            root = Credentials("root_user", "12345678")
            async with roquet.connect(url, credentials=root) as mq:
                await mq.admin().topics.create("secret", 1)
            async with roquet.connect(url, credentials=credentials) as mq:
                error = await refusal(mq.consumer("g", "secret"))
            assert isinstance(error, Refused)
            assert hint in str(error)
            assert "Exception" not in str(error)

    asyncio.run(tell())


def test_sql_filter_that_the_broker_does_not_serve_raises_the_setting(tmp_path: Path) -> None:
    async def tell() -> None:
        async with (
            cluster(tmp_path) as it,
            roquet.connect(f"rmq://{it.name_servers}") as mq,
        ):
            await mq.admin().topics.create("t", 1)
            error = await refusal(mq.consumer("g", {"t": Sql("a > 1")}))
            assert "enablePropertyFilter=true" in str(error)
            with pytest.raises(UsageError, match="t: "):
                mq.consumer("g", {"t": Sql("a >>> 1")})

    asyncio.run(tell())


def test_consumer_of_unknown_group_without_auto_create_raises(tmp_path: Path) -> None:
    async def tell() -> None:
        async with (
            cluster(tmp_path, autoCreateSubscriptionGroup="false") as it,
            roquet.connect(f"rmq://{it.name_servers}") as mq,
        ):
            await mq.admin().topics.create("t", 2)
            error = await refusal(mq.consumer("strangers", "t"))
            assert "autoCreateSubscriptionGroup" in str(error)
            await mq.admin().groups.put(SubscriptionGroupConfig(name="friends"))
            async with mq.consumer("friends", "t") as consumer:
                assert await consumer.receive(timeout_s=0.5) is None

    asyncio.run(tell())


def test_deleted_topic_ends_its_consumer(tmp_path: Path) -> None:
    async def tell() -> None:
        async with (
            cluster(tmp_path, autoCreateTopicEnable="false") as it,
            roquet.connect(f"rmq://{it.name_servers}") as mq,
        ):
            await mq.admin().topics.create("t", 1)
            options = ConsumerOptions(suspend_s=1.0)
            async with mq.consumer("g", "t", options=options) as consumer:
                assert await consumer.receive(timeout_s=0.5) is None
                await mq.admin().topics.delete("t")
                with pytest.raises(Refused, match="roquet topic create t"):
                    await consumer.receive(timeout_s=20)

    asyncio.run(tell())


@contextlib.asynccontextmanager
async def dropping_server() -> AsyncGenerator[str]:
    """A server that closes connections at the first bytes, as one does that wants TLS."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_peer_that_drops_connections_is_not_said_to_want_tls() -> None:
    async def tell() -> None:
        async with dropping_server() as address, roquet.connect(f"rmq://{address}") as mq:
            with pytest.raises(Unreachable) as caught:
                await mq.admin().topics.names()
            assert "TLS" not in str(caught.value)

    asyncio.run(tell())


@pytest.mark.parametrize(
    ("address", "why"),
    [("127.0.0.1:1", "Connect call failed"), ("nosuch.invalid:9876", "Name or service not known")],
)
def test_send_that_reaches_nobody_in_its_time_names_what_was_in_the_way(
    address: str, why: str
) -> None:
    with (
        roquet.sync.connect(f"rmq://{address}") as mq,
        mq.producer("g") as producer,
        pytest.raises(roquet.Unreachable, match=why),
    ):
        producer.send("t", b"x")
