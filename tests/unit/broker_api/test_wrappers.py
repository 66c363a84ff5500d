"""What is around a call of any front: who may, what is counted and logged, what plugins say."""

from __future__ import annotations

import asyncio
import random
import urllib.request
from typing import TYPE_CHECKING

import pytest

from local_front import LocalFront
from roquet.acl import needs
from roquet.broker.api.caller import Caller
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.send import SendRequest
from roquet.broker.operations.wrapping import Operation, wrapped
from roquet.model.topic import TopicConfig
from roquet.protocol.pop.handle import ReceiptHandle
from roquet.testing.cluster import running_broker
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.broker.app import Broker
    from roquet.broker.operations.table import Operations
    from roquet.broker.operations.wrapping import End

ACCOUNTS = """\
accounts:
- accessKey: the-writer
  secretKey: secret-of-writer
  topicPerms: [orders=PUB]
- accessKey: the-reader
  secretKey: secret-of-reader
  groupPerms: [readers=SUB]
  topicPerms: [orders=SUB]
- accessKey: the-admin
  secretKey: secret-of-admin
  admin: true
"""


def run(
    folder: Path, tell: Callable[[Operations, Broker], Awaitable[None]], **changes: str
) -> None:
    """Run a broker with accounts, and tell it a story; `changes` are settings."""
    accounts = folder / "conf" / "plain_acl.yml"
    accounts.parent.mkdir()
    accounts.touch(0o600)
    accounts.write_text(ACCOUNTS)
    changes |= {"aclEnable": "true", "rocketmqHome": str(folder)}

    async def main() -> None:
        async with running_broker(folder, changes=changes) as broker:
            broker.metadata.topics.put(TopicConfig(name="orders", read_queues=1, write_queues=1))
            await tell(broker.operations, broker)

    asyncio.run(main())


async def denied(asked: Awaitable[object]) -> str:
    """Return why a call was refused for want of a right."""
    with pytest.raises(Refusal) as refused:
        await asked
    assert refused.value.reason is Reason.ACCOUNT_REFUSED
    return refused.value.text


def test_front_with_rights_sends_receives_commits_queries_pops_and_makes_topics(
    tmp_path: Path,
) -> None:
    async def tell(calls: Operations, broker: Broker) -> None:
        writer = LocalFront(calls, access_key="the-writer")
        reader = LocalFront(calls, access_key="the-reader")
        stored = await writer.send("orders", b"one")
        assert stored.queue_offset == 0
        while broker.store.dispatch_behind():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert (await reader.receive("orders", 0)).next_offset == 1
        popped = await reader.pop("orders")
        ((topic, queue_id, start, offsets),) = popped.taken
        assert (topic, queue_id, start, list(offsets)) == ("orders", 0, 0, [0])
        times = (popped.pop_time_ms, 60_000, popped.revive_queue)
        handle = ReceiptHandle(0, *times, "0", broker.identity.name, queue_id, 0)
        await reader.ack("orders", 0, handle.encode())
        with pytest.raises(Refusal) as unread:
            await reader.ack("orders", 0, "no handle")
        assert unread.value.reason is not Reason.ACCOUNT_REFUSED
        reader.commit("orders", 1)
        assert reader.committed("orders") == 1
        assert len(reader.query("orders", "none").records) == 0
        await LocalFront(calls, access_key="the-admin").make_topic("made")
        assert broker.metadata.topics.get("made") is not None

    run(tmp_path, tell)


def test_front_without_rights_is_refused_whatever_it_calls(tmp_path: Path) -> None:
    async def tell(calls: Operations, broker: Broker) -> None:
        writer = LocalFront(calls, access_key="the-writer")
        reader = LocalFront(calls, access_key="the-reader")
        no_topic = "No default permission for topic:orders"
        assert no_topic in await denied(reader.send("orders", b"x"))
        assert no_topic in await denied(reader.send_batch("orders", b"x"))
        assert no_topic in await denied(writer.receive("orders", 0))
        assert no_topic in await denied(writer.pop("orders"))
        assert no_topic in await denied(writer.ack("orders", 0, "any"))
        assert "permission for group:readers" in await denied(writer.send_back(0))
        assert "No accessKey" in await denied(LocalFront(calls).send("orders", b"x"))
        text = "Need admin permission for update_and_create_topic, but accessKey=the-writer is not"
        assert text in await denied(writer.make_topic("other"))
        with pytest.raises(Refusal, match=no_topic):
            writer.commit("orders", 1)
        with pytest.raises(Refusal, match=no_topic):
            writer.query("orders", "k")
        assert broker.store.max_offset("orders", 0) <= 0
        assert broker.metadata.topics.get("other") is None

    run(tmp_path, tell)


