"""Light topics and accounts: the rights on the parent and the group are what counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from broker_harness import dispatched, play, records
from light_harness import (
    GROUP,
    ON,
    PARENT,
    ack_command,
    ctl_command,
    light_properties,
    pop_command,
    popped,
    queue,
)
from roquet.acl.credentials import Credentials
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.testing.cluster import pull_command, send_command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.testing.cluster import Cluster

MEMBER = Credentials("member-one", "member-secret")
"""Has the parent and the group, and nothing else."""
OTHER = Credentials("other-one", "other-secret")
"""Has another parent and another group."""
NAMED = Credentials("named-one", "named-secret")
"""Has the names of the queues, but not the parent."""
ADMIN = Credentials("admin-one", "admin-secret")
ACCOUNTS = f"""\
accounts:
- accessKey: {MEMBER.access_key}
  secretKey: {MEMBER.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: ["{PARENT}=PUB|SUB"]
  groupPerms: ["{GROUP}=SUB"]
- accessKey: {OTHER.access_key}
  secretKey: {OTHER.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: ["others=PUB|SUB"]
  groupPerms: ["others=SUB"]
- accessKey: {NAMED.access_key}
  secretKey: {NAMED.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: ["{queue("a")}=PUB|SUB"]
  groupPerms: ["{GROUP}=SUB"]
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  admin: true
"""


def guarded(folder: Path, tell: Callable[[Cluster], Awaitable[None]], **changes: str) -> None:
    (folder / "conf").mkdir(parents=True)
    accounts = folder / "conf" / "plain_acl.yml"
    accounts.touch(0o600)
    accounts.write_text(ACCOUNTS)

    async def begun(it: Cluster) -> None:
        for topic, group in ((PARENT, GROUP), ("others", "others")):
            attributes = {"message.type": "LITE"}
            it.broker.metadata.topics.put(TopicConfig(name=topic, attributes=attributes))
            bound = {"lite.bind.topic": topic}
            config = SubscriptionGroupConfig(name=group, attributes=bound)
            it.broker.metadata.groups.put(config)
        await tell(it)

    play(folder, begun, aclEnable="true", rocketmqHome=str(folder), **ON, **changes)


def test_rights_on_parent_and_group_are_enough(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        send = send_command(PARENT, b"m", 0, light_properties("a"))
        assert (await it.call(MEMBER.sign(send))).code == 0
        await dispatched(it)
        assert (await it.call(MEMBER.sign(ctl_command("PARTIAL_ADD", ["a"])))).code == 0
        found = popped(await it.call(MEMBER.sign(pop_command(invisibleTime="300"))))
        assert found.bodies == [b"m"]
        # Also what comes a second time.
        again = popped(await it.call(MEMBER.sign(pop_command(pollTime="15000"))))
        assert (again.bodies, again.counts) == ([b"m"], [1])
        change = ack_command(again.handles[0], invisibleTime="60000")
        change.code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        assert (await it.call(MEMBER.sign(change))).code == 0
        assert (await it.call(MEMBER.sign(ack_command(again.handles[0])))).code == 0
        for command in questions():
            answer = await it.call(MEMBER.sign(command))
            assert answer.code == 0, (command.code, answer.remark)
        assert (await it.call(MEMBER.sign(ctl_command("COMPLETE_REMOVE")))).code == 0

    guarded(tmp_path, tell)


def questions() -> list[Command]:
    code = RequestCode
    fields = {"parentTopic": PARENT, "liteTopic": "a", "group": GROUP, "clientId": "client-1"}
    asked = (code.GET_LITE_TOPIC_INFO, code.GET_LITE_CLIENT_INFO, code.GET_LITE_GROUP_INFO)
    return [
        Command(code.GET_PARENT_TOPIC_INFO, ext={"topic": PARENT}),
        *(Command(one, ext=dict(fields)) for one in asked),
        Command(code.TRIGGER_LITE_DISPATCH, ext={"group": GROUP}),
    ]


def test_account_without_them_gets_nothing_by_any_code(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        send = send_command(PARENT, b"m", 0, light_properties("a"))
        assert (await it.call(MEMBER.sign(send))).code == 0
        await dispatched(it)
        assert (await it.call(MEMBER.sign(ctl_command("PARTIAL_ADD", ["a"])))).code == 0
        found = popped(await it.call(MEMBER.sign(pop_command())))
        ack = ack_command(found.handles[0])
        change = ack_command(found.handles[0], invisibleTime="1")
        change.code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        rows = [
            {"t": topic, "c": group} for topic, group in (("others", "others"), (PARENT, GROUP))
        ]
        batch = Command(RequestCode.BATCH_ACK_MESSAGE, body=json.dumps({"acks": rows}).encode())
        for who in (OTHER, NAMED):
            for command in (
                *questions(),
                send_command(PARENT, b"x", 0, light_properties("a")),
                *(ctl_command(action, ["a"]) for action in ACTIONS),
                pop_command(),
                ack,
                batch,
                change,
            ):
                answer = await it.call(who.sign(command))
                assert (answer.code, answer.body or b"") == (1, b""), (command.code, who)
                assert "permission" in str(answer.remark).lower()
            answer = await it.call(who.sign(Command(RequestCode.GET_BROKER_LITE_INFO, ext={})))
            assert answer.code == 1
        # The subscription and the batch are as they were.
        assert (await it.call(MEMBER.sign(ack))).code == 0
        asked = questions()[2]
        assert json.loads((await it.call(MEMBER.sign(asked))).body)["liteTopicCount"] == 1
        info = Command(RequestCode.GET_BROKER_LITE_INFO, ext={})
        assert (await it.call(ADMIN.sign(info))).code == 0

    guarded(tmp_path, tell)


def test_account_leaves_room_for_the_light_topics_of_others(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        def wanted(number: int, names: int) -> Command:
            more = {"group": "others", "topic": "others", "clientId": f"other-{number}"}
            return ctl_command("COMPLETE_ADD", [f"n{one}" for one in range(names)], **more)

        taken = 0
        while (answer := await it.call(OTHER.sign(wanted(taken, 50)))).code == 0:
            taken += 1
        assert (answer.code, "for other accounts" in str(answer.remark)) == (2018, True)
        assert taken == 16  # 800 of 1,000: with 850, more than 4 times the rest
        # Also not by clients without a light topic, of which there may be as many.
        empty = [await it.call(OTHER.sign(wanted(at, 0))) for at in range(taken, 900)]
        assert {one.code for one in empty} == {0, 2018}
        assert (await it.call(MEMBER.sign(ctl_command("PARTIAL_ADD", FEW)))).code == 0
        # There is less room for the other account now; what it has it keeps, and renews.
        assert (await it.call(OTHER.sign(wanted(0, 50)))).code == 0
        assert (await it.call(OTHER.sign(wanted(0, 51)))).code == 2018
        gone = ctl_command("COMPLETE_REMOVE", group="others", topic="others", clientId="other-0")
        assert (await it.call(OTHER.sign(gone))).code == 0
        assert (await it.call(MEMBER.sign(ctl_command("PARTIAL_ADD", MORE)))).code == 0

    guarded(tmp_path, tell, maxLiteSubscriptionCount="1000")


FEW, MORE = [f"n{number}" for number in range(40)], [f"n{number}" for number in range(100)]
ACTIONS = ("PARTIAL_ADD", "PARTIAL_REMOVE", "COMPLETE_ADD", "COMPLETE_REMOVE")


def test_client_of_the_same_name_in_another_group_touches_nothing(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.call(MEMBER.sign(ctl_command("PARTIAL_ADD", ["a"])))).code == 0
        for action in ACTIONS:
            mine = ctl_command(action, ["b"], group="others", topic="others")
            assert (await it.call(OTHER.sign(mine))).code == 0
        asked = questions()[2]
        assert json.loads((await it.call(MEMBER.sign(asked))).body)["liteTopicCount"] == 1

    guarded(tmp_path, tell)


def test_nothing_is_put_into_light_topics_of_a_parent_without_its_right(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        text = props.write({props.INNER_MULTI_DISPATCH: queue("a")})
        answer = await it.call(OTHER.sign(send_command("others", b"x", 0, text)))
        assert answer.code == 13
        smuggled = light_properties(f"z,{queue('a')}")
        answer = await it.call(OTHER.sign(send_command("others", b"x", 0, smuggled)))
        assert answer.code == 13
        assert (await it.call(NAMED.sign(send_command(queue("a"), b"x")))).code != 0
        await dispatched(it)
        assert it.broker.store.max_offset(queue("a"), 0) == 0
        # The name of the queue alone shows nothing of it either.
        send = send_command(PARENT, b"m", 0, light_properties("a"))
        assert (await it.call(MEMBER.sign(send))).code == 0
        await dispatched(it)
        answer = await it.call(NAMED.sign(pull_command(queue("a"), consumerGroup=GROUP)))
        assert not records(answer)

    guarded(tmp_path, tell)
