"""Accounts and users before the front of gRPC: what own topic and group allow, and no more."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from cluster_users import guarded_cluster
from grpc_calls import Calls, consumer, fronted, message, producer
from roquet.model.topic import TopicConfig
from roquet.proxy import messages as pb
from roquet.proxy.rules.codes import Code, Rejected
from roquet.proxy.rules.limits import ProxyLimits
from roquet.proxy.rules.methods import FAMILIES, RECEIVE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

ACCOUNTS = """\
accounts:
- accessKey: the-writer
  secretKey: secret-of-writer
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [Normal=PUB, Transaction=PUB]
- accessKey: the-reader
  secretKey: secret-of-reader
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [Normal=SUB]
  groupPerms: [g=SUB]
- accessKey: the-stranger
  secretKey: secret-of-stranger
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
"""

_USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "migrateAuthFromV1Enabled": "true",
}
KINDS = {"accounts": {"aclEnable": "true"}, "users": _USERS, "cluster": _USERS}
"""The same rights, as accounts of RocketMQ 4.x and as users and policies made of these, judged in
the broker's process and by a proxy before a cluster."""
CHOSEN = dict[str, str]()
PLACES: list[str] = []


@pytest.fixture(autouse=True, params=KINDS)
def kind(request: pytest.FixtureRequest) -> None:
    """Have every test here for each kind."""
    CHOSEN.clear()
    PLACES[:] = [request.param]
    CHOSEN.update(KINDS[request.param])


def run(
    folder: Path,
    tell: Callable[[Calls, Calls, Calls], Awaitable[None]],
    rules: ProxyLimits | None = None,
) -> None:
    """Tell a story of a writer, a reader and a stranger."""
    file = folder / "conf" / "plain_acl.yml"
    file.parent.mkdir()
    file.touch(0o600)
    file.write_text(ACCOUNTS)

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            changes = {"rocketmqHome": str(folder), **CHOSEN}
            if PLACES == ["cluster"]:
                world = guarded_cluster(folder, rules=rules, changes=changes)
                calls = (await stack.enter_async_context(world)).client()
            else:
                alone = fronted(folder, rules, None, **changes)
                calls = await stack.enter_async_context(alone)
            people = [
                dataclasses.replace(calls, access_key=f"the-{who}", secret=f"secret-of-{who}")
                for who in ("writer", "reader", "stranger")
            ]
            await tell(*people)

    asyncio.run(main())


async def dispatched(calls: Calls) -> None:
    while calls.broker.store.dispatch_behind():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def got(calls: Calls, **more: Any) -> list[Any]:
    parts = await calls.receive("Normal", "g", **more)
    assert parts[0].status.code == Code.OK, parts[0].status
    return [part.message for part in parts[1:-1]]


def settled(method: str, handle: str, topic: str = "Normal", group: str = "g") -> Any:
    """Return a request about a message in flight."""
    request = pb.methods()[method][0]()
    request.topic.name, request.group.name = topic, group
    if method == "AckMessage":
        request.entries.add(receipt_handle=handle, message_id="m")
    else:
        request.receipt_handle = handle
    if method == "ChangeInvisibleDuration":
        request.invisible_duration.seconds = 1
    return request


def test_calls_with_a_wrong_or_no_signature_are_refused(tmp_path: Path) -> None:
    async def tell(writer: Calls, *_: Calls) -> None:
        for wrong in (
            dataclasses.replace(writer, secret="another"),
            dataclasses.replace(writer, access_key="nobody"),
            dataclasses.replace(writer, access_key=""),
        ):
            answer = await wrong.send(message())
            assert answer.status.code == Code.UNAUTHORIZED, answer.status
            (part,) = await wrong.receive("Normal", "g")
            assert part.status.code == Code.UNAUTHORIZED
            with pytest.raises(Rejected) as rejected:
                await wrong.show(producer("Normal"))
            assert rejected.value.code is Code.UNAUTHORIZED
        assert (await writer.send(message())).status.code == Code.OK

    run(tmp_path, tell)


