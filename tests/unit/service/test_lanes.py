"""Lanes, tasks, limited logs, health and metrics."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import UsageError
from roquet.service.background import Tasks
from roquet.service.http.health import Health, HealthEndpoint
from roquet.service.lanes import OVERLOAD, LaneConfig, Lanes
from roquet.service.loop_lag import LoopLag, RunDelay
from roquet.service.metrics import Metrics
from roquet.service.process.runtime import run
from roquet.service.ratelog import KEYS_MAX, RateLog, one_line
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence


class Work:
    def __init__(self, clock: FakeClock, name: str, log: list[str]) -> None:
        self.received_ms = clock.now_ms()
        self.gate = asyncio.Event()
        self.refused: str | None = None
        self.name, self._log = name, log

    async def run(self) -> None:
        self._log.append(f"+{self.name}")
        await self.gate.wait()
        self._log.append(f"-{self.name}")

    def refuse(self, remark: str) -> None:
        self.refused = remark


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("set_by_s", [3600, -3600])
def test_lane_when_the_wall_clock_jumps_refuses_those_that_waited_and_no_others(
    set_by_s: int,
) -> None:
    async def main() -> None:
        clock, log = FakeClock(), list[str]()
        lanes = Lanes([LaneConfig("send", concurrency=1, queue_max=9)], clock)
        lane, jobs = lanes["send"], [Work(clock, str(n), log) for n in range(2)]
        for job in jobs:
            lane.submit(job)
        await settle()
        clock.set_by(set_by_s)
        assert lane.head_age_ms() == 0
        assert lane.refuse_older(200) == 0
        await clock.advance(0.3)
        assert lane.refuse_older(200) == 1
        assert "period in queue: 300ms" in (jobs[1].refused or "")
        await lanes.stop()

    asyncio.run(main())


@pytest.mark.parametrize("set_by_s", [3600, -3600])
def test_rate_of_a_log_when_the_wall_clock_jumps_is_kept(
    set_by_s: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        clock = FakeClock()
        limited = RateLog(logging.getLogger("roquet.test"), clock, every_s=10)
        limited.warning("key", "first")
        clock.set_by(set_by_s)
        limited.warning("key", "too soon")
        await clock.advance(10)
        limited.warning("key", "second")

    asyncio.run(main())
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == ["first", "second"]


def test_a_lane_runs_so_many_queues_so_many_and_refuses_the_rest() -> None:
    async def main() -> None:
        clock, log = FakeClock(), list[str]()
        lanes = Lanes([LaneConfig("send", concurrency=2, queue_max=1)], clock)
        jobs = [Work(clock, str(n), log) for n in range(4)]
        for job in jobs:
            lanes["send"].submit(job)
        await settle()
        lane = lanes["send"]
        assert (log, lane.running, lane.waiting, lane.refused) == (["+0", "+1"], 2, 1, 1)
        assert jobs[3].refused == OVERLOAD
        await clock.advance(0.25)
        assert lane.head_age_ms() == 250
        jobs[1].gate.set()
        await settle()
        assert log == ["+0", "+1", "-1", "+2"]
        assert (lane.running, lane.waiting, lane.head_age_ms()) == (2, 0, 0)
        for job in jobs:
            job.gate.set()
        await settle()
        assert lane.running == 0
        await lanes.stop()

    asyncio.run(main())


def test_what_waited_too_long_is_refused_and_never_run() -> None:
    async def main() -> None:
        clock, log = FakeClock(), list[str]()
        lanes = Lanes([LaneConfig("send", 1, 100, age_max_ms=200), LaneConfig("pull", 1, 9)], clock)
        jobs = [Work(clock, str(n), log) for n in range(3)]
        lanes["send"].submit(jobs[0])
        lanes["send"].submit(jobs[1])
        await clock.advance(0.2)
        lanes["send"].submit(jobs[2])
        await lanes.refuse_old()
        assert lanes["send"].refused == 0, "at its limit, not above it"
        await clock.advance(0.001)
        await lanes.refuse_old()
        assert jobs[1].refused == (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
            "period in queue: 201ms, size of queue: 1"
        )
        # Also when a place gets free before the timer looks.
        await clock.advance(1)
        jobs[0].gate.set()
        await settle()
        assert jobs[2].refused is not None
        assert log == ["+0", "-0"]
        assert not lanes["send"].refuse_head("PCBUSY_CLEAN_QUEUE")
        await lanes.stop()

    asyncio.run(main())


class Group:
    """Runs jobs together, up to one that has to wait."""

    def __init__(self, log: list[str]) -> None:
        self.gate = asyncio.Event()
        self.runs: list[int] = []
        self._log = log

    def run(self, jobs: Iterator[Work]) -> Awaitable[None] | None:
        self.runs.append(0)
        for job in jobs:
            self.runs[-1] += 1
            self._log.append(job.name)
            if job.name == "wait":
                return self._wait()
        return None

    async def _wait(self) -> None:
        await self.gate.wait()

    def ended(self, jobs: Sequence[Work]) -> None:
        self._log.append(f"-{len(jobs)}")


def test_jobs_of_a_kind_are_taken_together_and_one_that_waits_holds_up_nobody() -> None:
    async def main() -> None:
        clock, log = FakeClock(), list[str]()
        lanes = Lanes([LaneConfig("send", concurrency=100, queue_max=1000)], clock)
        lane, group, other = lanes["send"], Group(log), Group(log)
        for name in ("a", "b", "wait", "c"):
            lane.submit_to(group, Work(clock, name, log))
        lane.submit_to(other, Work(clock, "d", log))
        alone = Work(clock, "alone", log)
        alone.gate.set()
        lane.submit(alone)
        lane.submit_to(group, Work(clock, "e", log))
        await settle()
        assert log == ["a", "b", "wait", "c", "-1", "d", "-1", "+alone", "-alone", "e", "-1"]
        assert (lane.running, lane.waiting, group.runs) == (3, 0, [3, 1, 1])
        group.gate.set()
        await settle()
        assert (log[-1], lane.running) == ("-3", 0)
        for _ in range(150):
            lane.submit_to(group, Work(clock, "many", log))
        await settle()
        assert group.runs[3:] == [64, 64, 22], "the loop has its turns"
        await lanes.stop()

    asyncio.run(main())


def test_jobs_taken_together_are_no_more_than_may_run() -> None:
    async def main() -> None:
        clock, log = FakeClock(), list[str]()
        lanes = Lanes([LaneConfig("send", concurrency=2, queue_max=1, age_max_ms=200)], clock)
        lane, group = lanes["send"], Group(log)
        jobs = [Work(clock, name, log) for name in ("a", "wait", "c", "d")]
        for job in jobs:
            lane.submit_to(group, job)
        await settle()
        assert (log, lane.running, lane.waiting) == (["a", "wait"], 2, 1)
        assert jobs[3].refused == OVERLOAD
        await clock.advance(0.201)
        await lanes.refuse_old()
        assert jobs[2].refused is not None
        group.gate.set()
        await settle()
        assert (log, lane.running) == (["a", "wait", "-2"], 0)
        await lanes.stop()

    asyncio.run(main())


def test_stopped_lanes_leave_nothing_running() -> None:
    async def main() -> None:
        clock, log = FakeClock(), list[str]()
        lanes = Lanes([LaneConfig("one", 1, 5)], clock)
        jobs = [Work(clock, str(n), log) for n in range(2)]
        for job in jobs:
            lanes["one"].submit(job)
        await settle()
        await lanes.stop()
        assert lanes["one"].running == 0
        assert jobs[1].refused is not None
        assert log == ["+0"]

    asyncio.run(main())


def test_jobs_that_never_wait_leave_the_loop_its_turns() -> None:
    async def main() -> None:
        clock, log = FakeClock(), list[str]()
        lanes = Lanes([LaneConfig("send", 4, 1000)], clock)
        for n in range(300):
            job = Work(clock, str(n), log)
            job.gate.set()
            lanes["send"].submit(job)
        turns = 0
        while len(log) < 600:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 3
        assert [entry for entry in log if entry[0] == "+"] == [f"+{n}" for n in range(300)]
        await lanes.stop()
        again = Work(clock, "again", log)
        again.gate.set()
        lanes["send"].submit(again)
        await settle()
        assert log[-1] == "-again"
        await lanes.stop()

    asyncio.run(main())


def test_lane_names() -> None:
    clock = FakeClock()
    with pytest.raises(UsageError, match="twice"):
        Lanes([LaneConfig("a", 1, 1), LaneConfig("a", 1, 1)], clock)
    with pytest.raises(UsageError, match="no lane 'b'; there are a"):
        Lanes([LaneConfig("a", 1, 1)], clock)["b"]


def test_failed_tasks_are_logged_and_repeats_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        clock, tasks, runs = FakeClock(), Tasks(), list[int]()

        async def fails() -> None:
            raise OSError("no luck")

        def counts() -> None:
            runs.append(clock.now_ms())
            if len(runs) == 1:
                raise ValueError("first run")

        tasks.spawn(fails(), "unlucky")
        tasks.repeat(counts, clock, name="counting", every_s=10, first_after_s=1)
        await clock.advance(31)
        assert [r - runs[0] for r in runs] == [0, 10_000, 20_000, 30_000]
        await tasks.stop()
        assert len(tasks) == 0

    asyncio.run(main())
    assert "unlucky failed" in caplog.text
    assert "counting failed" in caplog.text


def test_refusal_of_the_system_in_a_task_is_one_line_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        clock, tasks = FakeClock(), Tasks()

        async def fails() -> None:
            raise IsADirectoryError(errno.EISDIR, "Is a directory", "/store/config/topics.json")

        tasks.spawn(fails(), "saving")
        tasks.repeat(fails, clock, name="reviving", every_s=10, first_after_s=1)
        await clock.advance(5)
        await tasks.stop()

    asyncio.run(main())
    why = "failed: [Errno 21] Is a directory: '/store/config/topics.json'"
    assert [it.getMessage() for it in caplog.records] == [f"saving {why}", f"reviving {why}"]
    assert "Traceback" not in caplog.text


def test_rate_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        clock = FakeClock()
        limited = RateLog(logging.getLogger("roquet.test"), clock, every_s=10)
        for _ in range(5):
            limited.warning("a", "bad\r\nthing \x1b[31m")
        limited.warning("b", "other")
        await clock.advance(10)
        limited.warning("a", "bad again")
        for n in range(KEYS_MAX * 2):
            limited.warning(n, "flood")
        assert len(limited._last) == KEYS_MAX

    asyncio.run(main())
    shown = [r.getMessage() for r in caplog.records][:3]
    assert shown == ["bad\\r\\nthing \\x1b[31m", "other", "bad again (4 more like it since)"]
    assert one_line("x" * 1000) == "x" * 300 + "…"


async def fetch(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_health_endpoint() -> None:
    async def main() -> None:
        clock, health, metrics = FakeClock(), Health(["registered", "store"]), Metrics()
        lanes = Lanes([LaneConfig("send", 1, 1)], clock)
        metrics.watch_lanes(lanes)
        metrics.watch_many("sent", "Messages sent", "topic", lambda: {"t": 3.0}, counts=True)
        with pytest.raises(ValueError, match="roquet_sent"):
            metrics.watch("sent", "Something else", lambda: 0.0)
        endpoint = HealthEndpoint(host="127.0.0.1", port=0, health=health, metrics=metrics)
        await endpoint.start()

        async def get(path: str, method: str = "GET") -> bytes:
            return await fetch(
                endpoint.port, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            )

        assert (await get("/livez")).startswith(b"HTTP/1.1 200 OK\r\n")
        not_ready = await get("/readyz")
        assert not_ready.startswith(b"HTTP/1.1 503 ")
        assert not_ready.endswith(b"registered: not yet\nstore: not yet\n")
        health.ready("registered")
        health.ready("store")
        assert (await get("/readyz")).startswith(b"HTTP/1.1 200 ")
        health.not_ready("store", "disk full")
        assert (await get("/readyz?verbose")).endswith(b"store: disk full\n")
        text = await get("/metrics")
        assert b'roquet_sent_total{topic="t"} 3.0' in text
        assert b'roquet_lane_waiting{lane="send"} 0.0' in text
        assert (await get("/other")).startswith(b"HTTP/1.1 404 ")
        assert (await get("/livez", "POST")).startswith(b"HTTP/1.1 405 ")
        assert (await get("/livez", "HEAD")).endswith(b"\r\n\r\n")
        assert (await fetch(endpoint.port, b"nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        assert (await fetch(endpoint.port, b"x" * 8_300)).startswith(b"HTTP/1.1 431 ")
        second = HealthEndpoint(
            host="127.0.0.1", port=endpoint.port, health=health, metrics=metrics
        )
        with pytest.raises(UsageError, match="cannot listen"):
            await second.start()
        await endpoint.stop()

    asyncio.run(main())


def test_time_that_the_host_denied_before_the_loop_began_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RunDelay, "total_ms", lambda _: 1177.0)

    async def tell() -> None:
        lag = LoopLag()
        await lag.start()
        assert lag.denied_ms() == 0
        await lag.stop()

    asyncio.run(tell())


def test_loop_lag_sees_a_blocked_loop() -> None:
    async def main() -> None:
        metrics = Metrics()
        lag = LoopLag(metrics)
        await lag.start()
        await asyncio.sleep(0.03)
        loop = asyncio.get_running_loop()
        until = loop.time() + 0.2
        while loop.time() < until:
            pass
        await asyncio.sleep(0.02)
        assert lag.take_max_ms() + lag.margin_ms >= 180
        assert lag.take_max_ms() < 100
        await lag.stop()
        assert b"roquet_loop_lag_seconds_count" in metrics.render()

    asyncio.run(main())


@pytest.mark.parametrize("prefer_uvloop", [True, False])
def test_signals_stop_in_order(prefer_uvloop: bool) -> None:
    events: list[str] = []

    async def serve(stop: asyncio.Event) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        events.append("stopped")
        return 7

    assert run(serve, prefer_uvloop=prefer_uvloop) == 7
    assert events == ["stopped"]


def test_second_signal_cuts_it_short() -> None:
    async def serve(stop: asyncio.Event) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        await stop.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
        return 0

    assert run(serve) == 1
