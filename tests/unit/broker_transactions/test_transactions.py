"""Half messages, their ends and the checks, over real sockets and files."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, properties, records
from roquet.base.errors import OutcomeUnknown
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import FLAG_ONE_WAY, Command
from transaction_harness import (
    COMMIT,
    GROUP,
    HALF,
    OP,
    QUICK,
    ROLLBACK,
    UNKNOWN,
    TxProducer,
    end,
    end_command,
    of,
    send_half,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.store.records import Record
    from roquet.testing.cluster import Cluster

ASIDE = "TRANS_CHECK_MAX_TIME_TOPIC"


def test_a_half_message_is_seen_by_nobody_until_it_is_committed(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        sent = await send_half(it, "orders", "K1", "TAGS=a")
        assert ext(sent)["transactionId"] == "K1"
        assert ext(sent)["queueOffset"] == "0"
        assert records(await it.pull("orders")) == []
        (half,) = of(it.broker, HALF)
        assert half.sys_flag == 0
        assert properties(half) == {
            "UNIQ_KEY": "K1",
            "TRAN_MSG": "true",
            "PGROUP": GROUP,
            "TAGS": "a",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
            "__transactionId__": "K1",
            "REAL_TOPIC": "orders",
            "REAL_QID": "0",
        }
        answer = await end(it, COMMIT, sent)
        assert (answer.code, answer.ext, answer.remark) == (0, None, None)
        (seen,) = records(await it.pull("orders"))
        assert seen.body == b"half"
        assert seen.sys_flag == COMMIT
        assert seen.prepared_transaction_offset == half.physical_offset
        assert (seen.born_timestamp, seen.born_host) == (half.born_timestamp, half.born_host)
        left = properties(half)
        del left["REAL_TOPIC"], left["REAL_QID"]
        assert properties(seen) == left
        await until(lambda: bool(of(it.broker, OP)), "the op record")
        (op,) = of(it.broker, OP)
        assert op.body == b"0,"
        assert op.properties == b"WAIT\x01true\x02TAGS\x01d\x02"
        assert op.born_host == op.store_host

    play(tmp_path, tell)


def test_a_rollback_leaves_nothing_and_a_second_end_changes_nothing(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        gone, kept = await send_half(it, "orders", "K1"), await send_half(it, "orders", "K2")
        assert (await end(it, ROLLBACK, gone)).code == 0
        assert (await end(it, COMMIT, gone)).code == 0
        both = await asyncio.gather(*(end(it, COMMIT, kept) for _ in range(5)))
        assert {answer.code for answer in both} == {0}
        assert (await end(it, ROLLBACK, kept)).code == 0
        await dispatched(it)
        seen = [properties(record)["UNIQ_KEY"] for record in records(await it.pull("orders"))]
        assert seen == ["K2"]

    play(tmp_path, tell)


def test_what_does_not_fit_the_half_message_is_refused(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        sent = await send_half(it, "orders", "K1")
        plain = await it.send("orders")
        log_offset = int(ext(sent)["msgId"][16:], 16)
        plain_offset = int(ext(plain)["msgId"][16:], 16)
        for command, remark in (
            (end_command(COMMIT, log_offset, 0, producerGroup="x"), "The producer group wrong"),
            (
                end_command(COMMIT, log_offset, 7),
                "The transaction state table offset wrong",
            ),
            (end_command(COMMIT, plain_offset, 0), "Find prepared transaction message failed"),
            (end_command(ROLLBACK, 10**9, 0), "Find prepared transaction message failed"),
            (end_command(COMMIT, -5, 0), "Find prepared transaction message failed"),
            (end_command(COMMIT, log_offset + 1, 0), "Find prepared transaction message failed"),
            (end_command(4, log_offset, 0), "commitOrRollback field wrong"),
        ):
            answer = await it.call(command)
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        await dispatched(it)
        assert [record.body for record in of(it.broker, "orders")] == [b"hello"]
        with pytest.raises(OutcomeUnknown):
            await it.client.call(it.address, end_command(UNKNOWN, log_offset, 0), 0.3)

    play(tmp_path, tell)


def test_half_messages_may_be_refused(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        answer = await it.send("orders", properties="TRAN_MSG\x01true\x02")
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == ("the broker[127.0.0.1] sending transaction message is forbidden")
        # It can be changed while running.
        change = Command(
            RequestCode.UPDATE_BROKER_CONFIG, ext={}, body=b"rejectTransactionMessage=false"
        )
        assert (await it.call(change)).code == 0
        assert (await it.send("orders", properties="TRAN_MSG\x01true\x02")).code == 0

    play(tmp_path, tell, rejectTransactionMessage="true")


def test_b7_properties_that_are_the_brokers_are_not_taken_from_producers(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        theirs = ("REAL_TOPIC=other", "REAL_QID=9", "TRANSACTION_CHECK_TIMES=14")
        sent = await send_half(it, "orders", "K1", *theirs, "TRAN_PREPARED_QUEUE_OFFSET=0")
        (half,) = of(it.broker, HALF)
        found = properties(half)
        assert (found["REAL_TOPIC"], found["REAL_QID"]) == ("orders", "0")
        assert not {"TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"} & found.keys()
        assert (await end(it, COMMIT, sent)).code == 0
        assert len(of(it.broker, "orders")) == 1
        assert of(it.broker, "other") == []

    play(tmp_path, tell)


def test_the_producer_is_asked_and_its_answer_counts(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        def decide(record: Record) -> int:
            return COMMIT if properties(record)["UNIQ_KEY"] == "K1" else ROLLBACK

        async with TxProducer(it, decide) as producer:
            for key in ("K1", "K2"):
                await send_half(it, "orders", key, body=key.encode())
            await until(lambda: bool(of(it.broker, "orders")), "the commit")
            await until(lambda: len(producer.asked) >= 2, "both checks")
            fields, record = producer.asked[0]
            copy = of(it.broker, HALF)[int(fields["tranStateTableOffset"])]
            assert fields == {
                "topic": HALF,
                "tranStateTableOffset": str(copy.queue_offset),
                "commitLogOffset": str(copy.physical_offset),
                "msgId": "K1",
                "transactionId": "K1",
                "offsetMsgId": (copy.store_host + copy.physical_offset.to_bytes(8)).hex().upper(),
                "bname": "broker-a",
            }
            assert (record.topic, record.queue_id, record.body) == ("orders", 0, b"K1")
            assert properties(record)["TRANSACTION_CHECK_TIMES"] == "1"
            settled = it.broker.metadata.offsets
            await until(
                lambda: (
                    settled.committed("CID_RMQ_SYS_TRANS", HALF, 0)
                    == it.broker.store.max_offset(HALF, 0)
                ),
                "the committed offset",
            )
        assert [record.body for record in of(it.broker, "orders")] == [b"K1"]

    play(tmp_path, tell, **QUICK)


def test_after_so_many_checks_a_message_is_put_aside_and_can_be_brought_back(
    tmp_path: Path,
) -> None:
    async def tell(it: Cluster) -> None:
        async with TxProducer(it) as producer:
            await send_half(it, "orders", "K1")
            await until(lambda: bool(of(it.broker, ASIDE)), "the message put aside")
            times = [properties(one)["TRANSACTION_CHECK_TIMES"] for _, one in producer.asked]
            assert times == ["1", "2", "3"]
            (aside,) = of(it.broker, ASIDE)
            assert properties(aside)["REAL_TOPIC"] == "orders"
            producer.decide = lambda _: COMMIT
            msg_id = (aside.store_host + aside.physical_offset.to_bytes(8)).hex()
            resume = Command(
                RequestCode.RESUME_CHECK_HALF_MESSAGE, ext={"topic": "orders", "msgId": msg_id}
            )
            assert (await it.call(resume)).code == 0
            await until(lambda: bool(of(it.broker, "orders")), "the commit after all")
            resume.ext = {"msgId": "00" * 16}
            answer = await it.call(resume)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."

    play(tmp_path, tell, **QUICK, transactionCheckMax="3")


def test_many_messages_put_aside_are_few_lines_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell(it: Cluster) -> None:
        async with TxProducer(it):
            for number in range(60):
                await send_half(it, "orders", f"K{number}")
            await until(lambda: len(of(it.broker, ASIDE)) == 60, "the messages put aside")

    play(tmp_path, tell, **QUICK, transactionCheckMax="1")
    lines = [line for line in caplog.messages if "is put aside" in line]
    assert 1 <= len(lines) < 10


def test_half_message_that_an_administrator_resumes_counts_at_its_copy_alone(
    tmp_path: Path,
) -> None:
    async def tell(it: Cluster) -> None:
        sent = await send_half(it, "orders", "K1")
        resume = Command(RequestCode.RESUME_CHECK_HALF_MESSAGE, ext={"msgId": ext(sent)["msgId"]})
        assert (await it.call(resume)).code == 0
        await dispatched(it)
        old, copy = of(it.broker, HALF)
        assert properties(copy)["TRANSACTION_CHECK_TIMES"] == "0"
        # The first one is settled by its copy, and is not resumed again.
        answer = await it.call(resume)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert len(of(it.broker, HALF)) == 2
        # The producer knows of the first one only; its commit settles the copy.
        assert old.queue_offset == int(ext(sent)["queueOffset"])
        assert (await end(it, COMMIT, sent)).code == 0
        assert (await end(it, COMMIT, sent)).code == 0
        assert len(of(it.broker, "orders")) == 1
        resume.ext = {"msgId": (copy.store_host + copy.physical_offset.to_bytes(8)).hex()}
        assert (await it.call(resume)).code == ResponseCode.SYSTEM_ERROR

    play(tmp_path, tell)


def test_544_1517_2117_nobody_is_there_to_ask_and_the_message_waits(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await send_half(it, "orders", "K1", "PGROUP=elsewhere")
        async with TxProducer(it):
            await send_half(it, "orders", "K2")
            await until(lambda: bool(of(it.broker, ASIDE)), "the other one put aside")
        assert [properties(one)["UNIQ_KEY"] for one in of(it.broker, ASIDE)] == ["K2"]
        copies = [properties(one)["UNIQ_KEY"] for one in of(it.broker, HALF)]
        assert copies.count("K1") == 1, "nothing is copied that nobody is asked about"
        async with TxProducer(it, lambda _: COMMIT, group="elsewhere"):
            await until(lambda: bool(of(it.broker, "orders")), "the commit")

    play(tmp_path, tell, **QUICK, transactionCheckMax="2")


def test_9500_8311_a_wish_for_time_is_kept_and_an_end_after_it_has_to_wait_for_the_check(
    tmp_path: Path,
) -> None:
    async def tell(it: Cluster) -> None:
        async with TxProducer(it, lambda _: None) as producer:
            patient = "CHECK_IMMUNITY_TIME_IN_SECONDS=3600"
            sent = await send_half(it, "orders", "K1", patient)
            other = await send_half(it, "orders", "K2")
            await until(lambda: len(producer.asked) >= 2, "checks of the other")
            assert {properties(one)["UNIQ_KEY"] for _, one in producer.asked} == {"K2"}
            # The born time of these messages is years ago: an end that nobody asked for is late.
            assert (await end(it, COMMIT, sent)).code == ResponseCode.ILLEGAL_OPERATION
            asked = await end(it, COMMIT, sent, fromTransactionCheck="true")
            assert asked.code == 0
            # The first place is as good as the copy's.
            assert (await end(it, ROLLBACK, other)).code == 0
            assert [properties(one)["UNIQ_KEY"] for one in of(it.broker, "orders")] == ["K1"]

    play(tmp_path, tell, **QUICK)


def test_a_committed_message_with_a_delay_waits_from_its_commit(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        sent = await send_half(it, "orders", "K1", "DELAY=1")
        assert len(of(it.broker, HALF)) == 1
        assert of(it.broker, "SCHEDULE_TOPIC_XXXX") == []
        assert (await end(it, COMMIT, sent)).code == 0
        (waiting,) = of(it.broker, "SCHEDULE_TOPIC_XXXX")
        assert properties(waiting)["REAL_TOPIC"] == "orders"
        await until(lambda: bool(of(it.broker, "orders")), "the delivery")

    play(tmp_path, tell, messageDelayLevel="1s")


def test_a_restart_knows_what_is_settled_and_what_is_open(tmp_path: Path) -> None:
    async def before(it: Cluster) -> None:
        first, second, _ = [await send_half(it, "orders", f"K{n}") for n in (1, 2, 3)]
        assert (await end(it, COMMIT, second)).code == 0
        assert (await end(it, ROLLBACK, first)).code == 0

    async def after(it: Cluster) -> None:
        async with TxProducer(it, lambda _: COMMIT) as producer:
            await until(lambda: len(of(it.broker, "orders")) == 2, "the commit of the third")
            asked = {properties(one)["UNIQ_KEY"] for _, one in producer.asked}
            assert asked == {"K3"}
        keys = [properties(one)["UNIQ_KEY"] for one in of(it.broker, "orders")]
        assert keys == ["K2", "K3"]

    play(tmp_path, before)
    table = json.loads((tmp_path / "broker-a" / "config" / "transactionMetrics").read_text())
    assert table["transactionCount"]["orders"]["count"] == 1
    play(tmp_path, after, **QUICK)


def test_a_commit_whose_op_record_was_lost_is_not_done_twice(tmp_path: Path) -> None:
    async def before(it: Cluster) -> None:
        sent = await send_half(it, "orders", "K1")
        assert (await end(it, COMMIT, sent)).code == 0
        # The op record gathers for a minute; the copy of the log below is what a crash leaves.
        _copy_store(it, tmp_path / "crashed" / "broker-a")

    async def after(it: Cluster) -> None:
        assert of(it.broker, OP) == []
        async with TxProducer(it, lambda _: COMMIT) as producer:
            await until(lambda: bool(producer.asked), "the check")
            await until(lambda: bool(of(it.broker, OP)), "the op record")
        assert len(of(it.broker, "orders")) == 1

    play(tmp_path / "first", before, transactionOpBatchInterval="60000")
    play(tmp_path / "crashed", after, **QUICK)


def test_message_that_claims_to_be_the_commit_does_not_stand_for_it(tmp_path: Path) -> None:
    async def before(it: Cluster) -> None:
        assert (await it.send("orders", b"first of the log")).code == 0
        await send_half(it, "orders", "K1")
        claims = "UNIQ_KEY\x01K1\x02__transactionId__\x01K1\x02"
        assert (await it.send("orders", b"forged", properties=claims, f="8")).code == 0

    async def after(it: Cluster) -> None:
        async with TxProducer(it, lambda _: COMMIT):
            await until(lambda: bool(of(it.broker, OP)), "the op record")
        assert [one.body for one in of(it.broker, "orders")][1:] == [b"forged", b"half"]

    play(tmp_path, before, transactionCheckInterval="60000")
    play(tmp_path, after, **QUICK)


def _copy_store(it: Cluster, target: Path) -> None:
    import shutil  # noqa: PLC0415

    it.broker.store.native.flush()
    source = it.broker.store._native_config["storePathRootDir"]
    shutil.copytree(str(source), target)


def test_op_records_gather_up_to_their_size(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        sent = [await send_half(it, "orders", f"K{n}") for n in range(40)]
        for one in sent[:-1]:
            command = end_command(ROLLBACK, int(ext(one)["msgId"][16:], 16), _offset(one))
            command.flag = FLAG_ONE_WAY
            await it.client.call_one_way(it.address, command)
        await until(lambda: len(of(it.broker, OP)) >= 3, "the full op records")
        bodies = [record.body for record in of(it.broker, OP)]
        assert all(len(body) <= 32 for body in bodies)
        # One that somebody waits for is written with all that has gathered.
        assert (await end(it, ROLLBACK, sent[-1])).code == 0
        await dispatched(it)
        named = b"".join(record.body for record in of(it.broker, OP)).split(b",")[:-1]
        assert sorted(map(int, named)) == list(range(40))

    play(tmp_path, tell, transactionOpMsgMaxSize="32", transactionOpBatchInterval="60000")


def _offset(sent: Command) -> int:
    return int(ext(sent)["queueOffset"])


def test_a_commit_that_cannot_be_stored_leaves_the_transaction_open(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        sent = await send_half(it, "orders", "K1", "TIMER_DELAY_SEC=5")
        refused = await end(it, COMMIT, sent)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert (refused.remark or "").startswith("accurate timer message is not enabled")
        assert of(it.broker, "orders") == []
        assert (await end(it, ROLLBACK, sent)).code == 0

    play(tmp_path, tell, timerWheelEnable="false")
