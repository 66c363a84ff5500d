"""PullMessage, UpdateOffset, GetOffset, QueryOffset: in a broker's process and before a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import struct
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import http2_peer as http2
from cluster_users import guarded_cluster
from grpc_calls import Answered, Calls, called, fronted, message, parts_of
from roquet.base.clock import SystemClock
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.proxy import messages as pb
from roquet.proxy.app import build_cluster
from roquet.proxy.brokers.queues import LocalQueues
from roquet.proxy.cluster.config import ClusterConfig
from roquet.proxy.rules.codes import Code
from roquet.proxy.rules.limits import ProxyLimits
from roquet.proxy.rules.methods import SERVICE
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from pathlib import Path

    from roquet.proxy.brokers.api import Pulled

UNIMPLEMENTED = 12
METHODS = ("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset")
ON = ProxyLimits(port=0, pull=True, polling_min_ms=0)
LOCAL, CLUSTER = "local", "cluster"
MODES = pytest.mark.parametrize("mode", [LOCAL, CLUSTER])
SQL = 2


class Got(NamedTuple):
    """What a pull was answered with."""

    code: int
    text: str
    bodies: list[bytes]
    next_offset: int | None


async def until(what: str, is_so: Callable[[], bool]) -> None:
    """Wait for a state of the world."""
    for _ in range(1500):
        if is_so():
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"there is no {what}")


async def make_topic(name: str, address: str, call: Any) -> None:
    fields = {"topic": name, "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    fields |= {"attributes": "+message.type=FIFO", "defaultTopic": "TBW102"}
    answer = await call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields), address)
    assert answer.code == 0, answer.remark


@contextlib.asynccontextmanager
async def world(
    folder: Path, mode: str, rules: ProxyLimits = ON, **changes: str
) -> AsyncGenerator[Calls]:
    """Run a front before one broker of its own process, or before a cluster of one."""
    changes = {"enablePropertyFilter": "true", **changes}
    async with contextlib.AsyncExitStack() as stack:
        behind = await stack.enter_async_context(cluster(folder / "behind", "b", **changes))
        if mode == LOCAL:
            calls = await stack.enter_async_context(fronted(folder, rules, None, **changes))
        else:
            built = build_cluster(
                ClusterConfig(name_servers=behind.name_servers),
                *("127.0.0.1", rules, SystemClock(), random.Random(7)),
            )
            await stack.enter_async_context(built.app)
            calls = Calls(built.front, behind.broker, built.port)
        address = calls.broker.identity.address
        await make_topic("T", address, behind.call)
        yield calls


def run(
    folder: Path,
    mode: str,
    tell: Callable[[Calls], Awaitable[None]],
    rules: ProxyLimits = ON,
    **changes: str,
) -> None:
    async def main() -> None:
        async with world(folder, mode, rules, **changes) as calls:
            await tell(calls)

    asyncio.run(main())


async def filled(calls: Calls, *bodies: bytes, **more: Any) -> None:
    """Send messages to the topic, all of one message group and so to one queue."""
    for body in bodies:
        answer = await calls.send(message("T", body, message_group="x", **more))
        assert answer.status.code == Code.OK, answer.status
    while calls.broker.store.dispatch_behind():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def queue_of(calls: Calls) -> int:
    """Return the queue that has the messages."""
    return max((0, 1), key=lambda number: calls.broker.store.max_offset("T", number))


def named(request: Any, queue_id: int, topic: str = "T", broker: str = "b") -> Any:
    request.message_queue.topic.name, request.message_queue.id = topic, queue_id
    request.message_queue.broker.name = broker
    return request


def pull_of(queue_id: int, offset: int, **more: Any) -> Any:
    request = pb.PullMessageRequest(offset=offset, batch_size=more.get("batch", 32))
    request.group.name = more.get("group", "g")
    named(request, queue_id, more.get("topic", "T"), more.get("broker", "b"))
    request.filter_expression.type = more.get("type", 1)
    request.filter_expression.expression = more.get("expression", "*")
    request.long_polling_timeout.FromMilliseconds(more.get("wait_ms", 0))
    return request


def got_of(parts: Sequence[bytes]) -> Got:
    """Read an answer: a status first, messages, and the offset to go on at last."""
    status, *rest = [pb.PullMessageResponse.FromString(part) for part in parts]
    assert status.WhichOneof("content") == "status"
    following = None
    if rest:
        assert rest[-1].WhichOneof("content") == "next_offset"
        following = rest.pop().next_offset
    assert all(part.WhichOneof("content") == "message" for part in rest)
    bodies = [part.message.body for part in rest]
    return Got(status.status.code, status.status.message, bodies, following)


async def pulled(calls: Calls, *where: int, **more: Any) -> Got:
    """Pull over a connection of HTTP/2."""
    data = pull_of(*where, **more).SerializeToString()
    (parts,) = await asyncio.to_thread(called, calls.port.port, "PullMessage", data)
    return got_of(parts)


async def asked(calls: Calls, method: str, request: Any) -> Any:
    """Make another call over a connection of HTTP/2."""
    data = request.SerializeToString()
    ((part,),) = await asyncio.to_thread(called, calls.port.port, method, data)
    return pb.methods()[method][1].FromString(part)


def update_of(queue_id: int, offset: int, group: str = "g", topic: str = "T") -> Any:
    request = named(pb.UpdateOffsetRequest(offset=offset), queue_id, topic)
    request.group.name = group
    return request


def get_of(queue_id: int, group: str = "g", topic: str = "T") -> Any:
    request = named(pb.GetOffsetRequest(), queue_id, topic)
    request.group.name = group
    return request


def query_of(queue_id: int, policy: int, at_ms: int | None = None, topic: str = "T") -> Any:
    request = named(pb.QueryOffsetRequest(query_offset_policy=policy), queue_id, topic)
    if at_ms is not None:
        request.timestamp.FromMilliseconds(at_ms)
    return request


def test_methods_are_unimplemented_unless_they_are_turned_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with fronted(tmp_path) as calls:
            for method in METHODS:
                answered = await calls.raw(method, b"\xff")
                path = f"{SERVICE}/{method}"
                assert answered.ended == (UNIMPLEMENTED, f"Method {path} is unimplemented")
                assert not answered.parts

    asyncio.run(main())


@MODES
def test_pull_gives_messages_from_an_offset_and_says_the_next(tmp_path: Path, mode: str) -> None:
    async def tell(calls: Calls) -> None:
        bodies = [b"m%d" % number for number in range(40)]
        await filled(calls, *bodies)
        queue_id = queue_of(calls)
        assert await pulled(calls, queue_id, 0) == (Code.OK, "OK", bodies[:32], 32)
        assert await pulled(calls, queue_id, 32) == (Code.OK, "OK", bodies[32:], 40)
        # What was pulled stays: nothing was taken, and no position was kept.
        for batch, count in ((-1, 1), (0, 1), (1, 1), (31, 31), (32, 32), (33, 32)):
            found = await pulled(calls, queue_id, 3, batch=batch)
            assert (found.bodies, found.next_offset) == (bodies[3 : 3 + count], 3 + count)
        answer = await asked(calls, "GetOffset", get_of(queue_id))
        assert answer.status.code == Code.OFFSET_NOT_FOUND, answer.status
        other = await pulled(calls, 1 - queue_id, 0)
        assert other == (Code.MESSAGE_NOT_FOUND, "no new message", [], 0)

    run(tmp_path, mode, tell)


@MODES
def test_message_of_a_pull_has_its_place_and_no_handle(tmp_path: Path, mode: str) -> None:
    async def tell(calls: Calls) -> None:
        await filled(calls, b"x", tag="a", user={"k": "v"})
        data = pull_of(queue_of(calls), 0).SerializeToString()
        (parts,) = await asyncio.to_thread(called, calls.port.port, "PullMessage", data)
        found = pb.PullMessageResponse.FromString(parts[1]).message
        system = found.system_properties
        assert (found.topic.name, dict(found.user_properties)) == ("T", {"k": "v"})
        assert (system.queue_id, system.queue_offset) == (queue_of(calls), 0)
        assert (system.tag, system.message_group, system.receipt_handle) == ("a", "x", "")
        assert system.delivery_attempt == 1

    run(tmp_path, mode, tell)


@MODES
def test_filters_pass_over_messages_and_say_where_to_go_on(tmp_path: Path, mode: str) -> None:
    async def tell(calls: Calls) -> None:
        await filled(calls, b"a", tag="a", user={"n": "1"})
        # "Aa" and "BB" have one hash, which is all that the broker's queue knows of a tag.
        await filled(calls, b"Aa", tag="Aa", user={"n": "2"})
        await filled(calls, b"BB", tag="BB", user={"n": "3"})
        queue_id = queue_of(calls)
        tagged = await pulled(calls, queue_id, 0, expression="a || BB")
        assert (tagged.code, tagged.bodies, tagged.next_offset) == (Code.OK, [b"a", b"BB"], 3)
        only = await pulled(calls, queue_id, 0, expression="BB")
        assert (only.bodies, only.next_offset) == ([b"BB"], 3)
        chosen = await pulled(calls, queue_id, 0, type=SQL, expression="n > 1 AND n < 3")
        assert (chosen.bodies, chosen.next_offset) == ([b"Aa"], 3)
        none = await pulled(calls, queue_id, 0, expression="nobody")
        assert (none.code, none.bodies, none.next_offset) == (Code.MESSAGE_NOT_FOUND, [], 3)
        collided = await pulled(calls, queue_id, 2, expression="Aa")
        assert collided == (Code.MESSAGE_NOT_FOUND, "no match message", [], 3)
        wrong = await pulled(calls, queue_id, 0, type=SQL, expression="n >")
        assert (wrong.code, wrong.next_offset) == (Code.ILLEGAL_FILTER_EXPRESSION, None)

    run(tmp_path, mode, tell)


@MODES
def test_pull_waits_for_a_message_and_no_longer_than_it_said(tmp_path: Path, mode: str) -> None:
    async def tell(calls: Calls) -> None:
        await filled(calls, b"first")
        queue_id = queue_of(calls)
        waiting = asyncio.create_task(pulled(calls, queue_id, 1, wait_ms=20_000))
        async with asyncio.timeout(15):
            while calls.port.counts[1] == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await filled(calls, b"second")
            assert await waiting == (Code.OK, "OK", [b"second"], 2)
        began = time.monotonic()
        found = await pulled(calls, queue_id, 2, wait_ms=700)
        assert found == (Code.MESSAGE_NOT_FOUND, "no new message", [], 2)
        # The broker of a cluster is asked to wait for four fifths of it, and moves that by a tenth.
        assert time.monotonic() - began >= 0.3

    run(tmp_path, mode, tell)


@MODES
def test_pull_ends_before_the_deadline_of_its_call(tmp_path: Path, mode: str) -> None:
    async def tell(calls: Calls) -> None:
        hurried = dataclasses.replace(calls, more=(("grpc-timeout", "1500m"),))
        request = pull_of(0, 0, wait_ms=20_000)
        async with asyncio.timeout(15):
            answered = await hurried.raw("PullMessage", request.SerializeToString())
        found = got_of(answered.parts)
        assert (found.code, found.bodies, found.next_offset) == (Code.MESSAGE_NOT_FOUND, [], 0)

    run(tmp_path, mode, tell)


@MODES
def test_offset_that_is_none_of_the_queue_is_answered_by_one_that_is(
    tmp_path: Path, mode: str
) -> None:
    async def tell(calls: Calls) -> None:
        await filled(calls, b"a", b"b")
        queue_id = queue_of(calls)
        for offset, following in ((-1, 0), (3, 2), (2**62, 2)):
            found = await pulled(calls, queue_id, offset)
            text = f"the offset {offset} is not one to pull from: the queue has 0 to 2"
            assert found == (Code.ILLEGAL_OFFSET, text, [], following)
        at_end = await pulled(calls, queue_id, 2)
        assert at_end == (Code.MESSAGE_NOT_FOUND, "no new message", [], 2)
        for offset, code in ((-1, Code.ILLEGAL_OFFSET), (3, Code.ILLEGAL_OFFSET), (2, Code.OK)):
            answer = await asked(calls, "UpdateOffset", update_of(queue_id, offset))
            assert answer.status.code == code, (offset, answer.status)

    run(tmp_path, mode, tell)


@MODES
def test_pull_ends_with_its_topic_and_offsets_of_one_made_anew_are_its_own(
    tmp_path: Path, mode: str
) -> None:
    async def tell(calls: Calls) -> None:
        await filled(calls, b"a", b"b")
        queue_id = queue_of(calls)
        # It would wait for longer than this test may take.
        waiting = asyncio.create_task(pulled(calls, queue_id, 2, wait_ms=20_000))
        async with asyncio.timeout(15):
            while calls.broker.services.receives.held() == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            config = calls.broker.metadata.topics.get("T")
            assert config is not None
            nobody = calls.front.context(calls.head("PullMessage")).caller
            await calls.broker.local.operations.delete_topic("T", nobody)
            gone = await waiting
            assert gone.code == Code.TOPIC_NOT_FOUND, gone
            calls.broker.metadata.topics.put(config)
            await filled(calls, b"new")
            assert queue_of(calls) == queue_id
            found = await pulled(calls, queue_id, 2)
            assert (found.code, found.next_offset) == (Code.ILLEGAL_OFFSET, 1)
            assert (await pulled(calls, queue_id, 0)).bodies == [b"new"]

    run(tmp_path, mode, tell)


@MODES
def test_offsets_of_a_group_are_kept_and_reset(tmp_path: Path, mode: str) -> None:
    async def tell(calls: Calls) -> None:
        await filled(calls, b"a", b"b", b"c")
        queue_id = queue_of(calls)
        assert (await pulled(calls, queue_id, 0)).next_offset == 3
        answer = await asked(calls, "UpdateOffset", update_of(queue_id, 3))
        assert (answer.status.code, answer.status.message) == (Code.OK, "OK")
        answer = await asked(calls, "GetOffset", get_of(queue_id))
        assert (answer.status.code, answer.offset) == (Code.OK, 3)
        offsets = calls.broker.metadata.offsets
        assert offsets.query("g", "T", queue_id) == 3
        offsets.reset("g", "T", queue_id, 1)
        # An operator's word counts until the group has heard it, and a commit says that it does.
        answer = await asked(calls, "UpdateOffset", update_of(queue_id, 2))
        assert answer.status.code == Code.OK
        assert answer.status.message.startswith("ignored: the offset was reset")
        found = await pulled(calls, queue_id, 3)
        assert (found.code, found.next_offset) == (Code.ILLEGAL_OFFSET, 1)
        assert (await pulled(calls, queue_id, 1)).bodies == [b"b", b"c"]
        answer = await asked(calls, "UpdateOffset", update_of(queue_id, 2, group="nobody"))
        assert answer.status.code == Code.CONSUMER_GROUP_NOT_FOUND, answer.status

    run(tmp_path, mode, tell)


@MODES
def test_offsets_of_a_queue_are_its_bounds_and_those_of_times(tmp_path: Path, mode: str) -> None:
    async def tell(calls: Calls) -> None:
        await filled(calls, b"a", b"b")
        queue_id = queue_of(calls)
        for policy, at_ms, offset in ((0, None, 0), (1, None, 2), (2, 1000, 0), (2, 10**13, 2)):
            answer = await asked(calls, "QueryOffset", query_of(queue_id, policy, at_ms))
            assert (answer.status.code, answer.offset) == (Code.OK, offset), (policy, at_ms)
        late = query_of(queue_id, 2)
        late.timestamp.seconds = 253_402_300_800
        early = query_of(queue_id, 2)
        early.timestamp.seconds = -1
        for wrong in (query_of(queue_id, 3), query_of(queue_id, 2), late, early):
            answered = await calls.raw("QueryOffset", wrong.SerializeToString())
            status = pb.QueryOffsetResponse.FromString(answered.parts[0]).status
            assert status.code == Code.BAD_REQUEST, wrong

    run(tmp_path, mode, tell)


@MODES
def test_queue_that_is_not_there_is_refused(tmp_path: Path, mode: str) -> None:
    async def tell(calls: Calls) -> None:
        await filled(calls, b"a")
        for queue_id, broker, code in (
            (-1, "b", Code.BAD_REQUEST),
            (0, "b", Code.OK),
            (1, "b", Code.OK),
            (2, "b", Code.BAD_REQUEST),
            (0, "", Code.OK),
            (0, "another", Code.BAD_REQUEST),
        ):
            request = query_of(queue_id, 1)
            request.message_queue.broker.name = broker
            answer = await asked(calls, "QueryOffset", request)
            assert answer.status.code == code, (queue_id, broker, answer.status)
        for topic, code in (("nowhere", Code.TOPIC_NOT_FOUND), ("", Code.ILLEGAL_TOPIC)):
            assert (await pulled(calls, 0, 0, topic=topic)).code == code
        assert (await pulled(calls, 0, 0, group="")).code == Code.ILLEGAL_CONSUMER_GROUP
        system = await pulled(calls, 0, 0, topic="TBW102")
        assert (system.code, system.next_offset) == (Code.ILLEGAL_TOPIC, None)

    run(tmp_path, mode, tell)


ACCOUNTS = """\
accounts:
- accessKey: the-reader
  secretKey: secret-of-reader
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [Normal=SUB]
  groupPerms: [g=SUB]