def test_refusals_of_a_front_are_logged_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = str(free_port(random.Random()))

    async def tell(calls: Operations, _: Broker) -> None:
        await LocalFront(calls, access_key="the-writer").send("orders", b"one")
        reader = LocalFront(calls, access_key="the-reader")
        await denied(reader.send("orders", b"x"))
        await denied(reader.make_topic("other"))
        lines = [it.message for it in caplog.records if it.name.endswith("operations.records")]
        assert [line.partition(" of ")[0] for line in lines] == [
            "send_message",
            "update_and_create_topic",
        ]
        assert "127.0.0.1:1 by local, account 'the-reader' refused: " in lines[0]
        assert lines[0].endswith("No default permission for topic:orders")
        counts = await asyncio.to_thread(counted, port)
        assert counts == {
            ("send_message", "success"): 1,
            ("send_message", "system_error"): 1,
            ("update_and_create_topic", "system_error"): 1,
        }

    run(tmp_path, tell, metricsExporterType="PROM", metricsPromExporterPort=port)


def counted(port: str) -> dict[tuple[str, str], float]:
    """Return how many calls of the front the metrics show, by request and response."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    shown = [it for it in lines if it.startswith("rocketmq_rpc_latency_milliseconds_count")]
    return {
        (label("request_code", it), label("response_code", it)): float(it.split()[-1])
        for it in shown
        if label("protocol_type", it) == "local"
    }


def label(name: str, line: str) -> str:
    """Return the value of a label of a line."""
    return line.partition(f'{name}="')[2].partition('"')[0]


class _Wrapper:
    """Notes what it sees; refuses what it is told to."""

    def __init__(self, name: str, seen: list[str], refuses: str = "") -> None:
        self._name = name
        self._seen = seen
        self._refuses = refuses

    def begin(self, operation: Operation, request: object, caller: Caller) -> End:
        del request, caller
        self._seen.append(f"{self._name} before {operation.name}")
        if self._refuses:
            raise Refusal(Reason.FORBIDDEN, self._refuses)

        def end(result: object, error: Exception | None) -> None:
            self._seen.append(f"{self._name} after {result} {error}")

        return end


OPERATION = Operation("send_message", lambda it: needs.publish(it.topic))
REQUEST = SendRequest(topic="t", body=b"x", properties={}, born_ms=1)
CALLER = Caller(address="127.0.0.1:1")


def test_wrappers_have_their_turn_in_order_and_in_reverse_order() -> None:
    seen: list[str] = []

    async def call(_: SendRequest, __: Caller) -> str:
        seen.append("call")
        return "stored"

    both = wrapped(OPERATION, call, [_Wrapper("a", seen), _Wrapper("b", seen)])
    assert asyncio.run(both(REQUEST, CALLER)) == "stored"
    assert seen == [
        "a before send_message",
        "b before send_message",
        "call",
        "b after stored None",
        "a after stored None",
    ]


def test_wrapper_that_refuses_keeps_the_call_from_the_service() -> None:
    seen: list[str] = []

    def call(_: SendRequest, __: Caller) -> str:
        raise AssertionError

    refusing = wrapped(OPERATION, call, [_Wrapper("a", seen), _Wrapper("b", seen, "no")])
    with pytest.raises(Refusal, match="no"):
        refusing(REQUEST, CALLER)
    assert seen == [
        "a before send_message",
        "b before send_message",
        "a after None forbidden: no",
    ]


def test_wrappers_see_what_went_wrong_in_the_service() -> None:
    seen: list[str] = []

    def call(_: SendRequest, __: Caller) -> str:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        wrapped(OPERATION, call, [_Wrapper("a", seen)])(REQUEST, CALLER)
    assert seen[-1] == "a after None broken"


def test_call_that_is_held_has_no_end_yet() -> None:
    seen: list[str] = []

    def call(_: SendRequest, __: Caller, wake: str) -> None:
        seen.append(wake)

    assert wrapped(OPERATION, call, [_Wrapper("a", seen)])(REQUEST, CALLER, "held") is None
    assert seen == ["a before send_message", "held"]


def test_without_wrappers_an_operation_is_the_service_s_own_method() -> None:
    def call(_: SendRequest, __: Caller) -> None: ...

    assert wrapped(OPERATION, call, []) is call
