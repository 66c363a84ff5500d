"""Light queues and accounts: the right to read a queue's name is not that to read its messages."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, records
from pop_harness import now_ms, pop_command
from roquet.acl.credentials import Credentials
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.testing.cluster import pull_command, send_command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.testing.cluster import Cluster

LIGHT = "%LMQ%mixed"
SENDER = Credentials("sender-one", "sender-secret")
READER = Credentials("reader-one", "reader-secret")
OWNER = Credentials("owner-one", "owner-secret")
ONE_GROUP = Credentials("group-one", "group-secret")
NOBODY = Credentials("nobody-one", "nobody-secret")
OWNER_OF_NAME = Credentials("name-one", "name-secret")
ACCOUNTS = f"""\
accounts:
- accessKey: {SENDER.access_key}
  secretKey: {SENDER.secret_key}
  defaultTopicPerm: PUB
  defaultGroupPerm: DENY
- accessKey: {READER.access_key}
  secretKey: {READER.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: ["{LIGHT}=SUB", "open=SUB", "%DLQ%readers=SUB"]
- accessKey: {OWNER.access_key}
  secretKey: {OWNER.secret_key}
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
  topicPerms: ["%DLQ%readers=SUB"]
- accessKey: {ONE_GROUP.access_key}
  secretKey: {ONE_GROUP.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: ["open=SUB"]
  groupPerms: ["readers=SUB"]
- accessKey: {OWNER_OF_NAME.access_key}
  secretKey: {OWNER_OF_NAME.secret_key}
  defaultTopicPerm: PUB
  defaultGroupPerm: DENY
  groupPerms: ["readers_open=PUB|SUB"]
- accessKey: {NOBODY.access_key}
  secretKey: {NOBODY.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
"""


def guarded(folder: Path, tell: Callable[[Cluster], Awaitable[None]], **changes: str) -> None:
    (folder / "conf").mkdir(parents=True)
    accounts = folder / "conf" / "plain_acl.yml"
    accounts.touch(0o600)
    accounts.write_text(ACCOUNTS)
    on = {"enableLmq": "true", "enableMultiDispatch": "true"}
    play(folder, tell, aclEnable="true", rocketmqHome=str(folder), **on, **changes)


async def fill(it: Cluster) -> None:
    text = props.write({props.INNER_MULTI_DISPATCH: LIGHT})
    for topic, body in (("secret", b"s0"), ("open", b"o1"), ("secret", b"s2"), ("open", b"o3")):
        answer = await it.call(SENDER.sign(send_command(topic, body, 0, text)))
        assert answer.code == 0, answer.remark
    await dispatched(it)


def test_a_reader_gets_only_messages_of_topics_that_it_may_read(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it)
        answer = await it.call(READER.sign(pull_command(LIGHT)))
        assert [one.body for one in records(answer)] == [b"o1", b"o3"]
        assert ext(answer)["nextBeginOffset"] == "4"
        answer = await it.call(READER.sign(pull_command(LIGHT, maxMsgNums="1")))
        assert [one.body for one in records(answer)] == [b"o1"]
        assert ext(answer)["nextBeginOffset"] == "2"
        peek = Command(RequestCode.PEEK_MESSAGE, ext=pop_command(LIGHT).ext)
        answer = await it.call(READER.sign(peek))
        assert [one.body for one in records(answer)] == [b"o1", b"o3"]
        answer = await it.call(READER.sign(pop_command(LIGHT)))
        assert [one.body for one in records(answer)] == [b"o1", b"o3"]
        assert ext(answer)["msgOffsetInfo"] == "0 0 1,3"

    guarded(tmp_path, tell)


def test_an_account_of_no_rights_gets_nothing_of_a_light_queue(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it)
        peek = Command(RequestCode.PEEK_MESSAGE, ext=pop_command(LIGHT).ext)
        for command in (pull_command(LIGHT), pop_command(LIGHT), peek):
            for who in (NOBODY, SENDER):
                answer = await it.call(who.sign(command))
                assert (answer.code, answer.body or b"") == (1, b""), (command.code, who.access_key)
                assert "permission" in str(answer.remark).lower()
        for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET):
            asked = Command(code, ext={"topic": LIGHT, "queueId": "0"})
            assert (await it.call(NOBODY.sign(asked))).code == 1, code
        named = props.write({props.INNER_MULTI_DISPATCH: LIGHT})
        answer = await it.call(NOBODY.sign(send_command("open", b"x", 0, named)))
        assert answer.code == 1

    guarded(tmp_path, tell)


def test_the_name_alone_opens_no_light_queue_of_other_topics(tmp_path: Path) -> None:
    """As with RocketMQ's rights, where who may read the name reads everything in it."""

    async def tell(it: Cluster) -> None:
        text = props.write({props.INNER_MULTI_DISPATCH: LIGHT})
        answer = await it.call(SENDER.sign(send_command("secret", b"s", 0, text)))
        assert answer.code == 0, answer.remark
        await dispatched(it)
        answer = await it.call(READER.sign(pull_command(LIGHT)))
        assert (answer.code, answer.body or b"") == (20, b"")
        assert not records(await it.call(READER.sign(pop_command(LIGHT))))

    guarded(tmp_path, tell)


GROUP = "readers"
RETRIES = [f"%RETRY%{GROUP}{mark}{LIGHT}" for mark in "_+"]


async def keep(it: Cluster, who: Credentials, offset: int, topic: str = LIGHT) -> Command:
    """Have a message become visible again soon, by a handle that no pop gave."""
    it.broker.metadata.groups.put(SubscriptionGroupConfig(name=GROUP))
    fields = {
        "consumerGroup": GROUP,
        "topic": topic,
        "queueId": "0",
        "offset": str(offset),
        "extraInfo": f"{offset} {now_ms()} 10000 0 0 broker-a 0 {offset}",
        "invisibleTime": "1000",
    }
    return await it.call(who.sign(Command(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext=fields)))


async def revived(it: Cluster, topic: str, count: int) -> None:
    """Wait until a topic has so many messages."""
    for _ in range(1500):
        if it.broker.store.max_offset(topic, 0) >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nothing was revived")


def asks(code: RequestCode, topic: str, **fields: str) -> Command:
    return Command(code, ext={**(pop_command(topic, consumerGroup=GROUP).ext or {}), **fields})


async def all_reads(it: Cluster, who: Credentials, topic: str) -> list[bytes]:
    """Return what an account gets of a topic by the codes that change nothing."""
    found: list[bytes] = []
    plain = pull_command(topic, consumerGroup=GROUP)
    lite = Command(RequestCode.LITE_PULL_MESSAGE, ext=plain.ext)
    for command in (plain, lite, asks(RequestCode.PEEK_MESSAGE, topic)):
        answer = await it.call(who.sign(command))
        found += [one.body for one in records(answer)]
    return found


def test_a_handle_makes_no_checkpoint_of_a_message_that_the_caller_may_not_read(
    tmp_path: Path,
) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it)
        for offset in (0, 2, 4):
            answer = await keep(it, READER, offset)
            assert (answer.code, "has no offset" in str(answer.remark)) == (208, True), offset
        assert (await keep(it, READER, 1)).code == 0
        assert (await keep(it, OWNER, 0)).code == 0

    guarded(tmp_path, tell)


@pytest.mark.parametrize("v2", [False, True])
def test_copies_for_a_retry_are_those_of_their_first_topic(tmp_path: Path, v2: bool) -> None:
    topic = RETRIES[v2]

    async def tell(it: Cluster) -> None:
        await fill(it)
        for offset in range(4):
            assert (await keep(it, OWNER, offset)).code == 0
        await revived(it, topic, 4)
        await dispatched(it)
        assert sorted(set(await all_reads(it, READER, topic))) == [b"o1", b"o3"]
        assert sorted(set(await all_reads(it, OWNER, topic))) == [b"o1", b"o3", b"s0", b"s2"]
        for at in range(4):
            units = it.broker.store.units(topic, 0, at, 1)
            record = it.broker.store.record(*units[0][:2])
            assert record is not None
            is_open = record.body.startswith(b"o")
            found = props.read(record.properties)
            assert found[props.LMQ_ORIGIN_TOPIC] == ("open" if is_open else "secret")
            place = {"offset": str(record.physical_offset)}
            for code in (RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.CONSUMER_SEND_MSG_BACK):
                more = {"group": GROUP, "delayLevel": "-1"}
                answer = await it.call(READER.sign(Command(code, ext={**place, **more})))
                assert (answer.code == 0) is is_open, (code, answer.remark)
            # A copy of a copy has the same topic: no handle helps there either.
            answer = await keep(it, READER, at, topic)
            assert (answer.code == 0) is is_open, answer.remark
            key = {"topic": topic, "key": found[props.UNIQ_KEY], "maxNum": "9"}
            key |= {"beginTimestamp": "0", "endTimestamp": str(2**60), "_UNIQUE_KEY_QUERY": "true"}
            asked = Command(RequestCode.QUERY_MESSAGE, ext=key)
            bodies = (await it.call(READER.sign(asked))).body or b""
            assert (b"s0" in bodies or b"s2" in bodies) is False
        for _ in range(4):
            answer = await it.call(READER.sign(pop_command(LIGHT, consumerGroup=GROUP)))
            assert {one.body for one in records(answer)} <= {b"o1", b"o3"}

    guarded(tmp_path, tell, enableRetryTopicV2=str(v2).lower())


@pytest.mark.parametrize("v2", [False, True])
def test_a_retry_of_a_plain_message_needs_its_group_and_topic_alone(
    tmp_path: Path, v2: bool
) -> None:
    topic = f"%RETRY%{GROUP}{'_+'[v2]}open"

    async def tell(it: Cluster) -> None:
        answer = await it.call(SENDER.sign(send_command("open", b"plain", 0)))
        assert answer.code == 0, answer.remark
        await dispatched(it)
        assert (await keep(it, ONE_GROUP, 0, "open")).code == 0
        await revived(it, topic, 1)
        await dispatched(it)
        noted = asks(RequestCode.NOTIFICATION, "open", pollTime="0", bornTime=str(now_ms()))
        answer = await it.call(ONE_GROUP.sign(noted))
        assert ext(answer)["hasMsg"] == "true"
        answer = await it.call(ONE_GROUP.sign(pop_command("open", consumerGroup=GROUP)))
        bodies = [one.body for one in records(answer)]
        answer = await it.call(ONE_GROUP.sign(pop_command("open", consumerGroup=GROUP)))
        bodies += [one.body for one in records(answer)]
        # The message where it was first, which nobody popped, and its copy.
        assert bodies == [b"plain", b"plain"]

    guarded(tmp_path, tell, enableRetryTopicV2=str(v2).lower())


def test_group_named_as_a_retry_topic_of_pop_reads_nothing_that_others_popped(
    tmp_path: Path,
) -> None:
    """The retry topic of the group `readers` and the topic `open` is that of `readers_open`."""
    topic = f"%RETRY%{GROUP}_open"

    async def tell(it: Cluster) -> None:
        answer = await it.call(SENDER.sign(send_command("open", b"plain", 0)))
        assert answer.code == 0, answer.remark
        await dispatched(it)
        assert (await keep(it, ONE_GROUP, 0, "open")).code == 0
        await revived(it, topic, 1)
        # What the group gets back itself lies there as well.
        answer = await it.call(OWNER_OF_NAME.sign(send_command(topic, b"own", 0)))
        await dispatched(it)
        for who, expected in ((OWNER_OF_NAME, [b"own"]), (OWNER, [b"plain", b"own"])):
            pull = pull_command(topic, consumerGroup=f"{GROUP}_open")
            found = [one.body for one in records(await it.call(who.sign(pull)))]
            assert found == expected, who.access_key

    guarded(tmp_path, tell)


@pytest.mark.parametrize("threads", ["0", "2"])
def test_dead_letters_of_a_light_queue_are_those_of_their_first_topic(
    tmp_path: Path, threads: str
) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it)
        pulled = records(await it.call(OWNER.sign(pull_command(LIGHT))))
        assert len(pulled) == 4
        for record in pulled:
            fields = {"offset": str(record.physical_offset), "group": GROUP, "delayLevel": "-1"}
            back = Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext=fields)
            assert (await it.call(OWNER.sign(back))).code == 0
        await dispatched(it)
        dead = f"%DLQ%{GROUP}"
        known = it.broker.metadata.topics.get(dead)
        assert known is not None
        it.broker.metadata.topics.put(dataclasses.replace(known, perm=6))
        assert sorted(set(await all_reads(it, READER, dead))) == [b"o1", b"o3"]
        assert sorted(set(await all_reads(it, OWNER, dead))) == [b"o1", b"o3", b"s0", b"s2"]

    guarded(tmp_path, tell, ioThreads=threads)


