"""URLs of clusters: credentials that nothing shows, TLS, and names within a namespace."""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import TYPE_CHECKING

import pytest

import roquet
from roquet.base.errors import Refused, UsageError
from roquet.client import ConsumerOptions, Credentials, TransactionState
from roquet.client._cluster import target
from roquet.client._cluster.namespace import Namespace
from roquet.model.message import Message
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.client import StoredMessage

SECRET = "canary-12345678"
FAST = ConsumerOptions(rebalance_every_s=0.5, commit_every_s=0.2, handover_s=0.0)


@pytest.mark.parametrize(
    ("url", "key", "secret"),
    [
        ("rmq://me:s3@a", "me", "s3"),
        ("me:s3@a;b:1", "me", "s3"),
        ("rmqs://me:a%40b%2Fc%3A@[::1]:7?namespace=shop", "me", "a@b/c:"),
        ("rmq://me:a@b:c@host", "me", "a@b:c"),
        ("rmq://m%c3%a9:x@host", "m\xe9", "x"),
    ],
)
def test_credentials_of_a_url_are_read(url: str, key: str, secret: str) -> None:
    found = target.parse(url).credentials
    assert found == Credentials(key, secret)
    assert secret not in repr(target.parse(url)) or len(secret) < 3


def test_parts_of_a_url_are_told_apart() -> None:
    plain, full = target.parse("rmq://a"), target.parse("rmqs://k:s@a:1;b/?namespace=shop")
    assert (plain.credentials, plain.is_tls, plain.namespace) == (None, False, "")
    assert (full.is_tls, full.namespace) == (True, "shop")
    assert full.name_servers == ("a:1", "b:9876")


@pytest.mark.parametrize(
    "url",
    [
        f"rmq://key:{SECRET}@",
        f"rmq://key:{SECRET}@a:x",
        f"rmq://key:{SECRET}@a:99999",
        f"rmq://key:{SECRET}@a?x=y",
        f"rmq://key:{SECRET}@a?namespace=",
        f"rmq://key:{SECRET}@a?namespace=a%b",
        f"rmq://key:{SECRET}@a?namespace=a&tls=1",
        f"rmq://key:{SECRET}@a/path",
        f"rmq://key:{SECRET}@a#x",
        f"rmq://{SECRET}@a",
        f"rmq://:{SECRET}@a",
        f"rmq://{SECRET}:@a",
        f"rmq://key:%ff{SECRET}@a",
        f"rmq://key:{SECRET}\n@a",
        f"ftp://key:{SECRET}@a",
        f"rmq://ftp://key:{SECRET}@a://b",
        f"http://key:{SECRET}@a:8080/nsaddr",
        f"{SECRET}@",
    ],
)
def test_bad_urls_are_refused_without_their_secret(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        roquet.connect(url)
    assert SECRET not in "".join(traceback.format_exception_only(caught.value))
    chain = [caught.value.__cause__, caught.value.__context__]
    assert not any(SECRET in repr(error) for error in chain if not isinstance(error, UnicodeError))


def test_two_sources_of_credentials_or_tls_are_refused() -> None:
    with pytest.raises(UsageError, match="not both"):
        roquet.connect("rmq://k:s@a", credentials=Credentials("k", "s"))
    with pytest.raises(UsageError, match="asks for TLS"):
        roquet.connect("rmqs://a", tls=False)


def test_names_are_wrapped_once_and_as_in_java() -> None:
    it = Namespace("shop")
    assert it.topic("orders") == it.topic("shop%orders") == "shop%orders"
    assert it.topic("%RETRY%g") == it.topic("%RETRY%shop%g") == "%RETRY%shop%g"
    assert it.topic("%DLQ%g") == "%DLQ%shop%g"
    for system in ("TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_x", "%LMQ%light"):
        assert it.topic(system) == system
    assert it.group("CID_RMQ_SYS_x") == "CID_RMQ_SYS_x"
    assert it.group("g") == "shop%g"
    assert it.message(Message("orders", b"x")) == Message("shop%orders", b"x")
    none = Namespace()
    assert (none.topic("orders"), none.group("g")) == ("orders", "g")


@pytest.mark.parametrize("name", ["a b", "a%", "x" * 65, "\u00e9"])
def test_bad_namespaces_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="namespace"):
        Namespace(name)


