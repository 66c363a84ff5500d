"""Users and policies on a real broker: who is let in, changes at once, and no password anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from functools import partial
from typing import TYPE_CHECKING

import pytest

from auth_harness import (
    ANN,
    CANARY,
    CLERK,
    INNER,
    ROOT,
    STRANGER,
    SWITCHES,
    Guarded,
    acl_command,
    entry,
    guarded,
    user_command,
)
from remoting_harness import on_loop, until
from roquet.auth.keeping.store import NAME
from roquet.base.clock import SystemClock
from roquet.base.errors import UsageError
from roquet.broker.config import load_config
from roquet.broker.network.body_limits import BODY_LIMITS, body_max
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.testing.cluster import TINY, pull_command, send_command

if TYPE_CHECKING:
    from pathlib import Path


def refused(name: str, resource: str, why: str = "no matched policies.") -> tuple[int, str]:
    said = f"User:{name} has no permission to access {resource} from 127.0.0.1, {why}"
    return 16, said


@on_loop
async def test_only_users_are_let_in_and_to_what_policies_allow(tmp_path: Path) -> None:
    async with guarded(tmp_path) as it:
        send = send_command("orders", b"x")
        assert await it.said(send, None) == (16, "username cannot be null.")
        assert await it.said(send, ANN) == (16, "User:ann is not found.")
        await it.make(ANN)
        assert await it.said(send, STRANGER) == (16, "check signature failed.")
        assert await it.said(send, ANN) == refused("ann", "Topic:orders")
        await it.allow(ANN, entry("Topic:or*", "Pub", "Sub"), entry("Group:readers", "Sub"))
        assert (await it.call(send, ANN)).code == 0
        await until(lambda: it.broker.store.max_offset("orders", 0) == 1, 60)
        assert (await it.call(pull_command("orders"), ANN)).code == 0
        other = pull_command("orders", consumerGroup="other")
        assert await it.said(other, ANN) == refused("ann", "Group:other")
        # What a body names is judged by the service, with the same code and words.
        data = HeartbeatData(client_id="c", consumers=(ConsumerData(group="other"),))
        assert await it.said(Command(34, {}, data.encode()), ANN) == refused("ann", "Group:other")
        await it.allow(ANN, entry("Topic:orders", "Pub", decision="Deny"))
        assert await it.said(send, ANN) == refused("ann", "Topic:orders", "the decision is deny.")
        for who in (ROOT, INNER):
            assert await it.said(send, who) == (0, "")
        assert await it.said(user_command(3002, "ann", {"userStatus": "disable"})) == (0, "")
        assert await it.said(pull_command("orders"), ANN) == (16, "User:ann is disabled.")


@pytest.mark.parametrize("threads", ["0", "1"])
@on_loop
async def test_revoked_right_is_gone_on_the_fast_path_when_that_is_answered(
    tmp_path: Path, threads: str
) -> None:
    """Sixteen connections send without a pause; no send that began after the answer is taken."""
    async with guarded(tmp_path, ioThreads=threads) as it:
        await it.make(ANN)
        for _ in range(3):
            await it.allow(ANN, entry("Topic:orders", "Pub"))
            assert (await it.call(send_command("orders", b"first"), ANN)).code == 0
            assert await revoked_while_sending(it) == [16] * 16


def waiting_requests() -> dict[str, Command]:
    """One request of each kind that waits for a message of topic `orders`."""
    pull = pull_command("orders", sysFlag="6", suspendTimeoutMillis="60000")
    pop = {
        "consumerGroup": "readers",
        "topic": "orders",
        "queueId": "0",
        "maxMsgNums": "1",
        "invisibleTime": "60000",
        "pollTime": "60000",
        "bornTime": str(SystemClock().now_ms()),
        "initMode": "0",
        "order": "false",
    }
    return {
        "pull": pull,
        "lite pull": dataclasses.replace(pull, code=RequestCode.LITE_PULL_MESSAGE),
        "pull by tag": pull_command(
            "orders", sysFlag="6", suspendTimeoutMillis="60000", subscription="red"
        ),
        "pop": Command(RequestCode.POP_MESSAGE, pop),
        "notification": Command(RequestCode.NOTIFICATION, pop),
    }


REVOCATIONS = {
    "deleted": user_command(3003, "ann", {}),
    "disabled": user_command(3002, "ann", {"userStatus": "disable"}),
    "another password": user_command(3002, "ann", {"password": "another-password"}),
    "no policies": Command(3008, {"subject": "User:ann"}),
    "denied group": acl_command(3007, "ann", [entry("Group:readers", "Sub", decision="Deny")]),
}


@pytest.mark.parametrize("threads", ["0", "1"])
@pytest.mark.parametrize("way", REVOCATIONS)
@on_loop
async def test_request_that_waits_is_judged_again_when_a_message_comes(
    tmp_path: Path, way: str, threads: str
) -> None:
    async with guarded(tmp_path, ioThreads=threads, timerWheelEnable="true") as it:
        assert (await it.call(send_command("orders", b"first"))).code == 0
        for end, (kind, command) in enumerate(waiting_requests().items(), 1):
            await until(partial(reaches, it, end), 60)
            await it.said(user_command(3003, "ann", {}))
            await it.make(ANN)
            entries = (entry("Topic:orders", "Sub"), entry("Group:readers", "Sub"))
            await it.allow(ANN, *entries)
            wanted = command
            if "queueOffset" in (command.ext or {}):
                wanted = dataclasses.replace(
                    command, ext={**(command.ext or {}), "queueOffset": str(end)}
                )
            else:
                await drained(it)
            held = asyncio.create_task(it.call(wanted, ANN))
            # The lane takes one after the other: what is behind the request has been answered.
            assert (await it.call(pull_command("orders", end), ANN)).code == 19
            assert not held.done(), kind
            assert await it.said(REVOCATIONS[way]) == (0, "")
            sent = send_command("orders", b"secret", properties="TAGS\x01red\x02")
            assert (await it.call(sent)).code == 0
            answer = await held
            assert (answer.code, answer.body) == (16, b""), (kind, answer.remark)


def reaches(it: Guarded, end: int) -> bool:
    """Tell whether so many messages can be read."""
    return it.broker.store.max_offset("orders", 0) == end


async def drained(it: Guarded) -> None:
    """Have the group take what is there."""
    pop = waiting_requests()["pop"]
    fields = {**(pop.ext or {}), "pollTime": "0", "maxMsgNums": "32"}
    while (await it.call(Command(pop.code, fields))).code == 0:
        pass


@on_loop
async def test_reply_needs_a_right_and_is_in_no_other_queue(tmp_path: Path) -> None:
    replies = "DefaultCluster_REPLY_TOPIC"

    def reply(properties: str) -> Command:
        sent = send_command(replies, b"forged", properties=properties)
        return dataclasses.replace(sent, code=RequestCode.SEND_REPLY_MESSAGE_V2)

    to_nobody = "REPLY_TO_CLIENT\x01nobody\x02"
    async with guarded(tmp_path, enableLmq="true", enableMultiDispatch="true") as it:
        await it.make(ANN)
        assert await it.said(reply(to_nobody), ANN) == refused("ann", f"Topic:{replies}")
        await it.allow(ANN, entry(f"Topic:{replies}", "Pub"))
        code, why = await it.said(reply(to_nobody), ANN)
        assert (code, why) == (1, "push reply message fail, channel of <nobody> not found.")
        assert it.broker.store.max_offset(replies, 0) == 0, "nobody asked for it"
        spread = to_nobody + "INNER_MULTI_DISPATCH\x01%LMQ%x\x02"
        code, why = await it.said(reply(spread), ANN)
        assert (code, why) == (13, "a reply cannot be in other queues as well")


async def revoked_while_sending(it: Guarded) -> list[int]:
    """Return the codes of the sends that began after the answer to the revocation."""
    revoked = asyncio.Event()

    async def sending(client: Client) -> int:
        while True:
            after = revoked.is_set()
            command = ANN.sign(send_command("orders", b"x"))
            answer = await client.call(it.broker.identity.address, command, 20.0)
            if after:
                return answer.code

    async with contextlib.AsyncExitStack() as opened:
        clients = [Client(clock=SystemClock()) for _ in range(16)]
        for client in clients:
            await client.start()
            opened.push_async_callback(client.stop)
        goal = it.broker.store.max_offset("orders", 0) + 32
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(sending(client)) for client in clients]
            await until(lambda: it.broker.store.max_offset("orders", 0) >= goal, 60)
            assert await it.said(Command(3008, {"subject": "User:ann"})) == (0, "")
            revoked.set()
        return [task.result() for task in tasks]


@on_loop
async def test_no_answer_file_or_log_line_shows_a_password_to_who_may_not_see_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with guarded(tmp_path) as it:
        for who in (ANN, CLERK):
            await it.make(who)
        await it.allow(CLERK, entry("Cluster:*", "Get", "Update"))
        await it.said(user_command(3001, "bad", {"password": CANARY, "userType": ["x"]}))
        await it.said(user_command(3001, "ann", {"password": CANARY}))
        for code, ext in ((3004, {"username": "ann"}), (3005, {}), (3009, {"subject": "User:ann"})):
            for more in ({}, {"filter": "a"}):
                answer = await it.call(Command(code, {**ext, **more}), CLERK)
                assert CANARY not in f"{answer.remark}{answer.body!r}{answer.ext}"
                shown = await it.call(Command(code, {**ext, **more}), ROOT)
                assert (CANARY in repr(shown.body)) is (code != 3009)
        settings = await it.call(Command(RequestCode.GET_BROKER_CONFIG), CLERK)
        assert b"initAuthenticationUser" in settings.body
        assert CANARY.encode() not in settings.body
    assert CANARY not in caplog.text
    assert files_with_canary(tmp_path) == [(NAME, 0o600)]


def files_with_canary(folder: Path) -> list[tuple[str, int]]:
    return [
        (path.name, path.stat().st_mode & 0o777)
        for path in folder.rglob("*")
        if path.is_file() and CANARY.encode() in path.read_bytes()
    ]


@on_loop
async def test_super_users_are_made_changed_and_deleted_by_super_users_alone(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as it:
        await it.make(CLERK)
        await it.make(ANN, "Super")
        denied = refused("clerk", "Cluster:DefaultCluster")
        assert await it.said(user_command(3001, "x", {"password": "p"}), CLERK) == denied
        await it.allow(CLERK, entry("Cluster:DefaultCluster", "Update", "Get"))
        assert await it.said(user_command(3001, "x", {"password": "p"}), CLERK) == (0, "")
        for what, command in (
            ((1, "create"), user_command(3001, "y", {"password": "p", "userType": "super"})),
            ((1, "update"), user_command(3002, "x", {"userType": "Super"})),
            ((16, "update"), user_command(3002, "ann", {"password": "mine"})),
            ((16, "update"), user_command(3003, "ann", {})),
        ):
            said = f"The super user can only be {what[1]} by super user"
            assert await it.said(command, CLERK) == (what[0], said)
        assert await it.said(user_command(3003, "x", {}), CLERK) == (0, "")
        assert await it.said(user_command(3003, "ann", {})) == (0, "")


@on_loop
async def test_requests_without_a_rule_are_for_super_users(tmp_path: Path) -> None:
    """Every code that the broker serves, with a user that has no rights at all."""
    open_to_all = {21, 201, 26, 28, 43, 45, 60, 61, 305, 400, 402, 907, 1007}
    by_what_is_named = {33, 34, 35, 37, 41, 42, 46, 200151, 200071, 324, 325, 38}
    async with guarded(tmp_path) as it:
        await it.make(ANN)
        for route in it.broker.routes:
            for code in route.codes:
                answer = await it.call(Command(int(code), {"a": "b"}), ANN)
                if code in open_to_all | by_what_is_named:
                    assert answer.code != 3, code
                    continue
                assert answer.code == 16, (code, answer.code, answer.remark)
                for nobody in (None, STRANGER):
                    assert (await it.call(Command(int(code)), nobody)).code == 16


@on_loop
async def test_body_of_a_request_about_users_has_a_limit(tmp_path: Path) -> None:
    codes = [code for code in BODY_LIMITS if code.name.startswith("AUTH_")]
    assert codes
    async with guarded(tmp_path) as it:
        for code in codes:
            most = body_max(code)
            code_said, why = await it.said(Command(code, {}, b" " * (most + 1)))
            assert code_said == ResponseCode.INVALID_PARAMETER
            assert why == f"request {int(code)} has a body of {most + 1} bytes: it may have {most}"
            assert "it may have" not in (await it.said(Command(code, {}, b" " * most)))[1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"authorizationEnabled": "false"}, "authenticationEnabled = 'true' needs authorization"),
        ({"authenticationEnabled": "false"}, "authorizationEnabled = 'true' needs authentication"),
        ({"initAuthenticationUser": "{"}, "initAuthenticationUser has to be"),
        ({"initAuthenticationUser": '{"username":"a"}'}, "initAuthenticationUser has to be"),
        (
            {"innerClientAuthenticationCredentials": "[]"},
            "innerClientAuthenticationCredentials has",
        ),
        (
            {"authenticationWhitelist": "10,x-y"},
            "authenticationWhitelist: 'x-y' is no request code",
        ),
        (
            {"aclEnable": "true", "rocketmqHome": "/x"},
            "authenticationEnabled = 'true' and aclEnable",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    changes: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError, match=f"^{said}") as caught:
        load_config(None, {}, {**TINY, **SWITCHES, **changes})
    assert CANARY not in str(caught.value)


@on_loop
async def test_white_lists_are_of_codes_and_make_nobody_somebody(tmp_path: Path) -> None:
    async with guarded(
        tmp_path, authenticationWhitelist="28,10,310", authorizationWhitelist="310"
    ) as it:
        await it.make(ANN)
        assert (await it.call(Command(28), None)).code == 0
        assert (await it.call(Command(26), None)).code == 16
        assert (await it.call(send_command("orders", b"x"), None)).code == 0
        long = Command(10, {"topic": "orders", "AccessKey": "root", "Signature": "AA=="})
        answer = await it.call(long, None)
        assert answer.code == 16
        assert "null has no permission to access Topic:orders" in (answer.remark or "")
