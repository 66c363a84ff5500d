"""What a request names by its place in the log is a message, of a topic that was asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tools.attack.campaign import BODY_AT
from tools.attack.records import Forged

from broker_harness import dispatched, ext, play, records
from roquet.broker.messages.proof import DISPATCH_S_MAX, ProvenMessages
from roquet.broker.messages.schedule import DelayLevels
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.store.results import Draft, StoreFault
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import send_command
from roquet.testing.memory_store import FakeStore
from transaction_harness import COMMIT, GROUP, HALF, ROLLBACK, end_command, of, send_half

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

REAL = {"REAL_TOPIC": "victim", "REAL_QID": "0", "PGROUP": GROUP, "UNIQ_KEY": "u"}
HOST = bytes((127, 0, 0, 1, 0, 0, 0x9C, 0x40))


def place(sent: Command) -> int:
    return int(ext(sent)["msgId"][16:], 16)


async def forge(it: Cluster, topic: str) -> int:
    """Send a message whose body is a record that names its own place; return that place."""
    forged = Forged(topic=topic, properties=REAL)
    one, two = [place(await it.send("own", forged.encode())) for _ in range(2)]
    at = two + (two - one) + BODY_AT
    exact = Forged(topic=topic, properties=REAL, physical_offset=at)
    assert place(await it.send("own", exact.encode())) + BODY_AT == at
    await dispatched(it)
    return at


def test_end_transaction_of_a_forged_half_message_commits_nothing(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        # A half message of others, so that the queue has an offset of 0 to be named.
        await send_half(it, "victim", "real")
        at = await forge(it, HALF)
        for state in (COMMIT, ROLLBACK):
            answer = await it.call(end_command(state, at, 0))
            assert (answer.code, answer.remark) == (1, "Find prepared transaction message failed")
        await dispatched(it)
        assert of(it.broker, "victim") == []

    play(tmp_path, tell)


def test_forged_record_is_neither_viewed_nor_sent_back(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for topic in ("own", "victim", "../../escape"):
            at = await forge(it, topic)
            viewed = await it.call(Command(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(at)}))
            assert viewed.code == 1
            assert not viewed.body
            back = {"offset": str(at), "group": "g", "delayLevel": "-1"}
            sent = await it.call(Command(RequestCode.CONSUMER_SEND_MSG_BACK, back))
            assert (sent.code, sent.remark) == (1, f"look message by offset failed, {at}")
        assert of(it.broker, "%DLQ%g") == []

    play(tmp_path, tell)


def test_send_back_of_what_still_waits_is_refused(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        half = await send_half(it, "victim", "real")
        later = await it.send("victim", properties="DELAY\x0118\x02")
        for sent in (half, later):
            back = {"offset": str(place(sent)), "group": "g", "delayLevel": "-1"}
            answer = await it.call(Command(RequestCode.CONSUMER_SEND_MSG_BACK, back))
            assert answer.code == 1
        assert of(it.broker, "%DLQ%g") == []

    play(tmp_path, tell)


def test_end_right_behind_the_send_finds_the_half_message(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(50):
            given = {"UNIQ_KEY": f"u{number}", "TRAN_MSG": "true", "PGROUP": GROUP}
            text = "".join(f"{name}\x01{value}\x02" for name, value in given.items())
            sent = await it.call(send_command("orders", b"%d" % number, 0, text, f="4", a=GROUP))
            queue_offset = int(ext(sent)["queueOffset"])
            answer = await it.call(end_command(COMMIT, place(sent), queue_offset))
            assert answer.code == 0, (number, answer.remark)
        await dispatched(it)
        assert len(of(it.broker, "orders")) == 50

    play(tmp_path, tell)


def test_query_of_a_key_answers_no_message_of_another_topic_or_key(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        # Java's hash is the same for both topics, and for both keys.
        assert (await it.send("Aa", b"mine", properties="KEYS\x01x Aa\x02")).code == 0
        assert (await it.send("BB", b"theirs", properties="KEYS\x01x BB\x02")).code == 0
        assert (await it.send("Aa", b"other", properties="KEYS\x01BB\x02")).code == 0
        await dispatched(it)

        async def found(topic: str, key: str) -> list[bytes]:
            asked = {"topic": topic, "key": key, "maxNum": "32", "beginTimestamp": "0"}
            command = Command(RequestCode.QUERY_MESSAGE, {**asked, "endTimestamp": str(1 << 60)})
            return [record.body for record in records(await it.call(command))]

        async with asyncio.timeout(20):
            while await found("Aa", "BB") != [b"other"]:  # noqa: ASYNC110  (a thread indexes)
                await asyncio.sleep(0.01)
        assert await found("Aa", "x") == [b"mine"]
        assert await found("Aa", "Aa") == [b"mine"]
        assert await found("BB", "Aa") == []
        # A topic that is no name, and yet makes the same text to be hashed.
        assert await found("Aa#x", "") == []

    play(tmp_path, tell)


def test_proven_messages_are_those_that_a_unit_points_to() -> None:
    async def story() -> None:
        clock = FakeClock()
        store = FakeStore(clock, DelayLevels())
        for _ in range(3):
            await store.put(
                Draft(
                    topic="t",
                    queue_id=0,
                    body=b"",
                    properties={},
                    born_timestamp=0,
                    born_host=HOST,
                    store_host=HOST,
                )
            )
        proven = ProvenMessages(store, clock)
        assert await proven.record(100) == store.log[1]
        for offset in (-1, 50, 300, 1 << 62):
            assert await proven.record(offset) is None
        for unit in ((100, 99, 0), (0, 100, 0)):
            store.queues["t", 0][1] = unit
            assert await proven.record(100) is None
        store.queues["t", 0].clear()
        assert await proven.record(200) is None
        store.faults[0] = StoreFault("corrupt", "at 0: bytes of somebody")
        assert await proven.record(0) is None
        assert DISPATCH_S_MAX < 5

    asyncio.run(story())
