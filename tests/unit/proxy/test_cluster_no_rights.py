"""What a user without the rights may not do at a proxy before a cluster, over real connections.

The client is grpcio with a signature of its own: no line of the product's clients.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import itertools
import json
import time
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped]  # has no types
import grpc.aio  # type: ignore[import-untyped]
import pytest

from auth_harness import ANN, CLERK, INNER, STRANGER, entry
from cluster_users import guarded_cluster, make_topic
from grpc_calls import consumer, message, producer, received
from light_harness import ON
from remoting_harness import until
from remoting_proxy_harness import proxy, proxy_client
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.tags import subscribe
from roquet.proxy import messages as pb
from roquet.proxy.rules.codes import Code
from roquet.proxy.rules.methods import FAMILIES
from roquet.proxy.services.produce import place_of, transaction_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from pathlib import Path

    from cluster_users import Guarded
    from roquet.acl.credentials import Credentials

VICTIM, MALLORY = ANN, CLERK
OWN = (
    *(entry(f"Topic:{name}", "Pub", "Sub") for name in ("Normal", "Delay", "Transaction", "Chats")),
    entry("Group:G", "Sub"),
)
FEW = entry("Topic:M", "Pub", "Sub"), entry("Group:GM", "Sub")
"""What mallory has in the second run."""
TRICKS = (
    *("*", "", "M\0", "M\n", "Normal\0", "Normal\n", " Normal", "M/../Normal", "ns%M"),
    *("\uff2dormal", "\uff2d", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102"),
    *("rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster", "%LMQ%$Chats$n"),
    "%RETRY%G+Normal",
)
WITHIN_S = 3.0
_NUMBERS = itertools.count(1)


class Raw:
    """A connection of one user."""

    def __init__(self, port: int, who: Credentials | None, name: str = "victim-1") -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
        self.metadata = [("x-mq-client-id", name), ("x-mq-client-version", "5.2.0")]
        if who is not None:
            self.metadata += signed(who)

    async def call(self, method: str, request: Any) -> Any:
        """Return the answer of a method that has one."""
        kind = pb.methods()[method][1]
        ask = self.channel.unary_unary(f"/{pb.SERVICE}/{method}", _bytes, kind.FromString)
        return await asyncio.wait_for(ask(request, metadata=self.metadata), WITHIN_S)

    async def code(self, method: str, request: Any) -> int:
        """Return the code of an answer."""
        return int((await self.call(method, request)).status.code)

    async def receive(self, request: Any) -> list[Any]:
        """Return all parts of an answer."""
        kind = pb.ReceiveMessageResponse
        path = f"/{pb.SERVICE}/ReceiveMessage"
        ask = self.channel.unary_stream(path, _bytes, kind.FromString)
        return [part async for part in ask(request, metadata=self.metadata)]

    def stream(self) -> Any:
        """Open a telemetry stream."""
        read = pb.TelemetryCommand.FromString
        path = f"/{pb.SERVICE}/Telemetry"
        return self.channel.stream_stream(path, _bytes, read)(metadata=self.metadata)

    async def shown(self, settings: Any) -> Any:
        """Show settings on a stream; return it with its first answer read."""
        stream = self.stream()
        await stream.write(pb.TelemetryCommand(settings=settings))
        assert (await asyncio.wait_for(stream.read(), WITHIN_S)).status.code == Code.OK
        return stream

    async def refused(self, settings: Any) -> str:
        """Show settings that are refused; return why."""
        stream = self.stream()
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await stream.write(pb.TelemetryCommand(settings=settings))
        with contextlib.suppress(grpc.aio.AioRpcError):
            assert await asyncio.wait_for(stream.read(), WITHIN_S) is grpc.aio.EOF
        assert await asyncio.wait_for(stream.code(), WITHIN_S) is not grpc.StatusCode.OK
        return str(await stream.details())


def signed(who: Credentials, date: str = "20261124T090000Z") -> list[tuple[str, str]]:
    """Sign by the published rule: HMAC-SHA1 over the text of the date."""
    digest = hmac.digest(who.secret_key.encode(), date.encode(), "sha1").hex().upper()
    fields = f"Credential={who.access_key}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return [("x-mq-date-time", date), ("authorization", f"MQv2-HMAC-SHA1 {fields}")]


def _bytes(request: Any) -> bytes:
    data: bytes = request.SerializeToString()
    return data


def sent(topic: str, body: bytes = b"secret", **system: Any) -> Any:
    """Return a request to send one message with an id of its own."""
    number = f"01{next(_NUMBERS):030X}"
    return pb.SendMessageRequest(messages=[message(topic, body, message_id=number, **system)])


def named(method: str, topic: str = "", group: str = "", **fields: Any) -> Any:
    """Return a request that names a topic and a group."""
    request = pb.methods()[method][0](**fields)
    if topic:
        request.topic.name = topic
    if group:
        request.group.name = group
    return request


def settling(method: str, handle: str, topic: str, group: str) -> Any:
    """Return a request about a message in flight."""
    request = named(method, topic, group)
    if method == "AckMessage":
        request.entries.add(receipt_handle=handle, message_id="m")
    else:
        request.receipt_handle = handle
    if method == "ChangeInvisibleDuration":
        request.invisible_duration.seconds = 1
    return request


SETTLING = ("AckMessage", "ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue")


class Seen:
    """What the victim has, and a fingerprint of it."""

    def __init__(self, it: Guarded, handle: str, half: str, recall: str) -> None:
        self.it, self.handle, self.half, self.recall = it, handle, half, recall

    def state(self) -> Sequence[object]:
        """Return what mallory may not change."""
        broker = self.it.behind.broker
        topics = "Normal", "Delay", "Transaction", "%DLQ%G", "%RETRY%G", "%RETRY%G_Normal"
        ends = [broker.store.max_offset(topic, 0) for topic in topics]
        groups = sorted(broker.metadata.groups.all().keys() - {"GM"})
        return ends, groups, broker.metadata.topics.get("Normal")


@contextlib.asynccontextmanager
async def world(folder: Path) -> AsyncGenerator[tuple[Guarded, Raw, Seen]]:
    """Run a cluster whose victim has a message in flight, a half message and a delayed one."""
    changes = {**ON, "recallMessageEnable": "true", "timerWheelEnable": "true"}
    async with guarded_cluster(folder, changes=changes) as it:
        await make_topic(it, "Chats", "LITE")
        await make_topic(it, "M", "NORMAL")
        for who in (VICTIM, MALLORY):
            await it.make(who)
        await it.allow(VICTIM, *OWN)
        victim = Raw(it.built.port.port, VICTIM)
        async with asyncio.timeout(20):
            while await victim.code("SendMessage", sent("Normal")) != Code.OK:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await until(lambda: it.behind.broker.store.dispatch_behind() == 0)
        parts = await victim.receive(received("Normal", "G", invisible_ms=60_000))
        handle = next(part.message for part in parts if part.HasField("message"))
        half = await victim.call("SendMessage", sent("Transaction", message_type=4))
        delayed = sent("Delay", message_type=3)
        stamp = delayed.messages[0].system_properties.delivery_timestamp
        stamp.FromMilliseconds(int(time.time() * 1000) + 60_000)
        late = await victim.call("SendMessage", delayed)
        assert (half.status.code, late.status.code) == (Code.OK, Code.OK), (half, late)
        await until(lambda: it.behind.broker.store.dispatch_behind() == 0)
        found = half.entries[0].transaction_id, late.entries[0].recall_handle
        assert all(found)
        yield it, victim, Seen(it, handle.system_properties.receipt_handle, *found)
        await victim.channel.close()


def run(folder: Path, tell: Callable[[Guarded, Raw, Seen], Awaitable[None]]) -> None:
    async def main() -> None:
        async with world(folder) as (it, victim, seen):
            await tell(it, victim, seen)

    asyncio.run(main())


def _unary(seen: Seen) -> list[tuple[str, Any]]:
    """Return every call for data of the victim, or for a change of it."""
    place = place_of(seen.half)
    assert place is not None
    other = transaction_id(*place[:2], "b")
    decoded = base64.urlsafe_b64decode(seen.recall + "==").decode()
    rewritten = base64.urlsafe_b64encode(decoded.replace(" Delay ", " M ").encode()).decode()
    calls = [
        ("QueryRoute", named("QueryRoute", "Normal")),
        ("QueryRoute", named("QueryRoute", "%RETRY%G")),
        ("QueryAssignment", named("QueryAssignment", "Normal", "G")),
        ("QueryAssignment", named("QueryAssignment", "Normal", "made-by-mallory")),
        ("QueryAssignment", named("QueryAssignment", "M", "made-by-mallory")),
        ("SyncLiteSubscription", named("SyncLiteSubscription", "Chats", "G", lite_topic_set=["n"])),
        ("SyncLiteSubscription", named("SyncLiteSubscription", "Chats", "G", action=3)),
    ]
    topics = "Normal", "%DLQ%G", "%RETRY%G", "%RETRY%G_Normal", "Chats"
    calls += [("SendMessage", sent(topic)) for topic in topics]
    for topic, group in (("Normal", "G"), ("Normal", "GM"), ("M", "G"), ("%RETRY%G", "G")):
        calls += [(method, settling(method, seen.handle, topic, group)) for method in SETTLING]
    for topic, handle in (("Delay", seen.recall), ("Normal", seen.recall), ("Delay", rewritten)):
        calls.append(("RecallMessage", named("RecallMessage", topic, recall_handle=handle)))
    for topic in ("Transaction", "M"):
        for number, half in itertools.product((1, 2), (seen.half, other)):
            end = named("EndTransaction", topic, transaction_id=half, resolution=number)
            calls.append(("EndTransaction", end))
    return calls


def _empty(method: str, seen: Seen) -> Any:
    return settling(method, seen.handle, "Normal", "G") if method in SETTLING else named(method)


@pytest.mark.parametrize("entries", [(), FEW], ids=["no-policy", "own-topic"])
def test_user_gets_nothing_of_another_and_changes_nothing(
    tmp_path: Path, entries: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell(it: Guarded, victim: Raw, seen: Seen) -> None:
        mallory = Raw(it.built.port.port, MALLORY)
        if entries:
            await it.allow(MALLORY, *entries)
            async with asyncio.timeout(20):
                while await mallory.code("SendMessage", sent("M")) != Code.OK:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        before = seen.state()
        for method, request in _unary(seen):
            answer = await mallory.call(method, request)
            assert answer.status.code == Code.UNAUTHORIZED, (method, request, answer.status)
            assert b"secret" not in answer.SerializeToString()
        for topic, group in (("Normal", "G"), ("Normal", "GM"), ("M", "G"), ("%RETRY%G", "G")):
            parts = await mallory.receive(received(topic, group, wait_ms=0))
            assert [part.status.code for part in parts] == [Code.UNAUTHORIZED], (topic, group)
        for settings in (
            producer("Normal"),
            producer("M", "Transaction"),
            consumer("G", 2, "M"),
            consumer("G", 5, "Chats"),
            consumer("GM", 3, "Normal"),
        ):
            assert "no permission" in await mallory.refused(settings), settings
        assert seen.state() == before
        # What the victim has is as it was: its transaction, its message in flight, its recall.
        end = named("EndTransaction", "Transaction", transaction_id=seen.half, resolution=1)
        assert await victim.code("EndTransaction", end) == Code.OK
        back = named("RecallMessage", "Delay", recall_handle=seen.recall)
        assert await victim.code("RecallMessage", back) == Code.OK
        ack = settling("AckMessage", seen.handle, "Normal", "G")
        assert await victim.code("AckMessage", ack) == Code.OK
        await mallory.channel.close()

    run(tmp_path, tell)
    assert "Traceback" not in caplog.text


def test_handles_that_are_written_for_an_own_topic_reach_no_other(tmp_path: Path) -> None:
    async def tell(it: Guarded, victim: Raw, seen: Seen) -> None:
        await it.allow(MALLORY, *FEW)
        mallory = Raw(it.built.port.port, MALLORY)
        async with asyncio.timeout(20):
            while await mallory.code("SendMessage", sent("M")) != Code.OK:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        before = seen.state()
        for flag, method in itertools.product("012", SETTLING):
            parts = seen.handle.split(" ")
            parts[4] = flag
            answer = await mallory.call(method, settling(method, " ".join(parts), "M", "GM"))
            assert b"secret" not in answer.SerializeToString()
            if method == "ForwardMessageToDeadLetterQueue":
                assert answer.status.code == Code.UNAUTHORIZED, answer.status
        decoded = base64.urlsafe_b64decode(seen.recall + "==").decode()
        for text in (decoded, decoded.replace(" Delay ", " M ")):
            handle = base64.urlsafe_b64encode(text.encode()).decode()
            await mallory.call("RecallMessage", named("RecallMessage", "M", recall_handle=handle))
        assert seen.state() == before
        ack = settling("AckMessage", seen.handle, "Normal", "G")
        assert await victim.code("AckMessage", ack) == Code.OK
        store = it.behind.broker.store
        await until(lambda: store.dispatch_behind() == 0)
        assert store.max_offset("%DLQ%GM", 0) <= 0
        await mallory.channel.close()

    run(tmp_path, tell)


def test_names_that_are_tricks_and_wrong_signatures_open_nothing(tmp_path: Path) -> None:
    async def tell(it: Guarded, victim: Raw, seen: Seen) -> None:
        del victim
        await it.allow(MALLORY, *FEW)
        port = it.built.port.port
        mallory = Raw(port, MALLORY)
        async with asyncio.timeout(20):
            while await mallory.code("SendMessage", sent("M")) != Code.OK:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        before = seen.state()
        refused = {Code.UNAUTHORIZED, Code.ILLEGAL_TOPIC, Code.ILLEGAL_CONSUMER_GROUP}
        for name in TRICKS:
            for method in ("QueryRoute", "SendMessage", "RecallMessage"):
                one = sent(name) if method == "SendMessage" else named(method, name)
                assert await mallory.code(method, one) in refused, (method, name)
            for topic, group in ((name, "GM"), ("M", name)):
                parts = await mallory.receive(received(topic, group, wait_ms=0))
                assert {part.status.code for part in parts} <= refused, (topic, group)
        good = signed(VICTIM)
        for metadata in (
            [],
            signed(STRANGER),
            [good[0], ("authorization", good[1][1].replace("ann", "clerk"))],
            [("x-mq-date-time", "20261124T090001Z"), good[1]],
            [good[0], good[1], *signed(STRANGER)],
            [good[0], ("authorization", "MQv2-HMAC-SHA1 Credential=inner, Signature=")],
            [("x-mq-access-key", "root"), ("x-mq-username", "root"), ("rpc-system", "root")],
        ):
            mallory.metadata = [("x-mq-client-id", "victim-1"), *metadata]
            for method in FAMILIES:
                answer = await mallory.call(method, _empty(method, seen))
                assert answer.status.code == Code.UNAUTHORIZED, (metadata, method)
        assert seen.state() == before
        await mallory.channel.close()

    run(tmp_path, tell)


def _remoting(handle: str) -> list[tuple[int, dict[str, str], bytes]]:
    """Return requests of the remoting port for data of the victim, or for a change of it."""
    of = {"topic": "Normal", "consumerGroup": "G", "queueId": "0", "bname": "b"}
    pull = {**of, "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "0", "commitOffset": "0"}
    pull |= {"suspendTimeoutMillis": "0", "subVersion": "0"}
    pop = {**of, "maxMsgNums": "32", "invisibleTime": "10000", "pollTime": "0"}
    pop |= {"bornTime": str(int(time.time() * 1000)), "initMode": "0", "order": "false"}
    place = {"extraInfo": " ".join(handle.split(" ")[:8]), "offset": "0"}
    queue = {"topic": "Normal", "brokerName": "b", "queueId": 0}
    locks = json.dumps({"consumerGroup": "G", "clientId": "x", "mqSet": [queue]}).encode()
    subscribed = ConsumerData(group="G", subscriptions=(subscribe("Normal", "*"),))
    beat = HeartbeatData(client_id="victim-1", consumers=(subscribed,)).encode()
    back = {"offset": handle.split(" ")[8], "group": "G", "delayLevel": "-1", "bname": "b"}
    back |= {"originMsgId": "m", "originTopic": "Normal", "maxReconsumeTimes": "0"}
    code = RequestCode
    return [
        (code.PULL_MESSAGE, pull, b""),
        (code.PULL_MESSAGE, {**pull, "topic": "%RETRY%G"}, b""),
        (code.LITE_PULL_MESSAGE, pull, b""),
        (code.POP_MESSAGE, pop, b""),
        (code.ACK_MESSAGE, {**of, **place}, b""),
        (code.CHANGE_MESSAGE_INVISIBLETIME, {**of, **place, "invisibleTime": "1000"}, b""),
        (code.CONSUMER_SEND_MSG_BACK, back, b""),
        (code.CONSUMER_SEND_MSG_BACK, {**back, "group": "GM"}, b""),
        (code.QUERY_CONSUMER_OFFSET, of, b""),
        (code.UPDATE_CONSUMER_OFFSET, {**of, "commitOffset": "0"}, b""),
        (code.GET_MAX_OFFSET, of, b""),
        (code.GET_MIN_OFFSET, of, b""),
        (code.GET_EARLIEST_MSG_STORETIME, of, b""),
        (code.SEARCH_OFFSET_BY_TIMESTAMP, {**of, "timestamp": "0"}, b""),
        (code.LOCK_BATCH_MQ, {}, locks),
        (code.UNLOCK_BATCH_MQ, {}, locks),
        (code.HEART_BEAT, {}, beat),
        (code.UNREGISTER_CLIENT, {"clientID": "victim-1", "consumerGroup": "G"}, b""),
        (code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}, b""),
        (code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "G"}, b""),
        (code.GET_ROUTEINFO_BY_TOPIC, {"topic": "Normal"}, b""),
        (code.QUERY_MESSAGE, {"topic": "Normal", "key": "k", "maxNum": "9"}, b""),
        (code.INVOKE_BROKER_TO_RESET_OFFSET, {"topic": "Normal", "group": "G"}, b""),
        (code.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "G", "clientId": "victim-1"}, b""),
        (code.AUTH_LIST_USER, {}, b""),
        (code.GET_USERS, {}, b""),
    ]


@pytest.mark.parametrize("entries", [(), FEW], ids=["no-policy", "own-topic"])
def test_remoting_port_gives_a_user_nothing_of_another(tmp_path: Path, entries: Any) -> None:
    async def tell(it: Guarded, victim: Raw, seen: Seen) -> None:
        guard = it.built.guard
        assert guard is not None
        if entries:
            await it.allow(MALLORY, *entries)
        names = it.behind.name_servers
        async with (
            proxy(names, credentials=INNER, guard=guard.check) as door,
            proxy_client(door, sign=MALLORY.sign) as mallory,
        ):
            before = seen.state()
            for code, ext, body in _remoting(seen.handle):
                answer = await mallory.call(Command(code, dict(ext), body), WITHIN_S)
                assert answer.code == 16, (code, ext, answer)
                assert b"secret" not in answer.body
            # Ways by place or by administrators that are no ways at all here.
            for code in (RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.GET_ALL_CONSUMER_OFFSET):
                fields = {"offset": seen.handle.split(" ")[8], "bname": "b"}
                answer = await mallory.call(Command(code, fields), WITHIN_S)
                assert answer.code in {3, 16}, answer
            assert seen.state() == before
            ack = settling("AckMessage", seen.handle, "Normal", "G")
            assert await victim.code("AckMessage", ack) == Code.OK

    run(tmp_path, tell)
