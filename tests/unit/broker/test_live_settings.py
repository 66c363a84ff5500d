"""Settings that a running broker obeys at once, each shown by what it changes (codes 25, 318)."""

from __future__ import annotations

import asyncio
import os
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker_harness import dispatched, ext, play, records
from roquet.base.config import settings
from roquet.broker.clients.long_polling import LongPolling
from roquet.broker.config import BrokerConfig
from roquet.broker.network.registration import Registration
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.store.housekeeping.cleaning import Cleaner

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

ALL_TIME = {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}
OFTEN = {"sysFlag": "6", "suspendTimeoutMillis": "60000"}
"""A pull that may wait for a minute."""


async def change(it: Cluster, **values: str) -> Command:
    text = "".join(f"{key}={value}\n" for key, value in values.items())
    answer = await it.call(Command(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode()))
    assert answer.code == 0, answer.remark
    return answer


async def fill(it: Cluster, count: int, body: bytes = b"m", topic: str = "orders") -> None:
    it.broker.metadata.topics.put(TopicConfig(name=topic, read_queues=1, write_queues=1))
    it.broker.metadata.groups.put(SubscriptionGroupConfig(name="readers"))
    sends = (it.send(topic, body, properties=f"UNIQ_KEY\x01U{n}\x02") for n in range(count))
    assert {answer.code for answer in await asyncio.gather(*sends)} == {0}
    await dispatched(it)


async def pulled(it: Cluster, **fields: str) -> int:
    answer = await it.pull("orders", 0, **{"maxMsgNums": "500", **fields})
    assert answer.code == 0, answer.remark
    return len(records(answer))


FAST = pytest.mark.parametrize("fast", ["true", "false"])


@FAST
def test_pull_of_recent_messages_changed_limits_bound_the_answer(tmp_path: Path, fast: str) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it, 120, b"x" * 50)
        assert await pulled(it) == 32
        assert await pulled(it, maxMsgNums="5") == 5
        await change(it, maxTransferCountOnMessageInMemory="50")
        assert await pulled(it) == 50
        await change(it, maxTransferCountOnMessageInMemory="98")
        assert await pulled(it) == 98
        one = len((await it.pull("orders", 0, maxMsgNums="1")).body)
        await change(it, maxTransferBytesOnMessageInMemory=str(10 * one))
        assert 9 <= await pulled(it) <= 10
        # At least one message comes, however long it is.
        await change(it, maxTransferBytesOnMessageInMemory="1")
        assert await pulled(it) == 1
        assert it.broker.path.native.counters()["pulls"] == (7 if fast == "true" else 0)

    play(tmp_path, tell, fastPathEnable=fast)


@FAST
def test_pull_of_old_messages_changed_limits_bound_the_answer(tmp_path: Path, fast: str) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it, 120, b"x" * 50)
        # Nothing counts as being in memory any more.
        await change(it, accessMessageInMemoryMaxRatio="0")
        assert await pulled(it) == 8
        await change(it, maxTransferCountOnMessageInDisk="20")
        assert await pulled(it) == 20
        one = len((await it.pull("orders", 0, maxMsgNums="1")).body)
        await change(it, maxTransferBytesOnMessageInDisk=str(4 * one))
        assert 3 <= await pulled(it) <= 4

    play(tmp_path, tell, fastPathEnable=fast)


@FAST
def test_pull_with_tags_changed_scan_bounds_the_units_looked_at(tmp_path: Path, fast: str) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it, 100)
        nothing = {"subscription": "absent", "maxMsgNums": "1"}
        assert ext(await it.pull("orders", 0, **nothing))["nextBeginOffset"] == "100"
        await change(it, maxFilterMessageSize="400")
        assert ext(await it.pull("orders", 0, **nothing))["nextBeginOffset"] == "20"
        # What a client asks for does not widen it beyond what an answer may have.
        nothing["maxMsgNums"] = str(2**31 - 1)
        assert ext(await it.pull("orders", 0, **nothing))["nextBeginOffset"] == "32"

    play(tmp_path, tell, fastPathEnable=fast)


def held(it: Cluster) -> int:
    """Return how many pulls wait, on threads and on the loop."""
    (on_loop,) = (
        one.service for one in it.broker.app._parts if isinstance(one.service, LongPolling)
    )
    return it.broker.path.held_pulls + len(on_loop)


