"""Questions of operators need the rights on what they are about: rights belong to data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import auth_harness as users
from broker_harness import dispatched
from remoting_harness import on_loop
from roquet.acl.accounts import Perm
from roquet.acl.credentials import Credentials
from roquet.acl.needs import TOPICS_AT_ONCE, Need, broker_needs, group, shown_producer, topic
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.command import Command
from roquet.protocol.tags import subscribe
from roquet.testing.cluster import cluster, pull_command, send_command

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = Credentials("nobody-one", "secret-of-nobody")
READER = Credentials("reader-one", "secret-of-reader")
ADMIN = Credentials("admin-one", "secret-of-admin")
ACCOUNTS = f"""\
accounts:
- {{accessKey: {ADMIN.access_key}, secretKey: {ADMIN.secret_key}, admin: true}}
- accessKey: {NOBODY.access_key}
  secretKey: {NOBODY.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
- accessKey: {READER.access_key}
  secretKey: {READER.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [orders=SUB]
  groupPerms: [vg=SUB]
"""
KNOW_T, MEMBER = topic("t", Perm.BOTH | Perm.GET), group("g")
BOTH = {"topic": "t", "group": "g"}
MANY = ";".join(f"t{number}" for number in range(TOPICS_AT_ONCE + 1))


@pytest.mark.parametrize(
    ("code", "ext", "needs"),
    [
        *((code, BOTH, [KNOW_T]) for code in (202, 300, 351)),
        *((code, BOTH, [MEMBER]) for code in (343, 352)),
        *((code, {"consumerGroup": "g"}, [MEMBER]) for code in (203, 307)),
        *((code, BOTH, [KNOW_T, MEMBER]) for code in (223, 303, 345)),
        (204, {"producerGroup": "p"}, [shown_producer("p")]),
        (208, {"consumerGroup": "g"}, [MEMBER]),
        (208, {"consumerGroup": "g", "topic": "t"}, [MEMBER, KNOW_T]),
        (208, {"consumerGroup": "g", "topic": " ", "topicList": "t;;t"}, [MEMBER, KNOW_T, KNOW_T]),
        (208, {"consumerGroup": "g", "topicList": MANY}, None),
        (308, {"topic": "t", "compareGroup": "g"}, [KNOW_T, MEMBER]),
        (
            308,
            {"topic": "t", "compareGroup": "g", "filterGroups": "g,h"},
            [KNOW_T, MEMBER, group("h")],
        ),
        (308, {"topic": "t", "filterGroups": MANY.replace(";", ",")}, None),
        (315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "t"}, [KNOW_T]),
        (315, {"statsName": "TOPIC_PUT_LATENCY", "statsKey": "0@t"}, [KNOW_T]),
        (315, {"statsName": "GROUP_GET_NUMS", "statsKey": "t@g"}, [KNOW_T, MEMBER]),
        (315, {"statsName": "GROUP_GET_LATENCY", "statsKey": "0@t@g"}, [KNOW_T, MEMBER]),
        (315, {"statsName": "GROUP_GET_NUMS", "statsKey": "t"}, None),
        (315, {"statsName": "BROKER_PUT_NUMS", "statsKey": "cluster"}, None),
        (400, {}, []),  # the service asks, which has read the body
        *((code, {}, None) for code in (43, 61, 317, 328, 402)),
    ],
)
def test_what_a_question_needs(code: int, ext: dict[str, str], needs: list[Need] | None) -> None:
    found = broker_needs(Command(code, ext))
    assert (None if found is None else list(found)) == needs


CONSUMERS = (ConsumerData(group="vg", subscriptions=(subscribe("orders", "*"),)),)
BEAT = HeartbeatData(client_id="c1", producers=("vpg",), consumers=CONSUMERS)
ASSIGNMENT = json.dumps(
    {
        "topic": "orders",
        "consumerGroup": "vg",
        "clientId": "c1",
        "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    }
).encode()
ORDERS, VG = {"topic": "orders"}, {"group": "vg"}
QUESTIONS: list[tuple[int, dict[str, str], bytes]] = [
    (202, ORDERS, b""),
    (203, {"consumerGroup": "vg"}, b""),
    (208, {"consumerGroup": "vg", **ORDERS}, b""),
    (208, {"consumerGroup": "vg", "topicList": "orders"}, b""),
    (300, ORDERS, b""),
    (303, {**ORDERS, **VG}, b""),
    (308, {**ORDERS, "compareGroup": "vg", "filterGroups": ""}, b""),
    (315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"}, b""),
    (343, VG, b""),
    (345, {**ORDERS, **VG}, b""),
    (351, ORDERS, b""),
    (352, VG, b""),
    (400, {}, ASSIGNMENT),
]
"""What a reader of the topic, in its group, is told."""
WHOLE: list[tuple[int, dict[str, str], bytes]] = [
    (204, {"producerGroup": "vpg"}, b""),
    (317, {"isOrder": "false"}, b""),
    (328, {}, b""),
    (43, {}, b""),
    (61, {}, b""),
    (402, {}, b""),
]
"""What is about everybody's topics and groups, or about a group that the reader has nothing of."""
ASKED_OF_CLIENTS: list[tuple[int, dict[str, str], bytes]] = [
    (223, {**ORDERS, **VG, "clientAddr": ""}, b""),
    (307, {"consumerGroup": "vg", "clientId": "c1", "jstackEnable": "true"}, b""),
]


@on_loop
async def test_account_learns_only_of_its_topics_and_groups(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    asks = {"aclEnable": "true", "rocketmq.acl.plain.file": str(file)}
    async with cluster(tmp_path, **asks) as it:

        async def ask(asked: Command, who: Credentials) -> Command:
            return await it.call(who.sign(asked))

        assert (await ask(send_command("orders", b"x"), ADMIN)).code == 0
        await dispatched(it)
        beat = await ask(Command(34, {}, BEAT.encode()), READER)
        assert beat.code == 0, beat
        assert (await ask(pull_command("orders", consumerGroup="vg"), READER)).code == 0
        for code, ext, body in (*QUESTIONS, *WHOLE, *ASKED_OF_CLIENTS):
            answer = await ask(Command(code, dict(ext), body), NOBODY)
            assert (answer.code, answer.body) == (1, b""), (code, answer)
            said = answer.remark or ""
            assert "No default permission" in said or "Need admin permission" in said, (code, said)
        for who in (READER, ADMIN):
            for code, ext, body in QUESTIONS:
                answer = await ask(Command(code, dict(ext), body), who)
                assert answer.code == 0, (who.access_key, code, answer.remark)
        for code, ext, body in WHOLE:
            asked = Command(code, dict(ext), body)
            assert (await ask(asked, READER)).code == 1, code
            answer = await ask(asked, ADMIN)
            assert answer.code == 0, (code, answer.remark)


@on_loop
async def test_user_learns_no_progress_by_a_list_of_topics(tmp_path: Path) -> None:
    async with users.guarded(tmp_path) as it:
        await it.make(users.ANN)
        await it.allow(users.ANN, users.entry("Topic:mine", "All"), users.entry("Group:g", "All"))
        for names, code in (("mine", 0), ("mine;orders", 16)):
            listed = Command(208, {"consumerGroup": "g", "topicList": names})
            answer = await it.call(listed, users.ANN)
            assert (answer.code == 16) == (code == 16), (names, answer)
