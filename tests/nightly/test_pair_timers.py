"""A slave of ours under a Java master with timers: their check point and metrics are copied."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import RoquetError
from roquet.protocol import fastjson
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.testing.cluster import send_command
from roquet.testing.pair import Pair, wait_until

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
