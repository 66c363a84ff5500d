"""Nothing that one account signed reaches another: a signature does not cover the code."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from auth_harness import ANN, ROOT, entry, guarded
from remoting_harness import on_loop, until
from remoting_proxy_harness import proxy, proxy_client
from roquet.base.clock import SystemClock
from roquet.base.errors import OutcomeUnknown
from roquet.protocol import properties as props
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import FLAG_ONE_WAY, Command, reply_to
from roquet.protocol.header import HeaderError
from roquet.protocol.headers.relayed import HEADERS, relayed, relayed_answer
from roquet.protocol.tags import subscribe
from roquet.remoting.client import Client
from roquet.remoting.router import Request, Route
from roquet.testing.cluster import cluster, send_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from auth_harness import Guarded

CANARY = "canary-of-the-asker"
RELAYED = {
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
}
EVERY_FIELD = {
    **dict.fromkeys(("consumerGroup", "group", "groupName", "destGroup", "srcGroup"), "g"),
    **dict.fromkeys(("topic", "b", "defaultTopic", "c"), "t"),
    **dict.fromkeys(("producerGroup", "a"), "p"),
    **dict.fromkeys(("clientId", "clientID"), "c1"),
    **dict.fromkeys(("queueId", "e", "queueOffset", "offset", "commitOffset", "timestamp"), "0"),
    **dict.fromkeys(("sysFlag", "f", "flag", "h", "reconsumeTimes", "j", "beginOffset"), "0"),
    **dict.fromkeys(("defaultTopicQueueNums", "d", "bornTimestamp", "g", "maxMsgNums"), "1"),
    **dict.fromkeys(("isForce", "jstackEnable", "unitMode", "k", "batch", "m"), "false"),
    **dict.fromkeys(("properties", "i"), f"{props.REPLY_TO_CLIENT}\x01c1\x02"),
    "clientAddr": "",
    "unknownField": f"{CANARY} of no header",
    "SecurityToken": CANARY,
    "X-Canary": CANARY,
    "authorization": CANARY,
    "x-mq-session-token": CANARY,
}
LEFT_OUT = {
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.SEND_MESSAGE,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UNREGISTER_CLIENT,
}
"""They would end what the others are relayed to."""


@contextlib.asynccontextmanager
async def member(it: Guarded, seen: list[Command]) -> AsyncGenerator[None]:
    """Be ann's consumer, which keeps whatever it is asked."""

    def handle(request: Request) -> Command | None:
        seen.append(request.command)
        return reply_to(request.command, ext={"Signature": CANARY}, body=b"{}")

    codes = tuple(RequestCode)
    client = Client(clock=SystemClock(), handlers=[Route(codes, handle, "answers")])
    await client.start()
    consumers = (ConsumerData(group="g", subscriptions=(subscribe("t", "*"),)),)
    data = HeartbeatData(client_id="c1", producers=("p",), consumers=consumers)
    beat = ANN.sign(Command(RequestCode.HEART_BEAT, {}, data.encode()))
    try:
        assert (await client.call(it.broker.identity.address, beat, 20)).code == 0
        yield
    finally:
        await client.stop()


@on_loop
async def _every_code(folder: Path) -> None:
    seen: list[Command] = []
    answers: dict[int, Command] = {}
    async with guarded(folder, autoCreateTopicEnable="true") as it:
        await it.make(ANN)
        await it.allow(ANN, entry("Topic:t", "All"), entry("Group:*", "All"))
        sent = await it.call(send_command("t", b"hello"))
        fields = {**EVERY_FIELD, "msgId": (sent.ext or {})["msgId"]}
        async with member(it, seen), member(it, seen):
            for code in sorted(set(RequestCode) - LEFT_OUT):
                command = ROOT.sign(Command(code, dict(fields), CANARY.encode()))
                with contextlib.suppress(OutcomeUnknown):
                    answers[code] = await it.client.call(it.broker.identity.address, command, 3.0)
            await until(lambda: RELAYED.issubset(command.code for command in seen))
    for code in (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY):
        assert (answers[code].code, answers[code].ext) == (0, None), answers[code]
    for command in seen:
        ext = command.ext or {}
        assert not {*ext} & {"AccessKey", "Signature", "SecurityToken", "X-Canary"}, command
        assert not [it for it in ext.values() if CANARY in it or it == ROOT.access_key], command
        # A reply's body is the message that it brings.
        is_reply = command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        assert is_reply or CANARY.encode() not in command.body, command


def test_no_request_takes_credentials_to_another_connection(tmp_path: Path) -> None:
    _every_code(tmp_path)


@on_loop
async def _by_the_proxy(folder: Path) -> None:
    def answer(request: Request) -> Command:
        return reply_to(request.command, ext={"Signature": CANARY}, body=b"{}")

    async with contextlib.AsyncExitStack() as stack:
        it = await stack.enter_async_context(cluster(folder))
        assert (await it.send("t")).code == 0
        door = await stack.enter_async_context(proxy(it.name_servers))
        client = await stack.enter_async_context(proxy_client(door, answer))
        before = {one.key for one in it.broker.listeners._main.peers()}
        assert (await client.beat("c1", "g", "t")).code == 0
        # What an older broker, or one of Java, hands on of the operator who asks it.
        signed = ROOT.sign(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, dict(EVERY_FIELD)))
        (peer,) = [one for one in it.broker.listeners._main.peers() if one.key not in before]
        got = await peer.call(signed, 10.0)
        assert (got.code, got.ext, got.body) == (0, None, b"{}")
        (asked,) = [one for one in client.asked if one.code == signed.code]
        assert asked.ext == {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "false"}


def test_the_proxy_takes_no_credentials_of_brokers_to_clients(tmp_path: Path) -> None:
    _by_the_proxy(tmp_path)


@pytest.mark.parametrize("code", sorted(HEADERS))
def test_a_relayed_request_has_the_fields_of_its_header_alone(code: int) -> None:
    fields = {name: "1" for _, name, _, _ in HEADERS[code].rows()}
    signed = ROOT.sign(Command(code, {**EVERY_FIELD, **fields}, b"body", flag=FLAG_ONE_WAY))
    it = relayed(signed)
    assert {*(it.ext or {})} <= {*fields}
    assert (it.code, it.body, it.flag, it.remark) == (code, b"body", FLAG_ONE_WAY, None)
    assert relayed_answer(reply_to(signed, ext=signed.ext)).ext is None
    if HEADERS[code].wire_required:
        with pytest.raises(HeaderError):
            relayed(Command(code, {}))
