"""Connections that threads of the core serve: the work is done there, and no change comes late."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from broker_harness import dispatched, ext, play, records
from remoting_harness import until
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.codec import decode, encode
from roquet.testing.cluster import pull_command, send_command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    import pytest

    from roquet.testing.cluster import Cluster

THREADS = {"ioThreads": "2"}
SENDERS = 16


class Line:
    """A connection with one question in flight."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._opaques = itertools.count(1)

    @staticmethod
    async def to(it: Cluster) -> Line:
        host, _, port = it.address.rpartition(":")
        return Line(*await asyncio.open_connection(host, int(port)))

    async def ask(self, command: Command) -> Command:
        command.opaque = next(self._opaques)
        self._writer.write(encode(command))
        got = b""
        async with asyncio.timeout(20):
            while True:
                data = await self._reader.read(1 << 18)
                assert data, "the broker has closed the connection"
                got += data
                found, used = decode(got)
                got = got[used:]
                for answer in found:
                    if answer.opaque == command.opaque and answer.is_response:
                        return answer

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def plain(topic: str, number: int, queue_id: int = 0) -> Command:
    return send_command(topic, b"body", queue_id, f"UNIQ_KEY\x01U{number}\x02")


def admin(code: RequestCode, **fields: str) -> Command:
    return Command(code, ext=fields)


def topic_change(name: str, queues: int) -> Command:
    return admin(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=name,
        defaultTopic="TBW102",
        readQueueNums=str(queues),
        writeQueueNums=str(queues),
        perm="6",
        topicFilterType="SINGLE_TAG",
        topicSysFlag="0",
        order="false",
    )


def counted(it: Cluster, name: str) -> int:
    return it.broker.path.native.counters()[name]


def awaited(it: Cluster) -> bool:
    return it.broker.store.arrivals._is_awaited


async def fast(it: Cluster, name: str, ask: Callable[[], Awaitable[Command]]) -> None:
    """Ask until an answer comes from the fast path: the rows are written by then."""
    before = counted(it, name)
    async with asyncio.timeout(20):
        while counted(it, name) == before:
            await ask()


def test_sends_and_pulls_are_answered_by_threads(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=4, write_queues=4))
        await it.broker.metadata.topics.persist()
        lines = [await Line.to(it) for _ in range(4)]
        await fast(it, "sends", lambda: lines[0].ask(plain("orders", 0)))
        before = counted(it, "sends")
        answers = await asyncio.gather(
            *(line.ask(plain("orders", number)) for number, line in enumerate(lines))
        )
        assert [ext(answer)["transactionId"] for answer in answers] == ["U0", "U1", "U2", "U3"]
        assert counted(it, "sends") == before + len(lines)
        await dispatched(it)
        await fast(it, "pulls", lambda: lines[1].ask(pull_command("orders")))
        found = records(await lines[2].ask(pull_command("orders")))
        assert {record.body for record in found} == {b"body"}
        # Two lines a thread: none is on the loop.
        net = it.broker.path.connections._net
        assert net is not None
        shared = net.connections()
        assert len(shared) == int(THREADS["ioThreads"])
        assert min(shared) >= 2
        for line in lines:
            await line.close()

    play(tmp_path, tell, **THREADS)


def test_loop_is_not_woken_for_messages_that_nobody_there_waits_for(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=4, write_queues=4))
        await it.broker.metadata.topics.persist()
        told: list[Sequence[tuple[str, int, int]]] = []
        arrivals = it.broker.store.arrivals
        waits = [False]
        arrivals.on_all(told.append, lambda: waits[0])
        line = await Line.to(it)
        await fast(it, "sends", lambda: line.ask(plain("orders", 0)))
        await dispatched(it)
        await until(lambda: told)
        assert not awaited(it)
        for number in range(4):
            assert (await line.ask(plain("orders", number, number))).code == 0
        await dispatched(it)
        assert not awaited(it)
        waits[0] = True
        arrivals.begin()
        # What came in the meantime is told, if a flush has not had it told before.
        ends = {("orders", at, it.broker.store.max_offset("orders", at)) for at in range(4)}
        await until(lambda: ends <= set(itertools.chain(*told)))
        assert awaited(it)
        await line.close()

    play(tmp_path, tell, ioThreads="1")