@pytest.mark.parametrize(("kind", "text"), [("SQL92", "pin = '4711'"), ("TAG", "hush")])
def test_a_filter_tells_nothing_of_messages_that_are_passed_over(
    tmp_path: Path, kind: str, text: str
) -> None:
    more = {"pin": "4711", "TAGS": "hush", props.INNER_MULTI_DISPATCH: LIGHT}

    async def send(it: Cluster, topic: str, given: dict[str, str]) -> None:
        answer = await it.call(SENDER.sign(send_command(topic, b"x", 0, props.write(given))))
        assert answer.code == 0, answer.remark
        await dispatched(it)

    async def said(it: Cluster, expression: str) -> list[object]:
        own = {"subscription": expression, "expressionType": kind, "maxMsgNums": "1"}
        pulled = await it.call(READER.sign(pull_command(LIGHT, **own)))
        told = asks(RequestCode.NOTIFICATION, LIGHT, expType=kind, exp=expression, pollTime="0")
        noted = await it.call(READER.sign(told))
        found = ext(pulled)["nextBeginOffset"], ext(noted)["hasMsg"]
        return [pulled.code, len(records(pulled)), *found]

    async def tell(it: Cluster) -> None:
        for _ in range(3):
            await send(it, "secret", more)
        other = text.replace("4711", "4712").replace("hush", "loud")
        assert await said(it, text) == await said(it, other) == [20, 0, "3", "false"]
        await send(it, "open", more)
        assert await said(it, text) == [0, 1, "4", "true"]
        assert await said(it, other) == [20, 0, "4", "false"]
        units = {"topic": LIGHT, "queueId": "0", "index": "0", "count": "9"}
        asked = Command(RequestCode.QUERY_CONSUME_QUEUE, ext=units)
        for who, count in ((READER, 1), (OWNER, 4)):
            answer = await it.call(who.sign(asked))
            assert len(json.loads(answer.body or b"{}")["queueData"]) == count

    guarded(tmp_path, tell, enablePropertyFilter="true")


def test_what_a_sender_writes_of_a_first_topic_is_dropped(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        given = {props.INNER_MULTI_DISPATCH: LIGHT, props.LMQ_ORIGIN_TOPIC: "open"}
        await it.call(SENDER.sign(send_command("secret", b"s", 0, props.write(given))))
        await dispatched(it)
        (found,) = records(await it.call(OWNER.sign(pull_command(LIGHT))))
        assert props.LMQ_ORIGIN_TOPIC not in props.read(found.properties)
        assert (await keep(it, OWNER, 0)).code == 0
        await revived(it, RETRIES[0], 1)
        assert await all_reads(it, READER, RETRIES[0]) == []

    guarded(tmp_path, tell)
