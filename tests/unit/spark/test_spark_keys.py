"""Unique keys of a plan: which run, partition and row a task's keys stand for."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from pyspark import TaskContext

from roquet import _native as native
from roquet.base.errors import UsageError
from roquet.spark.sink import keys

if TYPE_CHECKING:
    from roquet.spark.options import SinkOptions

QUERY = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}


def options(*, plan_keys: bool = True, run_id: str | None = None) -> SinkOptions:
    return cast("SinkOptions", SimpleNamespace(plan_keys=plan_keys, run_id=run_id))


def within(monkeypatch: pytest.MonkeyPatch, local: dict[str, str] | None) -> None:
    """Be in partition 3 of a task with these local properties, or in no task."""
    context = None
    if local is not None:
        context = SimpleNamespace(getLocalProperty=local.get, partitionId=lambda: 3)
    monkeypatch.setattr(TaskContext, "get", lambda: context)


def key(run: str, partition: int, row: int) -> str:
    return hashlib.sha256(f"{run}/{partition}/{row}".encode()).hexdigest()[:32].upper()


def test_keys_depend_on_run_partition_and_row() -> None:
    made = [native.sink_key(keys.prefix("run", 3), row) for row in (0, 1, 0, 12345678901)]
    assert made == [key("run", 3, row) for row in (0, 1, 0, 12345678901)]
    assert made[1] not in {key("run", 4, 1), key("other", 3, 1)}


@pytest.mark.parametrize(
    ("run", "run_id", "local", "place"),
    [
        ("r", None, {}, "r"),
        ("r", "mine", QUERY, "r"),
        (None, None, QUERY, "q/7"),
        (None, "mine", QUERY, "mine/7"),
        (None, None, {"sql.streaming.queryId": "q"}, ""),
        (None, None, {"streaming.sql.batchId": "7"}, ""),
        (None, "mine", {}, ""),
    ],
)
def test_place_of_a_task_is_its_run_or_its_query_and_micro_batch(
    monkeypatch: pytest.MonkeyPatch,
    run: str | None,
    run_id: str | None,
    local: dict[str, str],
    place: str,
) -> None:
    within(monkeypatch, local)
    assert keys.place_of_task(options(run_id=run_id), run) == (place, 3)
    if place:
        prefix = keys.of_task(options(run_id=run_id), run)
        assert prefix is not None
        assert native.sink_key(prefix, 5) == key(place, 3, 5)
        epoch = (place, 0) if run is not None else (place.removesuffix("/7"), 7)
        assert keys.epoch_of_task(options(run_id=run_id), run) == epoch
    else:
        for judged in (keys.of_task, keys.epoch_of_task):
            with pytest.raises(UsageError, match="which micro-batch"):
                judged(options(run_id=run_id), run)


def test_outside_of_a_task_there_is_a_place_but_there_are_no_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    within(monkeypatch, None)
    assert keys.place_of_task(options(), "r") == ("r", 0)
    assert keys.place_of_task(options(), None) == ("", 0)
    assert keys.epoch_of_task(options(), "r") == ("r", 0)
    with pytest.raises(UsageError, match="which micro-batch"):
        keys.epoch_of_task(options(), None)
    with pytest.raises(UsageError, match="no Spark task"):
        keys.of_task(options(), "r")


def test_client_makes_the_keys_unless_the_plan_does(monkeypatch: pytest.MonkeyPatch) -> None:
    within(monkeypatch, None)
    assert keys.of_task(options(plan_keys=False), "r") is None