def test_accounts_do_with_their_own_topic_and_group_all_there_is(tmp_path: Path) -> None:
    async def tell(writer: Calls, reader: Calls, _: Calls) -> None:
        assert await writer.show(producer("Normal")) is None
        assert await reader.show(consumer("g", 3, "Normal")) is None
        assert (await writer.send(message())).status.code == Code.OK
        await dispatched(writer)
        (first,) = await got(reader)
        handle = first.system_properties.receipt_handle
        request = settled("ChangeInvisibleDuration", handle)
        changed = await reader.call("ChangeInvisibleDuration", request)
        assert changed.status.code == Code.OK
        # It comes again from the retry topic of the group, and is that topic's owner's alone.
        (again,) = await asyncio.wait_for(got(reader, wait_ms=20_000), 30)
        assert again.system_properties.delivery_attempt == 2
        handle = again.system_properties.receipt_handle
        request = settled("ForwardMessageToDeadLetterQueue", handle)
        answer = await reader.call("ForwardMessageToDeadLetterQueue", request)
        assert answer.status.code == Code.OK, answer.status
        await dispatched(writer)
        assert writer.broker.store.max_offset("%DLQ%g", 0) == 1
        assert (await writer.send(message())).status.code == Code.OK
        await dispatched(writer)
        (last,) = await got(reader)
        request = settled("AckMessage", last.system_properties.receipt_handle)
        assert (await reader.call("AckMessage", request)).status.code == Code.OK

    run(tmp_path, tell)


def test_accounts_do_nothing_with_what_is_of_others(tmp_path: Path) -> None:
    async def tell(writer: Calls, reader: Calls, stranger: Calls) -> None:
        assert (await writer.send(message())).status.code == Code.OK
        await dispatched(writer)
        (found,) = await got(reader)
        handle = found.system_properties.receipt_handle
        for who in (writer, stranger):
            for method in (
                "AckMessage",
                "ChangeInvisibleDuration",
                "ForwardMessageToDeadLetterQueue",
            ):
                answer = await who.call(method, settled(method, handle))
                assert answer.status.code == Code.UNAUTHORIZED, (who.access_key, method)
            (part,) = await who.receive("Normal", "g")
            assert part.status.code == Code.UNAUTHORIZED
            ended = await who.show(consumer("g", 3, "Normal"))
            assert ended is not None
        assert writer.broker.store.max_offset("%DLQ%g", 0) == 0
        for who in (reader, stranger):
            assert (await who.send(message())).status.code == Code.UNAUTHORIZED
            recall = pb.RecallMessageRequest(recall_handle="x")
            recall.topic.name = "Normal"
            answer = await who.call("RecallMessage", recall)
            assert answer.status.code == Code.UNAUTHORIZED

    run(tmp_path, tell)


def test_half_message_is_ended_by_no_other_account(tmp_path: Path) -> None:
    async def tell(writer: Calls, reader: Calls, stranger: Calls) -> None:
        assert await writer.show(producer("Transaction")) is None
        sent = await writer.send(message("Transaction", message_type=4))
        assert sent.status.code == Code.OK
        end = pb.EndTransactionRequest(resolution=1)
        end.topic.name = "Transaction"
        await dispatched(writer)
        entry = sent.entries[0]
        for who in (reader, stranger):
            # RocketMQ's proxies name a transaction by the id of its message.
            for end.transaction_id in (entry.message_id, entry.transaction_id):
                answer = await who.call("EndTransaction", end)
                assert answer.status.code == Code.UNAUTHORIZED
        await dispatched(writer)
        assert writer.broker.store.max_offset("Transaction", 0) == 0
        assert (await writer.call("EndTransaction", end)).status.code == Code.OK
        await dispatched(writer)
        assert writer.broker.store.max_offset("Transaction", 0) == 1

    run(tmp_path, tell)