def test_tables_are_saved_once_the_threads_have_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell(it: Cluster) -> None:
        # Saved by the stop, when nobody has rows any more; a saved topic changes its row.
        it.broker.metadata.topics.put(TopicConfig(name="late", read_queues=1, write_queues=1))
        it.broker.metadata.groups.put(SubscriptionGroupConfig(name="late"))

    play(tmp_path, tell, ioThreads="1")
    assert [it.message for it in caplog.records if "was not saved" in it.message] == []
    assert "late" in next(tmp_path.rglob("topics.json")).read_text()


def test_sends_of_several_connections_share_an_append(tmp_path: Path) -> None:
    def appends(it: Cluster) -> int:
        stats = it.broker.store.native.stats()
        return sum(count for name, count in stats.items() if name.startswith("puts_"))

    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=4, write_queues=4))
        await it.broker.metadata.topics.persist()
        lines = [await Line.to(it) for _ in range(SENDERS)]
        await fast(it, "sends", lambda: lines[0].ask(plain("orders", 0)))
        async with asyncio.timeout(60):
            while True:
                before, sends = appends(it), counted(it, "sends")
                asked = [line.ask(plain("orders", at, at % 4)) for at, line in enumerate(lines)]
                answers = await asyncio.gather(*asked)
                # Each gets its own answer, and none that of a neighbour.
                ids = [ext(answer)["transactionId"] for answer in answers]
                assert ids == [f"U{at}" for at in range(SENDERS)]
                places = {(ext(one)["queueId"], ext(one)["queueOffset"]) for one in answers}
                assert len(places) == SENDERS
                if appends(it) - before < counted(it, "sends") - sends:
                    break
        for line in lines:
            await line.close()

    play(tmp_path, tell, ioThreads="1")


def test_sync_flush_answers_come_after_the_flush(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=4, write_queues=4))
        await it.broker.metadata.topics.persist()
        lines = [await Line.to(it) for _ in range(SENDERS)]
        for number in range(20):
            answers = await asyncio.gather(*(line.ask(plain("orders", number)) for line in lines))
            assert {answer.code for answer in answers} == {0}
            native = it.broker.store.native
            ends = [int(ext(answer)["msgId"][16:], 16) for answer in answers]
            assert max(ends) < native.flushed_offset()
        assert counted(it, "parked") > 0
        for line in lines:
            await line.close()

    play(tmp_path, tell, flushDiskType="SYNC_FLUSH", **THREADS)


def test_every_send_that_was_read_before_a_stop_is_answered(tmp_path: Path) -> None:
    async def answers_of(reader: asyncio.StreamReader) -> int:
        got = b""
        while data := await reader.read(1 << 18):
            got += data
        return len(decode(got)[0])

    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=4, write_queues=4))
        await it.broker.metadata.topics.persist()
        line = await Line.to(it)
        await fast(it, "sends", lambda: line.ask(plain("orders", 0)))
        await line.close()
        await dispatched(it)
        before = counted(it, "sends") + counted(it, "passed")
        host, _, port = it.address.rpartition(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(SENDERS)]
        counting = [asyncio.create_task(answers_of(reader)) for reader, _ in opened]
        sends = b"".join(encode(plain("orders", number), opaque=number) for number in range(500))
        for _, writer in opened:
            writer.write(sends)
        # All are read then; many wait for the flush.
        wanted = before + SENDERS * 500
        await until(lambda: counted(it, "sends") + counted(it, "passed") >= wanted, 20)
        await it.broker.listeners.stop()
        assert sum(await asyncio.gather(*counting)) == SENDERS * 500
        for _, writer in opened:
            writer.close()

    play(tmp_path, tell, flushDiskType="SYNC_FLUSH", **THREADS)


