"""What requests about light topics are refused for, and that bad input harms nobody."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from light_harness import (
    CLIENT,
    GROUP,
    PARENT,
    ack_command,
    ctl_command,
    playing,
    pop,
    pop_command,
    put_group,
    put_parent,
    send,
    subscribe,
    topic_fields,
)
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.testing.cluster import Cluster

PLAIN = "plain"
OTHER = "bound-elsewhere"


def told(folder: Path, tell: Callable[[Cluster], Awaitable[None]], **changes: str) -> None:
    async def begun(it: Cluster) -> None:
        await put_parent(it)
        await put_group(it)
        await put_group(it, OTHER, **{"lite.bind.topic": "elsewhere"})
        fields = topic_fields(PLAIN, **{"message.type": "NORMAL"})
        assert (await it.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=fields))).code == 0
        closed = {"groupName": "closed", "consumeEnable": False}
        closed["attributes"] = {"+lite.bind.topic": PARENT}
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await it.call(Command(code, body=json.dumps(closed).encode()))).code == 0
        await tell(it)

    playing(folder, begun, **changes)


def test_pops_are_refused_with_codes_and_texts_of_rocketmq(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        ip = it.broker.identity.ip
        faq = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
        for fields, code, remark in (
            ({"bornTime": "1"}, 210, f"the broker[{ip}] pop message is timeout too much"),
            ({"maxMsgNum": "33"}, 29, f"the broker[{ip}] pop message's num is greater than 32"),
            ({"topic": "none"}, 17, "topic [none] not exist, apply first please! "),
            ({"topic": PLAIN}, 29, f"the topic [{PLAIN}] message type not match"),
            ({"consumerGroup": "none"}, 26, "subscription group [none] not exist, "),
            ({"consumerGroup": "closed"}, 16, "subscription group no permission, closed"),
            ({"consumerGroup": OTHER}, 29, f"subscription bind topic not match, {OTHER}"),
            ({"maxMsgNum": "0"}, 29, "maxMsgNum is 0: a pop asks for one message or more"),
            ({"maxMsgNum": "-1"}, 29, "maxMsgNum is -1: a pop asks for one message or more"),
            ({"invisibleTime": "-1"}, 29, "invisibleTime is -1: must be 0 to "),
        ):
            answer = await it.call(pop_command(**fields))
            assert answer.code == code, (fields, answer.remark)
            assert str(answer.remark).startswith(remark), (faq, answer.remark)
            assert (answer.ext or {}).get("popTime") == "0"
        # Nobody subscribed, and nothing was kept of any of it.
        assert (await it.call(pop_command())).code == 210
        assert len(it.broker.metadata.groups.all()) == GROUPS

    told(tmp_path, tell)


GROUPS = 8 + 3
"""Those that every broker has, and those of the story."""


def illegal(text: str) -> str:
    return f"java.lang.IllegalStateException: {text}"


def test_controls_are_refused_and_change_nothing(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        good = entry("PARTIAL_ADD", ["a"])
        disabled = illegal("Consumer group is not allowed to consume.")
        for wrong, code, remark in (
            ({"group": "none"}, 604, disabled),
            ({"group": "closed"}, 604, disabled),
            ({"group": OTHER}, 29, f"subscription bind topic not match, {OTHER}"),
            ({"topic": PLAIN}, 29, f"subscription bind topic not match, {GROUP}"),
            ({"liteTopicSet": ["a$b"]}, 29, "'a$b' is no name of a light topic"),
            ({"liteTopicSet": [""]}, 29, "'' is no name of a light topic"),
            ({"liteTopicSet": ["x" * 250]}, 29, f"'{'x' * 80}' is no name of a light topic"),
            ({"clientId": "c" * 256}, 29, "the client id has 256 characters, at most 255"),
            ({"action": "ADD"}, 1, "body: action: 'ADD' is none of"),
            ({"action": None}, 1, "body: action: '' is none of"),
            ({"liteTopicSet": {"a": 1}}, 1, "body: liteTopicSet"),
            ({"offsetOption": {"type": "X", "value": 1}}, 1, "body: offsetOption: 'X' is none"),
            ({"offsetOption": {"type": "OFFSET", "value": "x"}}, 1, "body: value"),
            ({"version": [1]}, 1, "body: version"),
        ):
            answer = await it.call(control([good, {**good, "clientId": "other", **wrong}]))
            assert answer.code == code, (wrong, answer.remark)
            assert str(answer.remark).startswith(remark), answer.remark
            assert await count(it) == 0, wrong

    told(tmp_path, tell)


def entry(action: str, names: list[str]) -> dict[str, Any]:
    return {
        "action": action,
        "clientId": CLIENT,
        "group": GROUP,
        "topic": PARENT,
        "liteTopicSet": names,
        "version": 1,
    }


def control(entries: list[Any]) -> Command:
    body = json.dumps({"subscriptionSet": entries}).encode()
    return Command(RequestCode.LITE_SUBSCRIPTION_CTL, ext={}, body=body)


async def count(it: Cluster) -> int:
    """Return how many light topics all clients together have."""
    answer = await it.call(Command(RequestCode.GET_BROKER_LITE_INFO, ext={}))
    assert answer.code == 0, answer.remark
    return int(json.loads(answer.body)["liteSubscriptionCount"])


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"", 604, "Request body is null."),
        (b"{}", 604, "LiteSubscriptionCtlRequestBody is empty."),
        (b'{"subscriptionSet":null}', 604, "LiteSubscriptionCtlRequestBody is empty."),
        (b'{"subscriptionSet":[],"more":1}', 604, "LiteSubscriptionCtlRequestBody is empty."),
        (b"null", 1, "body: "),
        (b"[]", 1, "body: "),
        (b"{", 1, "body: "),
        (b'{"subscriptionSet":[null]}', 1, "body: "),
        (b'{"subscriptionSet":7}', 1, "body: "),
        (b'{"subscriptionSet":[{}]}', 1, "body: action"),
        (b" " * (1 << 20) + b"{}", 29, ""),
    ],
)
def test_body_of_control_that_says_nothing_is_refused(
    tmp_path: Path, body: bytes, code: int, remark: str
) -> None:
    async def tell(it: Cluster) -> None:
        answer = await it.call(Command(RequestCode.LITE_SUBSCRIPTION_CTL, ext={}, body=body))
        assert answer.code == code, answer.remark
        assert str(answer.remark).startswith(remark), answer.remark
        # What does not say whom it is about is passed over.
        blank = {**entry("PARTIAL_ADD", ["a"]), "clientId": " "}
        assert (await it.call(control([blank]))).code == 0
        assert await count(it) == 0

    told(tmp_path, tell)


def test_more_light_topics_than_a_client_may_have_are_refused(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "kept")
        for action in ("PARTIAL_ADD", "COMPLETE_ADD"):
            answer = await it.call(ctl_command(action, [str(number) for number in range(65_536)]))
            assert answer.code == 2018
            assert "lite subscription quota exceeded 2300 of a client" in str(answer.remark)
            assert await count(it) == 1
        # The proxy lets so many pass, and so does the broker.
        names = [f"t{number}" for number in range(2_299)]
        await subscribe(it, *names)
        assert (await it.call(ctl_command("PARTIAL_ADD", ["one-more"]))).code == 2018
        # What is there already is none more.
        await subscribe(it, *names)
        assert await count(it) == 2_300

    told(tmp_path, tell)


def test_more_light_topics_than_all_clients_may_have_are_refused(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "a", "b", clientId="first")
        answer = await it.call(ctl_command("PARTIAL_ADD", ["c", "d"], clientId="second"))
        quota = "org.apache.rocketmq.broker.lite.LiteQuotaException"
        assert (answer.code, answer.remark) == (
            2018,
            f"{quota}: lite subscription quota exceeded 3",
        )
        await subscribe(it, "c", clientId="second")
        # Clients without a light topic are bounded as well.
        assert (await it.call(ctl_command("COMPLETE_ADD", clientId="third"))).code == 0
        assert (await it.call(ctl_command("COMPLETE_ADD", clientId="fourth"))).code == 2018

    told(tmp_path, tell, maxLiteSubscriptionCount="3")


def test_quotas_count_what_all_entries_of_a_request_ask_for(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await put_group(it, **{"lite.sub.client.quota": "-1"})
        for entries in (
            # One client in parts, several clients, and some who have none.
            [entry("PARTIAL_ADD", [f"a{n}"]) for n in range(4)],
            [{**entry("PARTIAL_ADD", ["a", "b"]), "clientId": f"c{n}"} for n in range(2)],
            [{**entry("COMPLETE_ADD", []), "clientId": f"c{n}"} for n in range(4)],
        ):
            answer = await it.call(control(entries))
            assert (answer.code, "quota exceeded 3" in str(answer.remark)) == (2018, True)
            assert await count(it) == 0
        # What an entry removes makes room for the next one.
        change = [entry("PARTIAL_ADD", ["a", "b", "c"]), entry("PARTIAL_REMOVE", ["a"])]
        assert (await it.call(control([*change, entry("PARTIAL_ADD", ["d"])]))).code == 0
        assert await count(it) == 3
        gone = [entry("COMPLETE_REMOVE", []), {**entry("COMPLETE_ADD", ["x"]), "clientId": "c"}]
        assert (await it.call(control(gone))).code == 0
        assert await count(it) == 1

    told(tmp_path, tell, maxLiteSubscriptionCount="3")


def test_quotas_count_what_requests_at_the_same_time_ask_for(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        names = [f"t{number}" for number in range(600)]
        commands = [ctl_command("PARTIAL_ADD", names, clientId=f"c{n}") for n in range(8)]
        answers = await asyncio.gather(*(it.call(each) for each in commands))
        assert {answer.code for answer in answers} == {0, 2018}
        assert await count(it) <= 1_000

    told(tmp_path, tell, maxLiteSubscriptionCount="1250")


def test_acknowledgements_are_refused_with_codes_of_rocketmq(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await subscribe(it, "a")
        await send(it, "a", b"0", b"1")
        found = await pop(it)
        one = found.handles[0]
        other = (one[0], one[1]._replace(revive_queue=1))
        for taken, fields, code, remark in (
            (one, {"topic": "none"}, 17, "topic[none] not exist"),
            (one, {"queueId": "4"}, 13, "queueId[4] is illegal"),
            (one, {"consumerGroup": OTHER}, 29, "group type or bind topic not match."),
            (one, {"consumerGroup": "none"}, 29, "group type or bind topic not match."),
            (one, {"offset": "3"}, 208, "ack offset illegal."),
            (one, {"liteTopic": "none", "offset": "1"}, 208, "ack offset illegal."),
            (one, {"queueId": "1"}, 29, "ack queue illegal."),
            (other, {}, 29, "ack queue illegal."),
            (one, {"offset": "2"}, 13, "ack offset illegal."),
            (one, {"extraInfo": "x"}, 1, "'x' is no receipt handle"),
        ):
            answer = await it.call(ack_command(taken, **fields))
            assert (answer.code, str(answer.remark)[: len(remark)]) == (code, remark), fields
        assert (await it.call(ack_command(found.handles[1]))).code == 0
        assert (await it.call(ack_command(one))).code == 0
        # Below the committed offset everything is settled.
        assert (await it.call(ack_command(one, offset="-5"))).code == 0
        # Nothing is there, and what is sent next is not passed over.
        early = await it.call(ack_command(found.handles[1], offset="2"))
        assert (early.code, early.remark) == (13, "ack offset illegal.")
        await send(it, "a", b"2")
        assert (await pop(it)).bodies == [b"2"]

    told(tmp_path, tell)


def test_questions_of_tools_are_refused_with_codes_of_rocketmq(tmp_path: Path) -> None:
    code = RequestCode
    none = {"group": "none"}
    asks: tuple[tuple[RequestCode, dict[str, str], int, str], ...] = (
        (code.GET_PARENT_TOPIC_INFO, {"topic": "none"}, 17, "Topic [none] not exist."),
        (code.GET_PARENT_TOPIC_INFO, {"topic": PLAIN}, 29, f"Topic [{PLAIN}] type not match."),
        (code.GET_LITE_TOPIC_INFO, {}, 17, "Topic [] not exist."),
        (code.GET_LITE_TOPIC_INFO, {"parentTopic": PLAIN}, 29, f"Topic [{PLAIN}] type not"),
        (code.GET_LITE_CLIENT_INFO, {}, 17, "Topic [] not exist."),
        (code.GET_LITE_CLIENT_INFO, {"parentTopic": PARENT, **none}, 26, "Group [none] not exist."),
        (
            code.GET_LITE_CLIENT_INFO,
            {"parentTopic": PARENT, "group": OTHER},
            29,
            f"Subscription [{OTHER}]-[{PARENT}] not match.",
        ),
        (
            code.GET_LITE_CLIENT_INFO,
            {"parentTopic": PARENT, "group": GROUP, "maxCount": "-1"},
            29,
            "maxCount is -1: must be 0 to 10000",
        ),
        (code.GET_LITE_GROUP_INFO, none, 26, "Group [none] not exist."),
        (
            code.GET_LITE_GROUP_INFO,
            {"group": "TOOLS_CONSUMER"},
            29,
            "Group [TOOLS_CONSUMER] is not",
        ),
        (code.GET_LITE_GROUP_INFO, {"group": GROUP, "topK": "-1"}, 29, "topK is -1: must be 1 to"),
        (code.GET_LITE_GROUP_INFO, {"group": GROUP, "topK": "x"}, 29, "field topK"),
        (code.TRIGGER_LITE_DISPATCH, none, 26, "Group [none] not exist."),
        (code.TRIGGER_LITE_DISPATCH, {"group": "TOOLS_CONSUMER"}, 29, "Group [TOOLS_CONSUMER] is"),
    )

    async def tell(it: Cluster) -> None:
        for asked, fields, wanted, remark in asks:
            answer = await it.call(Command(asked, ext={**fields, "more": "x"}))
            assert answer.code == wanted, (asked, fields, answer.remark)
            assert str(answer.remark).startswith(remark), answer.remark
        for asked in (code.GET_PARENT_TOPIC_INFO, code.TRIGGER_LITE_DISPATCH):
            assert (await it.call(Command(asked, ext=None))).code == 1
            assert (await it.call(Command(asked, ext={}))).code == 1
        assert (await it.call(Command(code.ACK_LITE_MESSAGE, ext={}))).code == 3

    told(tmp_path, tell)