@FAST
def test_empty_pull_short_polling_switched_on_waits_for_that_time(
    tmp_path: Path, fast: str
) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it, 1)
        await change(it, longPollingEnable="false", shortPollingTimeMills="3600000")
        async with asyncio.timeout(40), asyncio.TaskGroup() as waiting:
            first = waiting.create_task(it.pull("orders", 1, **OFTEN))
            while not held(it):  # noqa: ASYNC110  (it becomes one of a thread or of the loop)
                await asyncio.sleep(0.005)
            await change(it, shortPollingTimeMills="1")
            # It goes by the setting that it met: what comes later is answered before it.
            assert (await it.pull("orders", 1, **OFTEN)).code == 19
            assert not first.done()
            await it.send("orders", properties="UNIQ_KEY\x01U8\x02")
        assert first.result().code == 0
        await change(it, longPollingEnable="true")
        late = asyncio.create_task(it.pull("orders", 2, **OFTEN))
        await asyncio.sleep(0.2)
        assert not late.done()
        await it.send("orders", properties="UNIQ_KEY\x01U9\x02")
        assert (await late).code == 0

    play(tmp_path, tell, fastPathEnable=fast)


@FAST
def test_pull_rules_changed_while_running_hold_for_the_next_pull(tmp_path: Path, fast: str) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it, 3)
        lite = Command(RequestCode.LITE_PULL_MESSAGE, ext=dict(PULL))
        assert (await it.call(lite)).code == 0
        await change(it, litePullMessageEnable="false")
        assert (await it.call(Command(RequestCode.LITE_PULL_MESSAGE, ext=dict(PULL)))).code == 16
        sql = {"expressionType": "SQL92", "subscription": "a = 1"}
        assert (await it.pull("orders", 0, **sql)).code == 1
        await change(it, enablePropertyFilter="true")
        assert (await it.pull("orders", 0, **sql)).code == 20
        assert (await it.pull("orders")).code == 0
        await change(it, rejectPullConsumerEnable="true")
        assert (await it.pull("orders")).code == 24
        await change(it, rejectPullConsumerEnable="false", slaveReadEnable="true")
        group = SubscriptionGroupConfig(name="readers", broker_id=7)
        it.broker.metadata.groups.put(group)
        assert ext(await it.pull("orders"))["suggestWhichBrokerId"] == "7"

    play(tmp_path, tell, fastPathEnable=fast)


PULL = {
    "consumerGroup": "readers",
    "topic": "orders",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}


def test_query_by_key_limits_are_those_of_the_settings(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        properties = "KEYS\x01same\x02UNIQ_KEY\x01one\x02"
        sends = (it.send("orders", properties=properties) for _ in range(80))
        assert {answer.code for answer in await asyncio.gather(*sends)} == {0}
        await dispatched(it)

        async def found(maximum: int, key: str = "same", **more: str) -> int:
            fields = {"topic": "orders", "key": key, "maxNum": str(maximum), **ALL_TIME, **more}
            answer = await it.call(Command(RequestCode.QUERY_MESSAGE, ext=fields))
            return len(records(answer))

        unique = {"_UNIQUE_KEY_QUERY": "true"}
        assert (await found(100), await found(5)) == (64, 5)
        assert await found(100, "one", **unique) == 32
        await change(it, maxMsgsNumBatch="70", defaultQueryMaxNum="40")
        assert (await found(100), await found(100, "one", **unique)) == (70, 40)
        await change(it, maxMsgsNumBatch="10")
        assert (await found(100), await found(100, "one", **unique)) == (10, 10)

    play(tmp_path, tell)


def test_offset_of_a_queue_without_messages_is_zero_unless_switched_off(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="new", read_queues=2, write_queues=2))

        async def asked(**fields: str) -> int:
            where = {"consumerGroup": "g", "topic": "new", "queueId": "0", **fields}
            return (await it.call(Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=where))).code

        assert await asked() == 0
        # The message that arrives before the group asks for the end is not passed over.
        assert (await it.send("new")).code == 0
        await dispatched(it)
        assert await asked() == 0
        for other in ({"queueId": "2"}, {"topic": "none"}, {"setZeroIfNotFound": "false"}):
            assert await asked(**other) == 22, other
        group = SubscriptionGroupConfig(name="g", consume_from_min_enable=False)
        it.broker.metadata.groups.put(group)
        assert await asked(queueId="1") == 22
        it.broker.metadata.groups.remove("g")
        await change(it, newQueueFromZero="false")
        assert (await asked(queueId="1"), await asked()) == (22, 0)

    play(tmp_path, tell)


@FAST
def test_sends_changed_limits_and_stamps_hold_for_the_next_send(tmp_path: Path, fast: str) -> None:
    async def tell(it: Cluster) -> None:
        key = "UNIQ_KEY\x01U\x02"
        first = await it.send("orders", properties=key)
        assert (ext(first)["MSG_REGION"], ext(first)["TRACE_ON"]) == ("DefaultRegion", "true")
        await change(it, regionId="North", traceOn="false", maxMessageSize="10")
        second = await it.send("orders", properties=key)
        assert (ext(second)["MSG_REGION"], ext(second)["TRACE_ON"]) == ("North", "false")
        await dispatched(it)
        stored = records(await it.pull("orders"))[1]
        assert b"MSG_REGION\x01North\x02" in stored.properties
        assert (await it.send("orders", b"x" * 11, properties=key)).code == 13
        assert (await it.send("orders", b"x" * 10, properties=key)).code == 0

    play(tmp_path, tell, fastPathEnable=fast)


