"""Sends of the blocking client on sockets of their own: the same rules as over the loop."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import roquet
from roquet.client import ProducerOptions, sync
from roquet.client._sync import sockets as beside
from roquet.remoting.blocking import BlockingConnection
from roquet.testing import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"maxMessageSize": "2000"}) as started:
        with sync.connect(started.url) as mq:
            mq.admin().topics.create("orders", 1)
        yield started


def opened(mq: sync.MQ) -> int:
    return sum(mq._sockets._open.values())


def loop_calls(mq: sync.MQ, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of what the loop is asked to do from now on."""
    seen: list[str] = []
    run = mq._loop.run

    def noted(work: Any) -> Any:
        seen.append(work.__name__)
        return run(work)

    monkeypatch.setattr(mq._loop, "run", noted)
    return seen


def test_second_send_and_those_after_it_do_not_change_threads(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sync.connect(broker.url) as mq, mq.producer() as producer:
        first = producer.send("orders", b"0", order_key="k")
        seen = loop_calls(mq, monkeypatch)
        receipts = [producer.send("orders", f"{n}", order_key="k") for n in range(1, 20)]
        assert [it.queue_offset for it in receipts] == list(range(1, 20))
        assert {it.queue for it in receipts} == {first.queue}
        assert len({it.message_id for it in receipts}) == 19
        assert (seen, opened(mq)) == ([], 1)
        with mq.pull_consumer("readers") as consumer:
            consumer.assign([first.queue], start="earliest")
            bodies: list[bytes] = []
            while len(bodies) < 20:  # a poll gives what is there already
                bodies += [it.body for it in consumer.poll(32)]
            assert bodies == [b"%d" % n for n in range(20)]
    assert opened(mq) == 0


def test_sends_without_a_queue_go_to_all_queues_in_turn(broker: Broker) -> None:
    with sync.connect(broker.url) as mq, mq.producer() as producer:
        mq.admin().topics.create("wide", 4)
        receipts = [producer.send("wide", b"x") for _ in range(40)]
        numbers = [it.queue.queue_id for it in receipts]
        assert {number: numbers.count(number) for number in range(4)} == dict.fromkeys(range(4), 10)


def test_refusals_come_with_their_code_and_leave_the_socket_usable(broker: Broker) -> None:
    with sync.connect(broker.url) as mq:
        with mq.producer(options=ProducerOptions(compress_over=0)) as producer:
            producer.send("orders", b"x")
            with pytest.raises(roquet.Refused) as failure:
                producer.send("orders", b"x" * 2001)
            assert failure.value.code == 13
            assert producer.send("orders", b"x").is_durable
        assert opened(mq) == 1


def test_restart_between_sends_and_during_one_is_no_failure(broker: Broker) -> None:
    with sync.connect(broker.url) as mq, mq.producer() as producer:
        producer.send("orders", b"x")
        producer.send("orders", b"x")
        broker.restart()
        assert producer.send("orders", b"x", timeout_s=20).is_durable
        assert producer.send("orders", b"x").is_durable
        broker.stop()
        again = threading.Timer(0.5, broker.start)
        again.start()
        assert producer.send("orders", b"x", timeout_s=20).is_durable
        again.join()


def test_broker_that_stays_away_is_unreachable_after_the_time_out(broker: Broker) -> None:
    with sync.connect(broker.url) as mq, mq.producer() as producer:
        producer.send("orders", b"x")
        producer.send("orders", b"x")
        broker.stop()
        began_s = time.monotonic()
        with pytest.raises(roquet.Unreachable):
            producer.send("orders", b"x", timeout_s=0.5)
        assert time.monotonic() - began_s >= 0.3


def test_lost_answer_is_unknown_and_not_sent_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sync.connect(broker.url) as mq, mq.producer() as producer:
        queue = producer.send("orders", b"0").queue
        monkeypatch.setattr(BlockingConnection, "_receive", _lose)
        with pytest.raises(roquet.OutcomeUnknown, match="send message v2"):
            producer.send("orders", b"1", queue=queue)
        assert opened(mq) == 0
        monkeypatch.undo()
        assert producer.send("orders", b"2", queue=queue).queue_offset == 2


def _lose(_: BlockingConnection) -> list[Any]:
    time.sleep(0.2)  # the broker stores it meanwhile
    raise ConnectionResetError("lost")


def test_late_answer_is_unknown_within_the_time_out_of_the_send(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sync.connect(broker.url) as mq, mq.producer() as producer:
        producer.send("orders", b"0")
        # Frames nobody asked for keep coming; they must not give the answer more time.
        monkeypatch.setattr(BlockingConnection, "_receive", _dawdle)
        with pytest.raises(roquet.OutcomeUnknown, match=r"within 0\.3 s"):
            producer.send("orders", b"1", timeout_s=0.3)


def _dawdle(connection: BlockingConnection) -> list[Any]:
    left_s = connection._socket.gettimeout()
    assert left_s is not None
    if left_s < 0.02:
        raise TimeoutError("timed out")
    time.sleep(0.02)
    return []


def test_interrupt_closes_the_socket_so_that_no_answer_is_taken_for_another(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: BlockingConnection) -> list[Any]:
        raise KeyboardInterrupt

    with sync.connect(broker.url) as mq, mq.producer() as producer:
        queue = producer.send("orders", b"0").queue
        monkeypatch.setattr(BlockingConnection, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.send("orders", b"1", queue=queue)
        monkeypatch.undo()
        assert opened(mq) == 0
        receipt = producer.send("orders", b"2", queue=queue)
        assert receipt.queue_offset >= 1


def test_threads_beyond_the_bound_share_the_connection_of_the_loop(broker: Broker) -> None:
    most = 0
    with sync.connect(broker.url) as mq, mq.producer() as producer:
        producer.send("orders", b"first")

        def work(_: int) -> list[str]:
            nonlocal most
            found = [producer.send("orders", b"x").message_id for _ in range(50)]
            most = max(most, opened(mq))
            return found

        with ThreadPoolExecutor(20) as pool:
            ids = [one for own in pool.map(work, range(20)) for one in own]
        assert len(set(ids)) == 1000
        assert 1 <= most <= beside.SOCKETS_MAX


@pytest.mark.parametrize("way", ["submit", "send_one_way"])
def test_sends_after_those_that_nobody_waits_for_stay_behind_them(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with sync.connect(broker.url) as mq, mq.producer() as producer:
        producer.send("orders", b"x", order_key="k")
        getattr(producer, way)("orders", b"x")
        seen = loop_calls(mq, monkeypatch)
        producer.send("orders", b"x", order_key="k")
        assert seen == ["deliver"]


def test_idle_sockets_are_closed_when_another_is_opened(broker: Broker) -> None:
    with sync.connect(broker.url) as mq, mq.producer() as producer:
        producer.send("orders", b"x")
        producer.send("orders", b"x")
        ((old, _),) = mq._sockets._idle.popitem()[1]
        mq._sockets._idle[old.address] = deque([(old, time.monotonic() - 61)])
        assert producer.send("orders", b"x").is_durable
        assert (old.is_open, opened(mq)) == (False, 1)


def test_what_the_loop_has_to_do_goes_over_the_loop(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sync.connect(broker.url) as mq:
        options = ProducerOptions(latency_aware=True)
        with mq.producer() as producer, mq.producer("aware", options=options) as aware:
            producer.send("orders", b"x")
            aware.send("orders", b"x")
            seen = loop_calls(mq, monkeypatch)
            producer.send("orders", b"x", delay=60.0)
            aware.send("orders", b"x")
            producer.send("others", b"x")  # a topic whose route is not known
            assert seen == ["deliver"] * 3
        with pytest.raises(roquet.UsageError, match="not started"):
            producer.send("orders", b"x")
    with pytest.raises(roquet.UsageError, match="closed"):
        producer.send("orders", b"x")


def test_a_forked_process_is_told_that_it_needs_a_client_of_its_own(broker: Broker) -> None:
    with sync.connect(broker.url) as mq, mq.producer() as producer:
        for _ in range(2):
            producer.send("orders", b"x")
        child = os.fork()
        if child == 0:  # pragma: no cover (another process)
            with contextlib.suppress(BaseException):
                try:
                    producer.send("orders", b"not from here")
                except roquet.UsageError as error:
                    mq._loop.close()
                    os._exit(7 if "made before a fork" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert producer.send("orders", b"x").queue_offset == 2
