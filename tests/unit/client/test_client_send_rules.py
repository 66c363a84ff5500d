"""What a send accepts, and how long it tries."""

from __future__ import annotations

import array
import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

import roquet
from roquet.base.errors import Unreachable, UsageError
from roquet.client import ProducerOptions
from roquet.client._sending.encode import compose, encode_one
from roquet.model.message import Message
from roquet.remoting.refusals import refused
from roquet.testing.cluster import running_broker, running_name_server
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("body", [5, [1, 2, 3], None, {"a": 1}, 1.5, ("x",), object()])
def test_send_of_what_is_not_bytes_like_is_refused(body: Any) -> None:
    with pytest.raises(UsageError, match="a body is bytes or str, not"):
        compose("t", body)
    with pytest.raises(UsageError, match="bytes"):
        encode_one(Message("t", body), "id", ProducerOptions())


def test_send_takes_bytes_like_and_text() -> None:
    given: list[Any] = [b"ab", bytearray(b"ab"), memoryview(b"ab"), "ab", array.array("B", b"ab")]
    assert {compose("t", body).body for body in given} == {b"ab"}
    with pytest.raises(UsageError, match="valid Unicode"):
        compose("t", "\ud800")


@pytest.mark.parametrize("level", [-1, 19, 99])
def test_delay_level_that_no_broker_has_is_refused(level: int) -> None:
    with pytest.raises(UsageError, match=r"not within 0\.\.18"):
        encode_one(Message("t", b"x", delay_level=level), "id", ProducerOptions())


def test_delay_level_of_brokers_with_more_levels_is_taken() -> None:
    encoded = encode_one(Message("t", b"x", delay_level=19), "id", ProducerOptions(delay_levels=20))
    assert "DELAY\x0119" in encoded.properties


def test_send_during_a_restart_uses_its_time(tmp_path: Path) -> None:
    async def tell() -> None:
        async with running_name_server(tmp_path / "n") as name_server:
            address = f"127.0.0.1:{name_server.server.port}"
            async with roquet.connect(f"rmq://{address}") as mq, mq.producer() as producer:
                at = {"listenPort": str(free_port())}
                async with running_broker(tmp_path / "b", address, changes=at):
                    await mq.admin().topics.create("t", 1)
                    await producer.send("t", b"before")
                sending = asyncio.create_task(producer.send("t", b"during", timeout_s=20))
                await asyncio.sleep(0.3)
                assert not sending.done()
                async with running_broker(tmp_path / "b", address, changes=at):
                    assert (await sending).queue_offset == 1
                began_s = time.monotonic()
                with pytest.raises(Unreachable):
                    await producer.send("t", b"after", timeout_s=0.5)
                assert time.monotonic() - began_s >= 0.4

    asyncio.run(tell())


def test_send_without_a_broker_says_so_and_blames_no_name_server(tmp_path: Path) -> None:
    async def tell() -> None:
        async with running_name_server(tmp_path) as name_server:
            address = f"127.0.0.1:{name_server.server.port}"
            async with roquet.connect(f"rmq://{address}") as mq, mq.producer() as producer:
                for timeout_s in (0.3, 0.5, 0.7, 1.1):
                    # The last try has no time for anything, and would blame whom it asks first.
                    with pytest.raises(Unreachable, match="no broker is registered at"):
                        await producer.send("t", b"x", timeout_s=timeout_s)

    asyncio.run(tell())


def test_refusals_name_no_java_class_and_no_foreign_page() -> None:
    given = "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=k"
    assert str(refused(1, given)) == (
        "code 1: Check signature failed for accessKey=k; the access key or its secret is wrong:"
        " check ROQUET_ACCESS_KEY and ROQUET_SECRET_KEY"
    )
    # What is wrong with a disabled user is not its password.
    shown = str(refused(16, "User:bob is disabled."))
    assert shown.startswith("code 16: User:bob is disabled; an administrator has to enable it")
    page = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    shown = str(refused(17, f"topic[t] not exist, apply first please!{page}"))
    assert "http" not in shown
    assert "roquet topic create" in shown
