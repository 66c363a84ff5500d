"""Light queues and accounts: the right to read a queue's name is not that to read its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_harness import dispatched, ext, play, records
from pop_harness import pop_command
from roquet.acl.credentials import Credentials
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
NOBODY = Credentials("nobody-one", "nobody-secret")
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
  topicPerms: ["{LIGHT}=SUB", "open=SUB"]
- accessKey: {NOBODY.access_key}
  secretKey: {NOBODY.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
"""


def guarded(folder: Path, tell: Callable[[Cluster], Awaitable[None]]) -> None:
    (folder / "conf").mkdir(parents=True)
    accounts = folder / "conf" / "plain_acl.yml"
    accounts.touch(0o600)
    accounts.write_text(ACCOUNTS)
    on = {"enableLmq": "true", "enableMultiDispatch": "true"}
    play(folder, tell, aclEnable="true", rocketmqHome=str(folder), **on)


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
        assert (answer.code, answer.body or b"", ext(answer)["nextBeginOffset"]) == (20, b"", "1")
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
