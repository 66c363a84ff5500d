"""Appends in sequence and accounts: a producer belongs to the account that began it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_harness import ext, play
from roquet.acl.credentials import Credentials
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.messages import batch
from roquet.protocol.messages.sequences import START, chain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.protocol.messages.batch import Element
    from roquet.testing.cluster import Cluster

ONE, TWO = Credentials("writer-one", "one-secret"), Credentials("writer-two", "two-secret")
"""Both may send to the topic, and nothing else."""
ADMIN = Credentials("admin-one", "admin-secret")
WRITERS = "".join(
    f"""\
- accessKey: {it.access_key}
  secretKey: {it.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: ["orders=PUB"]
"""
    for it in (ONE, TWO)
)
ACCOUNTS = f"""\
accounts:
{WRITERS}- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  admin: true
"""
ROWS: list[Element] = [(0, b"row %d" % at, b"UNIQ_KEY\x01u%d\x02" % at) for at in range(8)]
LINKS = chain(START, ROWS)


def running(folder: Path, tell: Callable[[Cluster], Awaitable[None]], *, accounts: bool) -> None:
    async def begun(it: Cluster) -> None:
        if it.broker.metadata.topics.get("orders") is None:
            it.broker.metadata.topics.put(TopicConfig(name="orders"))
        await tell(it)

    (folder / "conf").mkdir(parents=True, exist_ok=True)
    file = folder / "conf" / "plain_acl.yml"
    file.touch(0o600)
    file.write_text(ACCOUNTS)
    more = {"aclEnable": "true"} if accounts else {}
    play(folder, begun, rocketmqHome=str(folder), **more)


def send(first: int, end: int) -> Command:
    ext = {
        "topic": "orders",
        "queueId": "0",
        "bornTimestamp": "1",
        "producer": "job-7",
        "epoch": "0",
        "first": str(first),
        "chain": (LINKS[first - 1] if first else START).hex(),
    }
    return Command(RequestCode.SEND_IN_SEQUENCE, ext, batch.encode(ROWS[first:end]))


def known() -> Command:
    ext = {"topic": "orders", "queueId": "0", "producer": "job-7"}
    return Command(RequestCode.GET_SEQUENCES, ext)


async def told(it: Cluster, who: Credentials | None, command: Command) -> dict[str, str]:
    answer = await it.call(command if who is None else who.sign(command))
    assert answer.code == 0, answer.remark
    return ext(answer)


async def refused(it: Cluster, who: Credentials, command: Command) -> None:
    answer = await it.call(who.sign(command))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "producer job-7, which another account has" in str(answer.remark)


def test_producer_of_another_account_is_refused_also_after_a_restart(tmp_path: Path) -> None:
    async def first(it: Cluster) -> None:
        assert (await told(it, ONE, send(0, 2)))["appended"] == "2"
        await others(it)
        # By the account itself all is as it was.
        assert (await told(it, ONE, send(0, 4)))["appended"] == "2"

    async def others(it: Cluster) -> None:
        for command in (send(0, 2), send(2, 4), known()):
            await refused(it, TWO, command)

    async def second(it: Cluster) -> None:
        await others(it)
        assert (await told(it, ONE, known()))["next"] == "4"
        # An administrator goes on with it, and it stays whose it was.
        assert (await told(it, ADMIN, send(4, 5)))["appended"] == "1"
        await others(it)
        assert (await told(it, ONE, send(4, 6)))["appended"] == "1"

    running(tmp_path, first, accounts=True)
    running(tmp_path, second, accounts=True)


def test_producer_without_an_owner_belongs_to_the_account_that_goes_on(tmp_path: Path) -> None:
    async def before(it: Cluster) -> None:
        assert (await told(it, None, send(0, 2)))["appended"] == "2"

    async def accounts(it: Cluster) -> None:
        assert (await told(it, TWO, known()))["next"] == "2"
        assert (await told(it, TWO, send(2, 4)))["appended"] == "2"
        await refused(it, ONE, known())

    async def without(it: Cluster) -> None:
        assert (await told(it, None, send(4, 6)))["appended"] == "2"

    async def again(it: Cluster) -> None:
        await refused(it, ONE, known())
        assert (await told(it, TWO, send(5, 8)))["appended"] == "2"

    running(tmp_path, before, accounts=False)
    running(tmp_path, accounts, accounts=True)
    running(tmp_path, without, accounts=False)
    running(tmp_path, again, accounts=True)