- accessKey: the-writer
  secretKey: secret-of-writer
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [Normal=PUB]
  groupPerms: [g=SUB]
- accessKey: the-stranger
  secretKey: secret-of-stranger
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
"""
USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "migrateAuthFromV1Enabled": "true",
}


@contextlib.asynccontextmanager
async def guarded(folder: Path, kind: str) -> AsyncGenerator[list[Calls]]:
    """Run a front that knows a reader, a writer and a stranger."""
    file = folder / "conf" / "plain_acl.yml"
    file.parent.mkdir()
    file.touch(0o600)
    file.write_text(ACCOUNTS)
    async with contextlib.AsyncExitStack() as stack:
        changes = {"rocketmqHome": str(folder)}
        if kind == CLUSTER:
            it = guarded_cluster(folder, rules=ON, changes={**changes, **USERS})
            calls = (await stack.enter_async_context(it)).client()
        else:
            changes |= {"aclEnable": "true"} if kind == "accounts" else USERS
            calls = await stack.enter_async_context(fronted(folder, ON, None, **changes))
        yield [
            dataclasses.replace(calls, access_key=f"the-{who}", secret=f"secret-of-{who}")
            for who in ("reader", "writer", "stranger")
        ]


def of_normal(method: str, group: str = "g") -> Any:
    """Return a request about the first queue of the topic that accounts know."""
    if method == "PullMessage":
        return pull_of(0, 0, topic="Normal", group=group)
    if method == "QueryOffset":
        return query_of(0, 1, topic="Normal")
    if method == "GetOffset":
        return get_of(0, group, "Normal")
    return update_of(0, 0, group, "Normal")


@pytest.mark.parametrize("kind", ["accounts", "users", CLUSTER])
def test_pulls_and_offsets_need_the_rights_of_topic_and_group(tmp_path: Path, kind: str) -> None:
    async def code_of(who: Calls, method: str, group: str = "g") -> int:
        data = of_normal(method, group).SerializeToString()
        answered = await who.raw(method, data)
        assert answered.ended == (0, "")
        return int(pb.methods()[method][1].FromString(answered.parts[0]).status.code)

    async def main() -> None:
        async with guarded(tmp_path, kind) as (reader, writer, stranger):
            assert (await writer.send(message())).status.code == Code.OK
            while reader.broker.store.dispatch_behind():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            assert await code_of(reader, "PullMessage") == Code.OK
            for method in METHODS:
                of_reader = await code_of(reader, method)
                assert of_reader not in {Code.UNAUTHORIZED, Code.INTERNAL_SERVER_ERROR}, method
                assert await code_of(stranger, method) == Code.UNAUTHORIZED, method
                unsigned = dataclasses.replace(stranger, access_key="")
                assert await code_of(unsigned, method) == Code.UNAUTHORIZED, method
            for method in ("PullMessage", "GetOffset", "UpdateOffset"):
                # Who may send may not read, and whose the topic is has not every group.
                assert await code_of(writer, method) == Code.UNAUTHORIZED, method
                assert await code_of(reader, method, "another") == Code.UNAUTHORIZED, method
            assert await code_of(writer, "QueryOffset") == Code.OK

    asyncio.run(main())


def test_rights_that_are_taken_away_end_a_waiting_pull_without_messages(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path, "accounts") as (reader, writer, _):
            request = pull_of(0, 0, topic="Normal", wait_ms=20_000)
            waiting = asyncio.create_task(reader.raw("PullMessage", request.SerializeToString()))
            await asyncio.sleep(0.05)
            file = tmp_path / "conf" / "plain_acl.yml"
            file.write_text(ACCOUNTS.replace("[Normal=SUB]", "[]"))
            async with asyncio.timeout(15):
                answer = Answered()
                while not answer.parts or got_of(answer.parts).code != Code.UNAUTHORIZED:
                    now = pull_of(0, 0, topic="Normal")
                    answer = await reader.raw("PullMessage", now.SerializeToString())
                    await asyncio.sleep(0.02)
                assert not waiting.done()
                assert (await writer.send(message())).status.code == Code.OK
                found = got_of((await waiting).parts)
            assert (found.code, found.bodies) == (Code.UNAUTHORIZED, [])

    asyncio.run(main())


def frames_of(stream: int, data: bytes) -> bytes:
    """Return the frames of a pull."""
    head = http2.headers(f"/{SERVICE}/PullMessage", ("x-mq-client-id", "c"))
    begin = http2.frame(http2.HEADERS, stream, head, http2.END_HEADERS)
    part = len(data).to_bytes(5, "big") + data
    return begin + http2.frame(http2.DATA, stream, part, http2.END_STREAM)


def read_all(peer: http2.Peer, count: int) -> list[Got]:
    """Read the answers to so many calls, for which the client has had no window so far."""
    window = struct.pack(">HI", 4, 1 << 24)
    peer.send(http2.frame(http2.SETTINGS, 0, window))
    peer.send(http2.frame(http2.WINDOW, 0, struct.pack(">I", 1 << 30)))
    found: dict[int, bytes] = {}
    ended = 0
    while ended < count:
        frame = peer.read()
        assert frame is not None, "the connection lasts"
        kind, flags, stream, payload = frame
        if kind == http2.DATA:
            found[stream] = found.get(stream, b"") + payload
        ended += kind == http2.HEADERS and bool(flags & http2.END_STREAM)
    return [got_of(list(parts_of(data))) for data in found.values()]


class Counted:
    """Counts the reads that were made and what they found."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = self.messages = 0
        pull = LocalQueues.pull

        async def counted(*asked: Any) -> Pulled:
            self.reads += 1
            found = await pull(*asked)
            self.messages += len(found.records)
            return found

        monkeypatch.setattr(LocalQueues, "pull", counted)