def test_client_id_of_one_account_is_none_of_anothers(tmp_path: Path) -> None:
    async def tell(writer: Calls, reader: Calls, _: Calls) -> None:
        assert await writer.show(producer("Normal")) is None
        assert await reader.show(consumer("g", 3, "Normal")) is None
        assert len(writer.front.sessions) == 2
        end = pb.NotifyClientTerminationRequest()
        end.group.name = "g"
        assert (await reader.call("NotifyClientTermination", end)).status.code == Code.OK
        assert len(writer.front.sessions) == 1
        beat = pb.HeartbeatRequest(client_type=1)
        assert (await writer.call("Heartbeat", beat)).status.code == Code.OK

    run(tmp_path, tell)


@pytest.mark.parametrize("kind", ["accounts"], indirect=True)
def test_rights_that_are_taken_away_count_at_once(tmp_path: Path) -> None:
    async def tell(writer: Calls, *others: Calls) -> None:
        del others
        assert (await writer.send(message())).status.code == Code.OK
        topics = writer.broker.metadata.topics
        topics.put(TopicConfig(name="Other", read_queues=1, write_queues=1))
        assert (await writer.send(message("Other"))).status.code == Code.UNAUTHORIZED
        file = tmp_path / "conf" / "plain_acl.yml"
        file.write_text(ACCOUNTS.replace("Normal=PUB, ", ""))
        for _ in range(600):
            answer = await writer.send(message())
            if answer.status.code == Code.UNAUTHORIZED:
                return
            await asyncio.sleep(0.05)
        pytest.fail("the account still sends")

    run(tmp_path, tell)


def test_nothing_of_a_request_is_read_before_its_signature(tmp_path: Path) -> None:
    async def tell(writer: Calls, *_: Calls) -> None:
        nobody = dataclasses.replace(writer, access_key="")
        for method in (*FAMILIES, RECEIVE):
            kind = pb.methods()[method][1]
            # Neither what is no request at all, nor one of very many messages.
            for data in (b"\xff" * 10, b"\x0a\x00" * 200_000):
                answered = await nobody.raw(method, data)
                assert (method, answered.ended) == (method, (0, ""))
                status = kind.FromString(answered.parts[0]).status
                assert (method, status.code) == (method, Code.UNAUTHORIZED)

    run(tmp_path, tell)


def test_settings_that_are_refused_leave_no_client(tmp_path: Path) -> None:
    async def tell(writer: Calls, reader: Calls, stranger: Calls) -> None:
        for number in range(3):
            who = dataclasses.replace(stranger, client_id=f"client-{number}")
            assert await who.show(consumer("g", 3, "Normal")) is not None
            assert await who.show(producer("no-such-topic")) is not None
        assert len(writer.front.sessions) == 0
        # One that is known stays what it was.
        assert await reader.show(consumer("g", 3, "Normal")) is None
        assert await reader.show(consumer("g", 3, "Transaction")) is not None
        known = reader.front.sessions.find(reader.front.context(reader.head("Telemetry")))
        assert known is not None
        assert known.consumer is not None
        assert [it.topic for it in known.consumer.subscriptions] == ["Normal"]

    run(tmp_path, tell)


def test_clients_of_one_account_leave_room_for_others(tmp_path: Path) -> None:
    async def tell(writer: Calls, reader: Calls, stranger: Calls) -> None:
        # Whoever may call at all may show itself as a producer of no topic.
        ended = []
        for number in range(4):
            who = dataclasses.replace(stranger, client_id=f"client-{number}")
            ended.append(await who.show(producer()))
        assert ended[:2] == [None, None]
        for end in ended[2:]:
            assert end is not None
            assert end[1] == "the account has 2 clients: there is no room for more"
        assert await stranger_again(stranger) is None
        assert await reader.show(consumer("g", 3, "Normal")) is None
        assert await writer.show(producer("Normal")) is None

    async def stranger_again(stranger: Calls) -> tuple[int, str] | None:
        """Have one of its clients leave, and another come."""
        known = dataclasses.replace(stranger, client_id="client-0")
        end = pb.NotifyClientTerminationRequest()
        assert (await known.call("NotifyClientTermination", end)).status.code == Code.OK
        return await dataclasses.replace(stranger, client_id="client-3").show(producer())

    run(tmp_path, tell, ProxyLimits(port=0, account_clients_max=2))