def test_held_pull_is_woken_by_a_message_and_given_up_in_time(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=4, write_queues=4))
        await it.broker.metadata.topics.persist()
        sender, reader = await Line.to(it), await Line.to(it)
        await fast(it, "pulls", lambda: reader.ask(pull_command("orders")))
        await fast(it, "sends", lambda: sender.ask(plain("orders", 0)))
        for number in range(30):
            await dispatched(it)
            end = it.broker.store.max_offset("orders", 0)
            waiting = pull_command("orders", end, sysFlag="6", suspendTimeoutMillis="15000")
            pulled = asyncio.create_task(reader.ask(waiting))
            if number % 2:
                await asyncio.sleep(0.01)
            await sender.ask(plain("orders", number))
            assert len(records(await pulled)) == 1
        assert counted(it, "held") > 0
        await dispatched(it)
        end = it.broker.store.max_offset("orders", 0)
        short = pull_command("orders", end, sysFlag="6", suspendTimeoutMillis="100")
        assert (await reader.ask(short)).code == ResponseCode.PULL_NOT_FOUND
        await sender.close()
        await reader.close()

    play(tmp_path, tell, **THREADS)


class Senders:
    """Connections that send one message after the other, and what answers said."""

    def __init__(self, it: Cluster, ask: Callable[[], Command]) -> None:
        self._it = it
        self._ask = ask
        self.era = 0
        """Moves when a change begins, to below 0, and when the answer to it has come."""
        self.seen: set[int] = set()
        """Codes of all answers."""
        self.codes: list[tuple[int, int]] = []
        """Era in which a question was asked, and the code of its answer in the same era."""
        self._stops = False

    async def run(self) -> None:
        line = await Line.to(self._it)
        while not self._stops:
            era = self.era
            answer = await line.ask(self._ask())
            self.seen.add(answer.code)
            if era == self.era:
                self.codes.append((era, answer.code))
        await line.close()

    async def during(self, change: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(SENDERS):
                group.create_task(self.run())
            try:
                await change()
            finally:
                self._stops = True


def test_no_send_is_judged_by_a_row_of_before_the_answer_to_a_change(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        administrator = await Line.to(it)
        senders = Senders(it, lambda: plain("orders", 0, 3))
        states: dict[int, int] = {}

        async def set_to(change: Command, code: int) -> None:
            era = senders.era + 1
            senders.era = -era
            answer = await administrator.ask(change)
            assert answer.code == 0, answer.remark
            senders.era = era
            states[era] = code
            sends, seen = counted(it, "sends"), len(senders.codes)
            await until(lambda: len(senders.codes) >= seen + 2 * SENDERS, 20)
            if code == 0:
                await until(lambda: counted(it, "sends") > sends, 20)

        async def change() -> None:
            for _ in range(8):
                await set_to(topic_change("orders", 4), 0)
                await set_to(topic_change("orders", 2), ResponseCode.INVALID_PARAMETER)
                await set_to(topic_change("orders", 4), 0)
                gone = admin(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
                await set_to(gone, ResponseCode.TOPIC_NOT_EXIST)

        await senders.during(change)
        wrong = [(era, code) for era, code in senders.codes if era > 0 and states[era] != code]
        assert not wrong
        assert counted(it, "sends") > 8 * SENDERS
        # What was stored for the deleted topic was stored before it was deleted.
        await dispatched(it)
        assert it.broker.store.max_offset("orders", 3) == 0
        await administrator.close()

    play(tmp_path, tell, autoCreateTopicEnable="false", **THREADS)


def test_no_pull_is_judged_by_a_row_of_before_a_reset(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        tables = it.broker.metadata
        tables.topics.put(TopicConfig(name="orders", read_queues=4, write_queues=4))
        tables.groups.put(SubscriptionGroupConfig(name="readers"))
        await tables.topics.persist()
        administrator = await Line.to(it)
        for number in range(4):
            assert (await administrator.ask(plain("orders", number))).code == 0
        await dispatched(it)
        pullers = Senders(it, lambda: pull_command("orders", 2))
        moved = ResponseCode.PULL_OFFSET_MOVED

        async def reset_once(pulls: int) -> None:
            await until(lambda: counted(it, "pulls") > pulls, 20)
            pullers.seen.clear()
            tables.offsets.reset("readers", "orders", 0, 0)
            # Until a pull has taken it every one goes to the processors.
            answered = counted(it, "pulls")
            while tables.offsets.has_reset("readers"):
                assert counted(it, "pulls") == answered
                await asyncio.sleep(0)
            await until(lambda: moved in pullers.seen, 20)

        async def change() -> None:
            for _ in range(20):
                await reset_once(counted(it, "pulls"))

        await pullers.during(change)
        assert {code for _, code in pullers.codes} <= {0, moved}
        await administrator.close()

    play(tmp_path, tell, **THREADS)
