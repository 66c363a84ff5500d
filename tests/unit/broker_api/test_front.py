"""A front sends, receives, commits, queries and is refused without a transport in between."""

from __future__ import annotations

import asyncio
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import roquet.broker.api
import roquet.broker.operations
import roquet.broker.services
from local_front import LocalFront
from roquet.broker.api.offsets import CommitResult
from roquet.broker.api.receive import Forbids, ReceiveForbidden, ReceiveStatus
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.send import SendStatus
from roquet.model.topic import TopicConfig
from roquet.protocol.messages import batch
from roquet.protocol.messages.message_id import parse_offset_id
from roquet.store.records import read_records
from roquet.store.results import Draft
from roquet.testing.cluster import running_broker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import ModuleType

    from roquet.broker.app import Broker

TRANSPORT = ("roquet.remoting", "roquet.protocol.command", "roquet.protocol.header")
_LOADED = """
import sys
sys.path.insert(0, {tests!r})
for name in {names!r}:
    __import__(name)
print(*sorted(name for name in sys.modules if name.startswith({transport!r})))
"""


ACCOUNTS = """\
accounts:
- accessKey: the-writer
  secretKey: secret-of-writer
  topicPerms: [orders=PUB]
- accessKey: the-reader
  secretKey: secret-of-reader
  defaultGroupPerm: SUB
  topicPerms: [orders=SUB]
"""


def run(
    folder: Path, tell: Callable[[LocalFront, Broker], Awaitable[None]], **changes: str
) -> None:
    """Run a broker, and tell it a story through the front; `changes` are settings."""

    async def main() -> None:
        async with running_broker(folder, changes=changes) as broker:
            broker.metadata.topics.put(TopicConfig(name="orders", read_queues=2, write_queues=2))
            await broker.metadata.topics.persist()
            await tell(LocalFront(broker.operations), broker)

    asyncio.run(main())


def names_of(package: ModuleType) -> list[str]:
    """Return the modules of a package."""
    return [found.name for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]


