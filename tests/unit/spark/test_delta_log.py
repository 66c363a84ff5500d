"""The reader of Delta's log that judges a table after kills: what it sees, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tools.spark_kills import delta_log

if TYPE_CHECKING:
    from pathlib import Path


def commit(table: Path, number: int, *actions: dict[str, Any]) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{number:020}.json").write_text("\n".join(json.dumps(it) for it in actions))


def add(table: Path, name: str, ids: list[int], *, current: bool = True) -> dict[str, Any]:
    path = table / "col-b=1" / name
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"col-i": ids, "col-c": [current] * len(ids)}), path)
    return {"add": {"path": f"col-b=1/{name}", "partitionValues": {"col-b": "1"}}}


def columns() -> dict[str, Any]:
    named = {"id": "col-i", "_current": "col-c", "_bucket": "col-b"}
    fields = [{"name": it, "metadata": {delta_log.MAPPED: named[it]}} for it in named]
    return {"metaData": {"schemaString": json.dumps({"fields": fields})}}


def test_rows_are_those_of_files_that_no_later_version_removes(tmp_path: Path) -> None:
    commit(tmp_path, 0, {"protocol": {}}, columns(), add(tmp_path, "a b.parquet", [1, 2]))
    gone = {"remove": {"path": "col-b=1/a b.parquet"}}
    commit(tmp_path, 1, gone, add(tmp_path, "c.parquet", [2]))
    commit(tmp_path, 2, add(tmp_path, "d.parquet", [3], current=False))
    assert len(delta_log.versions(tmp_path)) == 3
    assert [it["id"] for it in delta_log.rows(tmp_path)] == [2, 3]
    assert delta_log.current(tmp_path) == [{"id": 2, "_current": True, "_bucket": "1"}]


def test_a_log_that_is_not_whole_or_not_known_is_refused(tmp_path: Path) -> None:
    def wrong(why: str, *actions: dict[str, Any], number: int = 1) -> None:
        commit(tmp_path, 0, columns(), add(tmp_path, "a.parquet", [1]))
        commit(tmp_path, number, *actions)
        with pytest.raises(delta_log.LogError, match=why):
            delta_log.rows(tmp_path)
        (tmp_path / "_delta_log" / f"{number:020}.json").unlink()

    with pytest.raises(delta_log.LogError, match="has no version"):
        delta_log.rows(tmp_path)
    wrong("version 1 is missing", number=2)
    wrong("which is not there", {"remove": {"path": "col-b=1/b.parquet"}})
    wrong("is in the log, and no file", {"add": {"path": "x", "partitionValues": {}}})
    wrong("vectors of deletions", {"add": {"path": "x", "deletionVector": {"a": 1}}})
    wrong("the action other", {"other": {}})
