"""Pairs of both makes with timers: what the slave copies, and its timers as a master."""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING

import pytest

from roquet.base.clock import SystemClock
from roquet.base.errors import RoquetError
from roquet.protocol import fastjson
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.store.records import Record, read_records
from roquet.testing.cluster import pull_command, send_command
from roquet.testing.pair import Make, Pair, Side, wait_until

if TYPE_CHECKING:
    from pathlib import Path

CHECK_SIZE = 56


def takes_a_timer(pair: Pair) -> bool:
    with contextlib.suppress(RoquetError):
        later = send_command("Timed", b"later", 0, "TIMER_DELAY_SEC\x013600\x02")
        return pair.call("master", later).code == ResponseCode.SUCCESS
    return False


def check_point(pair: Pair) -> bytes:
    answer = pair.call("master", Command(RequestCode.GET_TIMER_CHECK_POINT))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert len(answer.body) == CHECK_SIZE
    return answer.body


@pytest.mark.timeout(900)
def test_our_slave_has_what_a_java_master_keeps_of_its_timers(tmp_path: Path) -> None:
    with Pair(tmp_path, "java", "ours", random.Random(), {"timerWheelEnable": "true"}) as pair:
        pair.start("master")
        pair.start("slave")
        wait_until("the master takes a timer", lambda: takes_a_timer(pair), 240)
        config = pair.plans["slave"].store / "config"
        check, metrics = config / "timercheck", config / "timermetrics"

        def counted() -> bool:
            if not metrics.exists():
                return False
            counts = fastjson.read_object(metrics.read_bytes()).get("timingCount", {})
            return "Timed" in counts and counts["Timed"]["count"] >= 1

        wait_until("the metrics name the topic", counted, 240)
        # Its first eight bytes are a time: it changes as long as the master runs.
        wait_until("the check point is copied", check.exists, 240)
        found = check.read_bytes()
        assert len(found) == 4096
        assert found[:8] <= check_point(pair)[:8]
        assert any(found[:CHECK_SIZE])
        assert not any(found[CHECK_SIZE:])


def targets(pair: Pair, side: Side) -> list[Record]:
    """Return what a side delivered of its timers."""
    with contextlib.suppress(RoquetError):
        answer = pair.call(side, pull_command("Timed"))
        if answer.code == ResponseCode.SUCCESS:
            return read_records(answer.body)
    return []


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("master", "slave"), [("ours", "java"), ("java", "ours")])
def test_slave_that_becomes_master_delivers_the_timers_of_the_other_make(
    tmp_path: Path, master: Make, slave: Make
) -> None:
    """Each once, and not early; a timer that the old master delivered does not come again."""
    with Pair(tmp_path, master, slave, random.Random(), {"timerWheelEnable": "true"}) as pair:
        pair.start("master")
        pair.start("slave")
        wait_until("the slave follows", lambda: _has_slaves(pair), 240)
        begun_ms = SystemClock().now_ms()
        due = {b"before": begun_ms + 5_000, b"one": begun_ms + 200_000, b"two": begun_ms + 201_000}
        for body, due_ms in due.items():
            send = send_command("Timed", body, 0, f"TIMER_DELIVER_MS\x01{due_ms}\x02")
            assert pair.call("master", send).code == ResponseCode.SUCCESS
        wait_until("the first is delivered", lambda: len(targets(pair, "master")) == 1, 60)
        fired_ms = SystemClock().now_ms()
        check = pair.plans["slave"].store / "config" / "timercheck"

        def has_passed() -> bool:
            found = check.read_bytes()[:8] if check.exists() else b""
            return int.from_bytes(found) > max(fired_ms, due[b"before"] + 1000)

        wait_until("the slave has a checkpoint behind it", has_passed, 240)
        topics = pair.plans["slave"].store / "config" / "topics.json"

        def is_known() -> bool:
            return topics.exists() and b"Timed" in topics.read_bytes()

        # A slave of RocketMQ copies the table of topics once a minute.
        wait_until("the slave knows the topic", is_known, 120)
        pair.catch_up()
        # What the old master delivers just before its end may come again.
        assert len(targets(pair, "master")) == 1
        pair.kill("master")
        pair.stop("slave")
        pair.promote()
        wait_until("the others are delivered", lambda: len(targets(pair, "slave")) >= 3, 240)
        time.sleep(3.0)
        came = targets(pair, "slave")
        assert sorted(record.body for record in came) == sorted(due)
        assert all(record.store_timestamp >= due[record.body] for record in came)


def _has_slaves(pair: Pair) -> bool:
    status = pair.status("master")
    return status is not None and bool(status.slaves)