def test_settings_of_upkeep_changed_while_running_reach_their_parts(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        native = it.broker.store.native
        assert native.stats()["disk_full_level"] == 90
        await it.send("orders")
        await asyncio.sleep(1.5)
        assert native.flushed_offset() < native.max_physical_offset()
        await change(
            it,
            diskSpaceWarningLevelRatio="80",
            diskSpaceCleanForciblyRatio="70",
            diskMaxUsedSpaceRatio="60",
            flushIntervalCommitLog="1",
            flushConsumeQueueThoroughInterval="10",
        )
        stats = native.stats()
        levels = [stats[f"disk_{name}_level"] for name in ("full", "clean", "used")]
        assert levels == [80, 70, 60]
        async with asyncio.timeout(20):
            while native.flushed_offset() < native.max_physical_offset():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        refused = await it.call(
            Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"maxMessageSize=2147483647\n")
        )
        assert refused.code == 29

    play(tmp_path, tell, flushIntervalCommitLog="60000")


def test_files_that_a_running_broker_deletes_are_those_of_the_changed_settings(
    tmp_path: Path,
) -> None:
    async def tell(it: Cluster) -> None:
        for _ in range(80):
            assert (await it.send("orders", b"x" * 60_000)).code == 0
        await dispatched(it)
        await it.broker.store.flush()
        files = sorted((tmp_path / "broker-a" / "commitlog").iterdir())
        two_hours_ago = time.time() - 7_200
        for path in files[:3]:
            os.utime(path, (two_hours_ago, two_hours_ago))
        parts = (part.service for part in it.broker.app._parts)
        (cleaner,) = (part for part in parts if isinstance(part, Cleaner))

        async def gone() -> int:
            await cleaner.clean()
            return sum(not path.exists() for path in files)

        assert await gone() == 0
        await change(it, deleteWhen=";".join(map(str, range(24))))
        assert await gone() == 0  # It is the hour, but they are kept for three days.
        await change(it, deleteFileBatchMax="2", fileReservedTime="1")
        assert await gone() == 2
        assert await gone() == 3
        assert await gone() == 3

    calm = {"cleanResourceInterval": "10000000", "diskMaxUsedSpaceRatio": "95"}
    play(tmp_path, tell, deleteWhen="", deleteCommitLogFilesInterval="0", **calm)