async def dispatched(broker: Broker) -> None:
    """Wait until everything that was sent can be read."""
    while broker.store.dispatch_behind():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    "package", [roquet.broker.api, roquet.broker.services, roquet.broker.operations]
)
def test_front_and_api_load_no_module_of_a_transport(package: ModuleType) -> None:
    script = _LOADED.format(
        tests=str(Path(__file__).parents[2]),
        names=["local_front", *names_of(package)],
        transport=TRANSPORT,
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_front_sends_receives_commits_and_queries(tmp_path: Path) -> None:
    async def tell(front: LocalFront, broker: Broker) -> None:
        first = await front.send("orders", b"one", KEYS="k1", TAGS="a")
        both = await front.send_batch("orders", batch.encode([(0, b"two", b""), (0, b"3", b"")]))
        assert (first.status, first.queue_id, first.queue_offset) == (SendStatus.STORED, 0, 0)
        assert (both.queue_offset, len(both.message_ids)) == (1, 2)
        await dispatched(broker)
        found = await front.receive("orders", 0)
        assert found.status is ReceiveStatus.FOUND
        assert [one.body for one in read_records(found.records)] == [b"one", b"two", b"3"]
        assert (found.next_offset, front.ends("orders")) == (3, (0, 3))
        assert front.commit("orders", 3) is CommitResult.STORED
        assert front.committed("orders") == 3
        (record,) = front.query("orders", "k1").records
        _, place = parse_offset_id(first.message_ids[0])
        assert await front.view(place) == record
        await front.send_back(place)
        await dispatched(broker)
        assert broker.store.max_offset("%DLQ%readers", 0) == 1

    run(tmp_path, tell)


def test_front_receive_waits_for_a_message(tmp_path: Path) -> None:
    async def tell(front: LocalFront, broker: Broker) -> None:
        waiting = asyncio.create_task(front.receive("orders", 0, wait_ms=60_000))
        # As long as it is noted, the offset is that of a read that was looked at and held.
        while broker.metadata.offsets.pulled("readers", "orders", 0) != 0:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert not waiting.done()
        await front.send("orders", b"late")
        found = await asyncio.wait_for(waiting, 20)
        assert [one.body for one in read_records(found.records)] == [b"late"]

    run(tmp_path, tell)


def test_front_receive_that_is_cancelled_is_held_no_more(tmp_path: Path) -> None:
    async def tell(front: LocalFront, broker: Broker) -> None:
        waiting = asyncio.create_task(front.receive("orders", 0, wait_ms=60_000, tags="a"))
        holds = broker.services.receives.held
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert holds() == 0

    run(tmp_path, tell)


def test_front_receive_ends_when_its_time_is_over(tmp_path: Path) -> None:
    async def tell(front: LocalFront, _: Broker) -> None:
        found = await asyncio.wait_for(front.receive("orders", 0, wait_ms=1), 20)
        assert (found.status, found.records) == (ReceiveStatus.NOT_FOUND, b"")

    run(tmp_path, tell)


def test_front_is_refused_with_a_reason_and_a_text(tmp_path: Path) -> None:
    async def tell(front: LocalFront, broker: Broker) -> None:
        async def reason(asked: Awaitable[object]) -> Reason:
            with pytest.raises(Refusal) as refused:
                await asked
            assert refused.value.text
            return refused.value.reason

        assert await reason(front.send("orders", b"")) is Reason.FAILED
        assert await reason(front.send("orders", b"x", 9)) is Reason.INVALID_ARGUMENT
        assert await reason(front.send("no topic!", b"x")) is Reason.INVALID_ARGUMENT
        assert await reason(front.send("SCHEDULE_TOPIC_XXXX", b"x")) is Reason.FORBIDDEN
        assert await reason(front.send_batch("orders", b"no batch")) is Reason.ILLEGAL_MESSAGE
        assert await reason(front.receive("nowhere", 0)) is Reason.UNKNOWN_TOPIC
        assert await reason(front.receive("orders", 0, tags="||")) is Reason.UNPARSABLE_FILTER
        assert await reason(front.view(10_000)) is Reason.FAILED
        assert await reason(front.send_back(10_000)) is Reason.FAILED
        with pytest.raises(Refusal, match="Topic nowhere not exist!") as refused:
            front.commit("nowhere", 1)
        assert refused.value.reason is Reason.UNKNOWN_TOPIC
        broker.state.permission = 2
        with pytest.raises(ReceiveForbidden) as forbidden:
            await front.receive("orders", 0)
        assert (forbidden.value.reason, forbidden.value.by) == (Reason.FORBIDDEN, Forbids.BROKER)
        broker.state.is_slave = True
        assert await reason(front.send("orders", b"x")) is Reason.BUSY

    run(tmp_path, tell)


def test_front_with_accounts_shows_a_message_only_to_those_who_may_read_its_topic(
    tmp_path: Path,
) -> None:
    accounts = tmp_path / "conf" / "plain_acl.yml"
    accounts.parent.mkdir()
    accounts.touch(0o600)
    accounts.write_text(ACCOUNTS)

    async def tell(front: LocalFront, broker: Broker) -> None:
        writer = LocalFront(front.calls, access_key="the-writer")
        sent = await writer.send("orders", b"for readers")
        await dispatched(broker)
        _, place = parse_offset_id(sent.message_ids[0])
        for asked, what in (
            (writer.view(place), "topic:orders"),
            (writer.send_back(place), "group"),
        ):
            with pytest.raises(Refusal, match=f"No default permission for {what}") as refused:
                await asked
            assert refused.value.reason is Reason.ACCOUNT_REFUSED
        assert broker.store.max_offset("%DLQ%readers", 0) == 0
        reader = LocalFront(front.calls, access_key="the-reader")
        (record,) = read_records(await reader.view(place))
        assert record.body == b"for readers"
        await reader.send_back(place)

    run(tmp_path, tell, aclEnable="true", rocketmqHome=str(tmp_path))


def test_front_puts_popped_copies_of_its_own_group_alone_among_the_dead_letters(
    tmp_path: Path,
) -> None:
    accounts = tmp_path / "conf" / "plain_acl.yml"
    accounts.parent.mkdir()
    accounts.touch(0o600)
    only_own = "defaultTopicPerm: DENY\n  defaultGroupPerm: DENY\n  groupPerms: [g=SUB]"
    accounts.write_text(ACCOUNTS.replace("defaultGroupPerm: SUB", only_own))

    async def tell(front: LocalFront, broker: Broker) -> None:
        async def stored(**more: str) -> int:
            """Store a message where copies of group g and topic orders lie; return its place."""
            draft = Draft(
                topic="%RETRY%g_orders",
                queue_id=0,
                body=b"copy",
                properties=more,
                born_timestamp=1,
                born_host=bytes(8),
                store_host=bytes(8),
            )
            return (await broker.store.put(draft)).physical_offset

        reader = LocalFront(front.calls, access_key="the-reader", group="g")
        await reader.send_back(await stored(ORIGIN_GROUP="g"))
        # The same name is the retry topic of the group g_orders, and that of g and a topic.
        for more in ({"RETRY_TOPIC": "secrets"}, {"ORIGIN_GROUP": "g_orders"}):
            with pytest.raises(Refusal) as refused:
                await reader.send_back(await stored(**more))
            assert refused.value.reason is Reason.ACCOUNT_REFUSED
        stranger = LocalFront(front.calls, access_key="the-writer", group="g")
        with pytest.raises(Refusal) as refused:
            await stranger.send_back(await stored(ORIGIN_GROUP="g"))
        assert refused.value.reason is Reason.ACCOUNT_REFUSED
        await dispatched(broker)
        assert broker.store.max_offset("%DLQ%g", 0) == 1

    run(tmp_path, tell, aclEnable="true", rocketmqHome=str(tmp_path))