BODY = b"x" * 200_000
PULLS = 40
"""So many of them find 8 MB, eight times of what may wait for a client."""
SLOW = dataclasses.replace(ON, outbound_max=1 << 20)


def test_pulls_read_nothing_for_a_client_that_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(calls: Calls) -> None:
        await filled(calls, BODY)
        data = pull_of(queue_of(calls), 0).SerializeToString()
        counted = Counted(monkeypatch)
        with http2.Peer.connect(calls.port.port) as peer:
            peer.send(*(frames_of(2 * number + 1, data) for number in range(PULLS)))
            await until("calls", lambda: calls.port.counts[1] == PULLS and counted.reads > 0)
            await asyncio.sleep(0.2)
            # The window of 64 KiB takes none of it whole; 256 KiB is where a client is slow.
            assert counted.reads <= 4
            found = await asyncio.to_thread(read_all, peer, PULLS)
        assert found == [(Code.OK, "OK", [BODY], 1)] * PULLS
        assert counted.reads == PULLS

    run(tmp_path, LOCAL, tell, SLOW)


def test_waiting_pulls_that_find_a_slow_client_are_made_again_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(calls: Calls) -> None:
        await filled(calls, b"first")
        data = pull_of(queue_of(calls), 1, wait_ms=20_000).SerializeToString()
        counted = Counted(monkeypatch)
        with http2.Peer.connect(calls.port.port) as peer:
            peer.send(*(frames_of(2 * number + 1, data) for number in range(PULLS)))
            await until("pulls that wait", lambda: counted.reads == PULLS)
            await filled(calls, BODY)
            await until("a message for each", lambda: counted.messages >= PULLS)
            await asyncio.sleep(0.2)
            assert counted.messages <= PULLS + 1
            found = await asyncio.to_thread(read_all, peer, PULLS)
        assert found == [(Code.OK, "OK", [BODY], 2)] * PULLS
        # Those that found the client slow have forgotten what they had, and read it again.
        assert counted.reads > 1.5 * PULLS

    run(tmp_path, LOCAL, tell, SLOW)