def test_transaction_check_interval_changed_checks_come_at_the_new_pace(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        half = "TRAN_MSG\x01true\x02PGROUP\x01testers\x02UNIQ_KEY\x01U\x02"
        assert (await it.send("orders", properties=half, f="4")).code == 0
        await change(it, transactionCheckInterval="10", transactionTimeOut="0")
        await asyncio.sleep(0.3)
        rows = await stat(it, "GROUP_GET_NUMS", "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS")
        assert rows > 2

    play(tmp_path, tell, transactionCheckInterval="100")


async def stat(it: Cluster, name: str, key: str) -> int:
    """Return how many VIEW_BROKER_STATS_DATA counts, -1 where it knows no such figure."""
    await asyncio.sleep(0.01)
    ask = Command(RequestCode.VIEW_BROKER_STATS_DATA, ext={"statsName": name, "statsKey": key})
    answer = await it.call(ask)
    if answer.code != 0:
        return -1
    text = answer.body.decode()
    return int(text.split('"statsDay":{', 1)[1].split('"sum":', 1)[1].split(",")[0].split("}")[0])


@FAST
def test_statistics_of_internal_topics_count_what_waits_there(tmp_path: Path, fast: str) -> None:
    async def tell(it: Cluster) -> None:
        await it.send("orders", properties="UNIQ_KEY\x01U0\x02")
        late = "DELAY\x011\x02UNIQ_KEY\x01U1\x02"
        assert (await it.send("orders", properties=late)).code == 0
        assert await stat(it, "TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX") == 1
        async with asyncio.timeout(20):
            while await stat(it, "TOPIC_PUT_NUMS", "orders") != 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        key = "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER"
        assert await stat(it, "GROUP_GET_NUMS", key) == 1
        half = "TRAN_MSG\x01true\x02PGROUP\x01testers\x02UNIQ_KEY\x01U2\x02"
        await change(it, enableScheduleMessageStats="false")
        answer = await it.send("orders", properties=half, f="4")
        assert await stat(it, "TOPIC_PUT_NUMS", "RMQ_SYS_TRANS_HALF_TOPIC") == 1
        end = {
            "producerGroup": "testers",
            "tranStateTableOffset": "0",
            "commitLogOffset": str(int(ext(answer)["msgId"][-16:], 16)),
            "commitOrRollback": "12",
            "fromTransactionCheck": "false",
            "msgId": "U2",
            "transactionId": "U2",
        }
        rolled_back = await it.call(Command(RequestCode.END_TRANSACTION, ext=end))
        assert rolled_back.code == 0, rolled_back.remark
        assert await stat(it, "TOPIC_PUT_NUMS", "RMQ_SYS_TRANS_OP_HALF_TOPIC") == 1
        # Totals of the day are those of the topics that belong to users.
        info = await it.call(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
        assert b'"msgPutTotalTodayNow":"2"' in info.body

    play(tmp_path, tell, fastPathEnable=fast, messageDelayLevel="1s 2s")


def test_delayed_messages_are_counted_unless_that_is_switched_off(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=1, write_queues=1))
        late = "DELAY\x014\x02UNIQ_KEY\x01U1\x02"
        assert (await it.send("orders", properties=late)).code == 0
        async with asyncio.timeout(20):
            while not it.broker.store.max_offset("orders", 0):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        key = "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER"
        assert await stat(it, "GROUP_GET_NUMS", key) == -1
        assert await stat(it, "TOPIC_PUT_NUMS", "orders") == -1
        await change(it, enableScheduleMessageStats="true")
        assert (await it.send("orders", properties=late)).code == 0
        async with asyncio.timeout(20):
            while await stat(it, "GROUP_GET_NUMS", key) != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert await stat(it, "TOPIC_PUT_NUMS", "orders") == 1

    given = {"enableScheduleMessageStats": "false", "messageDelayLevel": "1h 1h 1h 1s"}
    play(tmp_path, tell, **given)


def test_registration_of_a_running_broker_is_sent_as_the_changed_settings_say(
    tmp_path: Path,
) -> None:
    async def tell(it: Cluster) -> None:
        parts = (part.service for part in it.broker.app._parts)
        (registration,) = (part for part in parts if isinstance(part, Registration))
        caller, sent = registration._caller, list[tuple[Command, float]]()

        async def call(address: str, command: Command, timeout_s: float = 3.0) -> Command:
            sent.append((command, timeout_s))
            return await caller.call(address, command, timeout_s)

        registration._caller = cast("Any", SimpleNamespace(call=call))
        for compressed, timeout_ms in (("true", 5000), ("false", 7000)):
            await change(
                it, compressedRegister=compressed, registerBrokerTimeoutMills=str(timeout_ms)
            )
            sent.clear()
            topic = f"late-{compressed}"
            it.broker.metadata.topics.put(TopicConfig(name=topic, read_queues=1, write_queues=1))
            ask = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            async with asyncio.timeout(20):
                while (await it.call(ask, it.name_servers)).code != 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            told = {((command.ext or {}).get("compressed"), limit_s) for command, limit_s in sent}
            assert told == {(compressed, timeout_ms / 1000)}

    play(tmp_path, tell)


def test_name_server_drop_of_topics_switched_on_holds_for_the_next_registration(
    tmp_path: Path,
) -> None:
    async def tell(it: Cluster) -> None:
        text = b"deleteTopicWithBrokerRegistration=true\n"
        answer = await it.call(
            Command(RequestCode.UPDATE_NAMESRV_CONFIG, body=text), it.name_servers
        )
        assert answer.code == 0, answer.remark
        assert it.name_server.table.drop_absent_topics

    play(tmp_path, tell)


def test_query_by_key_without_an_index_finds_nothing(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await it.send("orders", properties="KEYS\x01k\x02")
        await dispatched(it)
        fields = {"topic": "orders", "key": "k", "maxNum": "32", **ALL_TIME}
        assert (await it.call(Command(RequestCode.QUERY_MESSAGE, ext=fields))).code == 22

    play(tmp_path, tell, messageIndexEnable="false")


def test_slave_offset_check_switched_on_moves_readers(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=1, write_queues=1))
        it.broker.metadata.groups.put(SubscriptionGroupConfig(name="readers"))
        kept = await it.pull("orders", 5)
        assert (kept.code, ext(kept)["nextBeginOffset"]) == (20, "5")
        await change(it, offsetCheckInSlave="true")
        moved = await it.pull("orders", 5)
        assert (moved.code, ext(moved)["nextBeginOffset"]) == (21, "0")

    play(tmp_path, tell, brokerRole="SLAVE", brokerId="1", slaveReadEnable="true")


def test_live_settings_of_one_part_are_never_declared_twice_with_other_rules() -> None:
    seen: dict[str, tuple[object, ...]] = {}
    for _, about, _ in settings(BrokerConfig):
        rules = (about.live, about.low, about.high)
        assert seen.setdefault(about.java, rules) == rules, about.java
