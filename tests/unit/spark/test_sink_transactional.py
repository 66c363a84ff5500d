"""A transactional write: driver and tasks as Spark calls them, over a real broker."""

from __future__ import annotations

import re
import time
import types
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from roquet.base.errors import OutcomeUnknown, Refused, UsageError
from roquet.client import TransactionProducer
from roquet.protocol.codes import ResponseCode
from roquet.spark.options import SinkOptions
from roquet.spark.sink import keys
from roquet.spark.sink.decisions import Decision, Decisions
from roquet.spark.sink.release import roll_back
from roquet.spark.sink.write import BatchWriter
from sink_harness import ROWS, SCHEMA, Query, bodies, finished, interrupted, wanted
from spark_harness import Running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUEUES = 3


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    # Brokers ask about what is open all the time: answers must change nothing.
    often = {"transactionTimeOut": "200", "transactionCheckInterval": "300"}
    found = Running(tmp_path_factory.mktemp("cluster"), **often)
    found.start()
    yield found
    found.stop()


@pytest.fixture
def topic(running: Running, request: pytest.FixtureRequest) -> str:
    chosen = re.sub(r"[^\w-]", "-", request.node.name)
    name: str = chosen[-60:]
    running.create_topic(name, QUEUES)
    return name


def test_transactional_rows_are_seen_after_the_commit_and_in_order(
    running: Running, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(running.name_servers, topic, tmp_path, monkeypatch)
    parts = [query.task(0, partition) for partition in range(2)]
    assert [it.rows for it in parts] == [ROWS, ROWS]
    time.sleep(1.0)
    assert bodies(running.name_servers, topic) == []
    query.writer.commit(parts, 0)
    found = bodies(running.name_servers, topic)
    assert sorted(found) == wanted((0, 0), (0, 1))
    for partition in range(2):
        mine = [it for it in found if it.startswith(f"0/{partition}/")]
        assert mine == sorted(mine), "a task's rows of one queue came in another order"
    query.writer.commit([query.task(1)], 1)
    time.sleep(1.5)
    assert sorted(bodies(running.name_servers, topic)) == wanted((0, 0), (0, 1), (1, 0))


def test_transactional_write_that_is_aborted_is_never_seen(
    running: Running, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(running.name_servers, topic, tmp_path, monkeypatch)
    query.writer.abort([query.task(0), None], 0)
    query.writer.commit([query.task(0)], 0)
    time.sleep(1.5)
    assert sorted(bodies(running.name_servers, topic)) == wanted((0, 0))


@pytest.mark.parametrize("ends", [0, 17])
def test_transactional_commit_that_failed_and_is_aborted_is_finished_by_the_next_run(
    running: Running, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: int
) -> None:
    query = Query(running.name_servers, topic, tmp_path, monkeypatch)
    part, other = query.task(0), query.task(0)
    real, done = TransactionProducer.end, 0

    async def refused_after_some(self: TransactionProducer, *given: Any) -> None:
        nonlocal done
        done += 1
        if done > ends:
            raise Refused(ResponseCode.NO_PERMISSION, "not now")
        await real(self, *given)

    with monkeypatch.context() as context:
        context.setattr(TransactionProducer, "end", refused_after_some)
        with pytest.raises(Refused):
            query.writer.commit([part], 0)
    # Spark calls this when a commit has failed; what was decided is not to be taken back.
    query.writer.abort([part, other, None], 0)
    finished(running.name_servers, topic, tmp_path, monkeypatch, 0)
    time.sleep(1.5)
    assert sorted(bodies(running.name_servers, topic)) == wanted((0, 0))


def test_transactional_row_whose_half_message_is_gone_is_written_by_the_next_run(
    running: Running, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(running.name_servers, topic, tmp_path, monkeypatch)
    part = query.task(0)
    # As when the broker has put them aside, since nobody decided in all of its checks: it answers
    # an end of what is not open with a success.
    lost = part.halves[3:9]
    roll_back(query.writer._options, lost)
    with pytest.raises(UsageError, match=r"6 of 40 rows of epoch 0 are not there"):
        query.writer.commit([part], 0)
    query.writer.abort([part], 0)
    assert len(bodies(running.name_servers, topic)) == ROWS - 6
    finished(running.name_servers, topic, tmp_path, monkeypatch, 0)
    finished(running.name_servers, topic, tmp_path, monkeypatch, 0)
    time.sleep(1.5)
    assert sorted(bodies(running.name_servers, topic)) == wanted((0, 0))


def test_transactional_epoch_without_rows_is_finished_by_the_next_run(
    running: Running, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = Decisions(str(tmp_path / "roquet-sink"), None)
    decisions.put(0, Decision((), {}))
    Query(running.name_servers, topic, tmp_path, monkeypatch).writer.commit([], 0)
    found = decisions.get(0)
    assert found is not None
    assert found.done


def test_transactional_tasks_that_nobody_committed_leave_nothing(
    running: Running, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A speculative or failed try, and a driver that was killed behind its tasks.
    Query(running.name_servers, topic, tmp_path, monkeypatch).task(0)
    again = Query(running.name_servers, topic, tmp_path, monkeypatch)
    again.task(0)
    again.writer.commit([again.task(0)], 0)
    time.sleep(1.5)
    assert sorted(bodies(running.name_servers, topic)) == wanted((0, 0))


@pytest.mark.parametrize("ends", [0, 17])
@pytest.mark.parametrize("executed", [False, True])
def test_transactional_commit_that_was_interrupted_is_finished_by_the_next_run(
    running: Running,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: int,
    *,
    executed: bool,
) -> None:
    before = bodies(running.name_servers, topic)
    epoch = 10 * ends + executed
    seen = interrupted(running.name_servers, topic, tmp_path, monkeypatch, epoch, ends, executed)
    assert ends <= seen <= ends + QUEUES
    assert finished(running.name_servers, topic, tmp_path, monkeypatch, epoch) == ROWS - seen
    # Spark had not noted that it was committed.
    last = Query(running.name_servers, topic, tmp_path, monkeypatch)
    last.writer.commit([last.task(epoch)], epoch)
    time.sleep(1.0)
    assert sorted(bodies(running.name_servers, topic)) == sorted([*before, *wanted((epoch, 0))])


def test_transactional_commit_whose_answers_are_lost_makes_no_row_twice(
    running: Running, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(running.name_servers, topic, tmp_path, monkeypatch)
    part = query.task(0)
    real, calls = TransactionProducer.end, 0

    async def end(self: TransactionProducer, *given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % 9 != 4:
            await real(self, *given)
        if calls % 9 in {4, 8}:
            raise OutcomeUnknown("the answer is lost")

    monkeypatch.setattr(TransactionProducer, "end", end)
    query.writer.commit([part], 0)
    assert sorted(bodies(running.name_servers, topic)) == wanted((0, 0))
    assert calls > ROWS


def test_transactional_batch_of_a_run_is_written_once(
    running: Running, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = types.SimpleNamespace(partitionId=lambda: 0, getLocalProperty=lambda _: None)
    monkeypatch.setattr(keys, "TaskContext", types.SimpleNamespace(get=lambda: task))
    given = {"nameServers": running.name_servers, "topic": topic, "delivery": "transactional"}
    with pytest.raises(UsageError, match="a batch needs runId and transactionPath"):
        BatchWriter(SinkOptions.parse(given), SCHEMA, overwrite=False)
    given |= {"transactionPath": str(tmp_path), "timeoutMs": "500"}
    rows = pa.RecordBatch.from_pydict({"body": ["a", "b"]})
    for run in ("one", "one", "two"):
        options = SinkOptions.parse({**given, "runId": run})
        writer = BatchWriter(options, SCHEMA, overwrite=False)
        writer.commit([writer.write(iter([rows]))])
    assert sorted(bodies(running.name_servers, topic)) == ["a", "a", "b", "b"]


@pytest.mark.parametrize("name", ["uniqKey", "delay"])
def test_transactional_columns_that_cannot_be_are_refused(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    query = Query(running.name_servers, "any", tmp_path, monkeypatch)
    task = types.SimpleNamespace(partitionId=lambda: 0, getLocalProperty=lambda _: "1")
    monkeypatch.setattr(keys, "TaskContext", types.SimpleNamespace(get=lambda: task))
    rows = pa.RecordBatch.from_pydict({"body": ["a"], name: ["1"] if name == "uniqKey" else [1]})
    with pytest.raises(UsageError, match=f"no column '{name}'"):
        query.writer.write(iter([rows]))


def test_transactional_decision_that_is_damaged_releases_nothing(
    running: Running, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(running.name_servers, topic, tmp_path, monkeypatch)
    kept = tmp_path / "roquet-sink" / "epoch-0.json"
    kept.parent.mkdir()
    kept.write_text('{"v":1,"halves":')
    with pytest.raises(UsageError, match="is damaged"):
        query.writer.commit([query.task(0)], 0)
    assert bodies(running.name_servers, topic) == []