def accounts(folder: Path) -> dict[str, str]:
    """Write the accounts of a broker where `clerk-one` may use one topic and one group alone."""
    (folder / "plain_acl.yml").write_text(
        f"accounts:\n- accessKey: clerk-one\n  secretKey: '{SECRET}'\n  admin: false\n"
        "  defaultTopicPerm: DENY\n  defaultGroupPerm: DENY\n"
        "  topicPerms:\n  - shop%orders=PUB|SUB\n  groupPerms:\n  - shop%billing=SUB\n"
        f"- accessKey: root_user\n  secretKey: '{SECRET}'\n  admin: true\n"
    )
    return {
        "aclEnable": "true",
        "rocketmqHome": str(folder),
        "rocketmq.acl.plain.file": "plain_acl.yml",
    }


def test_an_account_of_one_namespace_works_and_its_secret_is_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = accounts(tmp_path)

    async def tell() -> None:
        async with cluster(tmp_path, **settings) as it:
            at = it.name_servers
            async with roquet.connect(f"rmq://root_user:{SECRET}@{at}") as mq:
                await mq.admin().topics.create("shop%orders", 2)
            url = f"rmq://clerk-one:{SECRET}@{at}?namespace=shop"
            async with roquet.connect(url) as mq, mq.producer("till") as producer:
                sent = await producer.send("orders", b"once", order_key="k")
                assert sent.queue.topic == "shop%orders"
                await producer.send_batch("orders", [b"b1", Message("orders", b"b2")])
                found: list[tuple[str, bytes, int]] = []
                consumer = mq.consumer("billing", "orders", start="earliest", options=FAST)
                async with asyncio.timeout(30), consumer:
                    while len(found) < 4:
                        received = await consumer.receive()
                        assert received is not None
                        found.append((received.topic, received.body, received.attempt))
                        if found[-1][1:] == (b"once", 1):
                            received.retry(1)
                        else:
                            received.ack()
                assert sorted(found) == [
                    ("orders", b"b1", 1),
                    ("orders", b"b2", 1),
                    ("orders", b"once", 1),
                    ("orders", b"once", 2),
                ]
                with pytest.raises(Refused):
                    await producer.send("wages", b"x")
                assert SECRET not in f"{mq!r} {producer!r} {consumer!r}"
            async with roquet.connect(f"rmq://clerk-one:{SECRET}x@{at}") as mq:
                with pytest.raises(Refused) as caught:
                    async with mq.producer() as producer:
                        await producer.send("shop%orders", b"x")
                assert SECRET not in str(caught.value)

    asyncio.run(tell())
    assert SECRET not in caplog.text


def test_every_kind_of_consumer_and_transaction_knows_the_namespace(tmp_path: Path) -> None:
    checked: list[str] = []

    async def check(message: StoredMessage) -> TransactionState:
        checked.append(message.topic)
        return TransactionState.COMMIT

    async def tell() -> None:
        changes = {"transactionTimeOut": "200", "transactionCheckInterval": "200"}
        async with (
            asyncio.timeout(40),
            cluster(tmp_path, **changes) as it,
            roquet.connect(f"rmq://{it.name_servers}?namespace=shop") as mq,
        ):
            await mq.admin().topics.create("shop%orders", 1)
            async with mq.transaction_producer("till", check) as producer:
                (await producer.begin("orders", b"tx")).leave_open()
                async with mq.simple_consumer("pop", "orders", start="earliest") as simple:
                    (popped,) = await simple.receive(1, wait_s=20)
                    assert (popped.topic, popped.body) == ("orders", b"tx")
                    longer = await simple.change_invisible(popped, 30)
                    await simple.ack(longer)
            async with mq.pull_consumer("audit") as pull:
                await pull.assign(await pull.queues("orders"), start="earliest")
                (message,) = await pull.poll(1)
                assert (message.topic, message.body) == ("orders", b"tx")
                await pull.commit()
            async with mq.consumer("fifo", "orders", start="earliest", ordered=True) as ordered:
                received = await ordered.receive(20)
                assert received is not None
                assert received.topic == "orders"
                received.ack()
            groups = await mq.admin().groups.names()
            assert {"shop%pop", "shop%audit", "shop%fifo"} <= set(groups)

    asyncio.run(tell())
    assert set(checked) == {"orders"}
