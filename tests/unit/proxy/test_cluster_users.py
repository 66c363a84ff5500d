"""Users of brokers at a proxy before them: who is let in, and how changes come to it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from auth_harness import ANN, CLERK, INNER, STRANGER, acl_command, entry, user_command
from cluster_users import guarded_cluster
from grpc_calls import Calls, message, producer
from remoting_harness import on_loop, until
from remoting_proxy_harness import proxy, proxy_client
from roquet.proxy import messages as pb
from roquet.proxy.rules.codes import Code, Rejected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from cluster_users import Guarded

OWN = entry("Topic:Normal", "Pub", "Sub"), entry("Group:g", "Sub")


async def code_of(calls: Calls) -> int:
    """Send a message; return the code of the answer."""
    return int((await calls.send(message())).status.code)


async def until_code(calls: Calls, code: Code) -> None:
    async with asyncio.timeout(20):
        while await code_of(calls) != code:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def got(calls: Calls, topic: str = "Normal", **more: Any) -> list[Any]:
    """Receive once; return the messages."""
    parts = await calls.receive(topic, "g", **more)
    if parts[0].status.code == Code.MESSAGE_NOT_FOUND:
        return []
    assert parts[0].status.code == Code.OK, parts[0].status
    return [part.message for part in parts[1:-1]]


def run(folder: Path, tell: Callable[[Guarded], Awaitable[None]], **more: Any) -> None:
    async def main() -> None:
        async with guarded_cluster(folder, **more) as it:
            await tell(it)

    asyncio.run(main())


def test_users_are_let_in_as_they_are_made_changed_and_deleted(tmp_path: Path) -> None:
    async def tell(it: Guarded) -> None:
        ann = it.client(ANN)
        assert await code_of(ann) == Code.UNAUTHORIZED
        await it.make(ANN)
        await it.allow(ANN, *OWN)
        await until_code(ann, Code.OK)
        assert await code_of(it.client(STRANGER)) == Code.UNAUTHORIZED
        assert await code_of(it.client()) == Code.UNAUTHORIZED
        assert await ann.show(producer("Normal")) is None
        for change, back in (
            (
                user_command(3002, "ann", {"userStatus": "disable"}),
                user_command(3002, "ann", {"userStatus": "enable"}),
            ),
            (
                user_command(3002, "ann", {"password": "another"}),
                user_command(3002, "ann", {"password": ANN.secret_key}),
            ),
            (
                acl_command(3007, "ann", [entry("Topic:Normal", "Pub", decision="Deny")]),
                acl_command(3007, "ann", [entry("Topic:Normal", "Pub")]),
            ),
        ):
            await it.tell(change)
            await until_code(ann, Code.UNAUTHORIZED)
            await it.tell(back)
            await until_code(ann, Code.OK)
        await it.tell(user_command(3003, "ann", {}))
        await until_code(ann, Code.UNAUTHORIZED)
        beat = await ann.call("Heartbeat", pb.HeartbeatRequest(client_type=1))
        assert beat.status.code == Code.UNAUTHORIZED
        with pytest.raises(Rejected):
            await ann.show(producer("Normal"))

    run(tmp_path, tell)


@pytest.mark.parametrize(
    "change",
    [
        acl_command(3007, "ann", [entry("Group:g", "Sub", decision="Deny")]),
        user_command(3002, "ann", {"userStatus": "disable"}),
        user_command(3002, "ann", {"password": "another"}),
        user_command(3003, "ann", {}),
    ],
)
def test_held_receive_gives_nothing_to_a_user_who_lost_the_right_meanwhile(
    tmp_path: Path, change: Any
) -> None:
    async def tell(it: Guarded) -> None:
        for who in (ANN, CLERK):
            await it.make(who)
            await it.allow(who, *OWN)
        ann, clerk = it.client(ANN, "ann-1"), it.client(CLERK, "clerk-1")
        await until_code(clerk, Code.OK)
        broker = it.behind.broker
        await until(lambda: broker.store.dispatch_behind() == 0)
        (first,) = await got(clerk)
        assert first.body == b"x"
        held = asyncio.get_running_loop().create_task(ann.receive("Normal", "g", wait_ms=20_000))
        polls = broker.local.waits._polls
        await until(lambda: polls._count == 1)
        users = it.built.guard._users  # type: ignore[union-attr]
        before = users.now
        await it.tell(change)
        await until(lambda: users.now is not before)
        assert not held.done()
        sent = await clerk.send(message(body=b"secret"))
        assert sent.status.code == Code.OK
        (part,) = await asyncio.wait_for(held, 20)
        assert part.status.code == Code.UNAUTHORIZED, part.status
        # Whoever may have it need not wait for the invisible time of the one who may not.
        found: list[Any] = []
        async with asyncio.timeout(20):
            while not found:
                found = await got(clerk)
        assert found[0].body == b"secret"

    run(tmp_path, tell)


def test_what_one_broker_does_not_allow_is_allowed_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def tell(it: Guarded) -> None:
        one, other = it.behind.brokers
        await it.make(ANN)
        body = acl_command(3006, "ann", OWN)
        await it.said(body, one)
        await until(lambda: "brokers b1, b2 have different users" in caplog.text)
        ann = it.client(ANN)
        assert await code_of(ann) == Code.UNAUTHORIZED
        await it.said(body, other)
        await until_code(ann, Code.OK)
        # Taken away at one of them, it is gone.
        await it.said(user_command(3002, "ann", {"userStatus": "disable"}), other)
        await until_code(ann, Code.UNAUTHORIZED)

    run(tmp_path, tell, names=("b1", "b2"))


def test_nobody_is_let_in_where_the_proxy_may_not_ask_for_users(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def tell(it: Guarded) -> None:
        await it.make(ANN)
        await it.allow(ANN, *OWN)
        answer = await it.client(ANN).send(message())
        assert answer.status.code == Code.UNAUTHORIZED
        assert "no broker has said lately" in answer.status.message
        assert await code_of(it.client(INNER)) == Code.UNAUTHORIZED
        assert "nobody is let in" in caplog.text
        assert "users and policies of broker b are not heard, none counts" in caplog.text

    # The account of a user without rights.
    run(tmp_path, tell, account=ANN)


def _moved(handle: str, place: str) -> str:
    """Return a receipt handle that names another place in the log."""
    return " ".join([*handle.split(" ")[:8], place])


def test_place_in_a_handle_opens_no_message_of_a_foreign_topic(tmp_path: Path) -> None:
    async def tell(it: Guarded) -> None:
        await it.make(ANN)
        await it.allow(ANN, *OWN)
        ann = it.client(ANN, "ann-1")
        await until_code(ann, Code.OK)
        store = it.behind.broker.store
        await until(lambda: store.dispatch_behind() == 0)
        (mine,) = await got(ann)
        handle = mine.system_properties.receipt_handle
        request = pb.ForwardMessageToDeadLetterQueueRequest()
        request.topic.name, request.group.name = "Normal", "g"
        inner = it.client(INNER, "inner-1")
        other = await inner.send(message("Fifo", b"secret", message_group="x"))
        assert other.status.code == Code.OK
        await until(lambda: store.max_offset("Fifo", 0) == 1)
        unit = store.units("Fifo", 0, 0, 1)[0]
        request.receipt_handle = _moved(handle, str(unit[0]))
        answer = await ann.call("ForwardMessageToDeadLetterQueue", request)
        assert answer.status.code == Code.UNAUTHORIZED, answer.status
        assert store.max_offset("%DLQ%g", 0) <= 0
        request.receipt_handle = handle
        answer = await ann.call("ForwardMessageToDeadLetterQueue", request)
        assert answer.status.code == Code.OK, answer.status

    run(tmp_path, tell)


def test_transaction_id_ends_no_half_message_of_a_foreign_topic(tmp_path: Path) -> None:
    """A group may be called like a topic that its half messages are not of."""

    async def tell(it: Guarded) -> None:
        await it.make(ANN)
        await it.allow(ANN, entry("Topic:Normal", "Pub"))
        inner, ann = it.client(INNER, "inner-1"), it.client(ANN, "ann-1")
        assert await inner.show(producer("Transaction")) is None
        sent = await inner.send(message("Transaction", message_type=4))
        assert sent.status.code == Code.OK
        await until_code(ann, Code.OK)
        end = pb.EndTransactionRequest(resolution=1)
        end.topic.name = "Normal"
        end.transaction_id = sent.entries[0].transaction_id
        answer = await ann.call("EndTransaction", end)
        assert answer.status.code == Code.UNAUTHORIZED, answer.status
        assert "no half message of Normal" in answer.status.message
        end.topic.name = "Transaction"
        assert (await ann.call("EndTransaction", end)).status.code == Code.UNAUTHORIZED
        assert (await inner.call("EndTransaction", end)).status.code == Code.OK

    run(tmp_path, tell)


def test_half_message_is_shown_to_no_producer_who_lost_the_right(tmp_path: Path) -> None:
    async def tell(it: Guarded) -> None:
        for who in (ANN, CLERK):
            await it.make(who)
            await it.allow(who, entry("Topic:Transaction", "Pub"), *OWN)
        ann, clerk = it.client(ANN, "ann-1"), it.client(CLERK, "clerk-1")
        await until_code(clerk, Code.OK)
        for client in (ann, clerk):
            assert await client.show(producer("Transaction")) is None
        deny = acl_command(3007, "ann", [entry("Topic:Transaction", "Pub", decision="Deny")])
        await it.tell(deny)

        async def sends() -> int:
            sent = await ann.send(message("Transaction", message_type=4))
            return int(sent.status.code)

        async with asyncio.timeout(20):
            while await sends() != Code.UNAUTHORIZED:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        ann.told.commands.clear()
        for _ in range(4):
            sent = await clerk.send(message("Transaction", message_type=4))
            assert sent.status.code == Code.OK
        asked = clerk.told.commands
        kind = "recover_orphaned_transaction_command"
        await until(lambda: sum(it.WhichOneof("command") == kind for it in asked) >= 4)
        assert not ann.told.commands

    often = {"transactionCheckInterval": "500", "transactionTimeOut": "500"}
    run(tmp_path, tell, changes=often)


@on_loop
async def _at_both_ports(folder: Path) -> None:
    async with guarded_cluster(folder) as it:
        await it.make(ANN)
        await it.allow(ANN, *OWN)
        await until_code(it.client(ANN), Code.OK)
        guard = it.built.guard
        assert guard is not None
        names = it.behind.name_servers
        async with (
            proxy(names, credentials=INNER, guard=guard.check) as door,
            proxy_client(door, sign=ANN.sign) as ann,
            proxy_client(door) as nobody,
            proxy_client(door, sign=STRANGER.sign) as stranger,
        ):
            assert (await ann.send("Normal", "b")).code == 0
            assert {one.broker_name for one in (await ann.route("Normal")).brokers} == {"b"}
            for wrong in (nobody, stranger):
                assert (await wrong.send("Normal", "b")).code == 16
                with pytest.raises(AssertionError):
                    # A route is no longer for everybody.
                    await wrong.route("Normal")
            with pytest.raises(AssertionError, match="no permission"):
                await ann.route("Fifo")
            await it.tell(user_command(3003, "ann", {}))
            await until_code(it.client(ANN), Code.UNAUTHORIZED)
            assert (await ann.send("Normal", "b")).code == 16


def test_remoting_port_judges_by_the_same_users(tmp_path: Path) -> None:
    _at_both_ports(tmp_path)
