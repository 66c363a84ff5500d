"""A V1 pop retry topic may be that of several groups and topics: each gets its own messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker_harness import dispatched, play
from pop_harness import GROUP, TOPIC, ack_command, invisible_command, pop, pop_command, popped
from roquet.acl.credentials import Credentials
from roquet.model.topic import TopicConfig
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.pop.topics import is_for_group, pop_retry_topic
from roquet.store.records import read_records
from roquet.testing.cluster import send_command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

NAMESAKE = "eu_" + TOPIC
"""With the group `GROUP` it has the retry topic of `TOPIC` with the group `GROUP_eu`."""
RETRY = pop_retry_topic(NAMESAKE, GROUP, v2=False)


COUNT = 5
NO_MESSAGE = 208
ADMIN = Credentials("operator", "secret-of-operator")
READER = Credentials("reader-one", "secret-of-reader")
FAST = {"timerPrecisionMs": "100", "reviveInterval": "100", "mappedFileSizeTimerLog": "65536"}


async def _fill(it: Cluster) -> None:
    for name in (NAMESAKE, RETRY):
        it.broker.metadata.topics.put(TopicConfig(name=name, read_queues=1, write_queues=1))
    marks: tuple[tuple[bytes, dict[str, str]], ...] = (
        (b"theirs", {props.ORIGIN_GROUP: GROUP + "_eu"}),
        (b"mine", {props.ORIGIN_GROUP: GROUP}),
        (b"theirs too", {props.ORIGIN_GROUP: GROUP + "_eu"}),
        (b"sent back", {props.RETRY_TOPIC: "other"}),
        (b"of an old broker", {}),
    )
    for body, marked in marks:
        await it.send(RETRY, body, queue_id=0, properties=props.write(marked))
    await dispatched(it)


def test_pop_gives_only_the_groups_own_of_a_retry_topic_of_several(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await _fill(it)
        got = await pop(it, NAMESAKE)
        assert got.bodies == [b"mine", b"of an old broker"]
        assert got.ext["msgOffsetInfo"] == "1 0 1,4"
        assert (await pop(it, NAMESAKE)).bodies == []

    play(tmp_path, tell)


def test_peek_shows_only_the_groups_own_of_a_retry_topic_of_several(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await _fill(it)
        command = Command(RequestCode.PEEK_MESSAGE, ext=pop_command(NAMESAKE).ext)
        answer = await it.call(command)
        assert [one.body for one in read_records(answer.body)] == [b"mine", b"of an old broker"]

    play(tmp_path, tell)


def test_messages_of_a_retry_topic_are_for_the_group_that_they_name() -> None:
    for topic in (RETRY, pop_retry_topic("t", "g", v2=True)):
        assert is_for_group(topic, "g", {props.ORIGIN_GROUP: "g"})
        assert not is_for_group(topic, "g", {props.ORIGIN_GROUP: "other"})
    assert is_for_group("orders", "g", {props.ORIGIN_GROUP: "other"})
    assert is_for_group("%RETRY%g", "g", {props.RETRY_TOPIC: "orders"})
    assert not is_for_group("%RETRY%g", "other", {props.RETRY_TOPIC: "orders"})
    assert is_for_group("%RETRY%g_t", "g", {})


def test_forged_handle_copies_no_message_of_another_group(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await _fill(it)
        mine = (await pop(it, NAMESAKE)).handles[0]
        forged = mine._replace(start_offset=0, queue_offset=0)
        for handle in (forged, mine):
            command = invisible_command(handle, RETRY, invisibleTime="1000")
            assert (await it.call(command)).code == 0
        got = await pop(it, NAMESAKE)
        for _ in range(150):
            if got.records:
                break
            await asyncio.sleep(0.1)
            got = await pop(it, NAMESAKE)
        assert got.bodies == [b"mine"]
        assert it.broker.store.max_offset(RETRY, 0) == COUNT + 1

    play(tmp_path, tell, **FAST)


def test_account_learns_nothing_of_another_group_by_forged_handles(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(
        "accounts:\n"
        f"- {{accessKey: operator, secretKey: {ADMIN.secret_key}, admin: true}}\n"
        f"- {{accessKey: reader-one, secretKey: {READER.secret_key},"
        f" topicPerms: [{NAMESAKE}=SUB], groupPerms: [{GROUP}=SUB]}}\n"
    )

    async def tell(it: Cluster) -> None:
        for name in (NAMESAKE, RETRY):
            it.broker.metadata.topics.put(TopicConfig(name=name, read_queues=1, write_queues=1))
        for owner in (GROUP + "_eu", GROUP, GROUP + "_eu"):
            marked = props.write({props.ORIGIN_GROUP: owner})
            sent = ADMIN.sign(send_command(RETRY, owner.encode(), 0, marked))
            assert (await it.call(sent)).code == 0
        await dispatched(it)
        got = popped(await it.call(READER.sign(pop_command(NAMESAKE))))
        assert got.bodies == [GROUP.encode()]
        mine = got.handles[0]
        said: list[tuple[int, str]] = []
        # What is another group's is answered as what is not there, without a bound of the queue.
        for offset in (0, 2, 3, 77):
            forged = mine._replace(start_offset=offset, queue_offset=offset)
            command = invisible_command(forged, RETRY, invisibleTime="1000")
            answer = await it.call(READER.sign(command))
            said.append((answer.code, (answer.remark or "").removesuffix(str(offset))))
        assert said == [(NO_MESSAGE, f"queue 0 of {RETRY} has no offset ")] * 4
        forged = mine._replace(start_offset=77, queue_offset=77)
        answer = await it.call(READER.sign(ack_command(forged, RETRY)))
        assert (answer.code, "store:" in (answer.remark or "")) == (NO_MESSAGE, False)
        command = invisible_command(mine, RETRY, invisibleTime="1000")
        assert (await it.call(READER.sign(command))).code == 0

    play(tmp_path, tell, **{"aclEnable": "true", "rocketmq.acl.plain.file": str(file)})
