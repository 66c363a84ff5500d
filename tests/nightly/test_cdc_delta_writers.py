"""Tables of `cdc` in Delta that others write to and alter, read back without Spark or Delta."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.spark
SCRIPT = Path(__file__).parents[1] / "cdc_delta_writers.py"
Row = dict[str, Any]


def rows(table: Path) -> list[Row]:
    """Return the rows of a table by its log alone, which has no checkpoint yet."""
    files: dict[str, Row] = {}
    named: dict[str, str] = {}
    for log in sorted((table / "_delta_log").glob("*.json")):
        for line in log.read_text().splitlines():
            found = json.loads(line)
            if "metaData" in found:
                fields = json.loads(found["metaData"]["schemaString"])["fields"]
                named = {
                    it["metadata"]["delta.columnMapping.physicalName"]: it["name"] for it in fields
                }
            if "remove" in found:
                del files[found["remove"]["path"]]
            if "add" in found:
                assert "deletionVector" not in found["add"]
                files[found["add"]["path"]] = found["add"]
    made = [it for path in files for it in pq.read_table(table / unquote(path)).to_pylist()]
    return [{named[key]: it for key, it in row.items() if key in named} for row in made]


def current(table: Path) -> dict[int, Row]:
    found = [it for it in rows(table) if it["_current"]]
    assert len({it["id"] for it in found}) == len(found)
    return {it["id"]: it for it in found}


@pytest.mark.timeout(3600)
def test_delta_table_is_right_with_writers_that_conflict_and_strangers_that_alter_it(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    made = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"step"')]
    found = {it["step"]: it for it in made}
    # Both began from one version, so that one of them was overtaken; two micro-batches each.
    assert sum(found["conflict"]["begun"].values()) > 4
    whole = rows(tmp_path / "conflict")
    assert sorted((it["id"], it["_topic"]) for it in whole) == [
        (key, topic) for key in range(4) for topic in "AB"
    ]
    wanted: dict[int, str | None] = {}
    for offset in range(16):
        topic, first = "AB"[offset % 2], offset % 2
        number = range(first, 16, 2)[offset // 2]
        wanted[offset // 2 % 4] = None if number % 7 == 0 else f"{topic}{number}"
    held = {key: it["name"] for key, it in current(tmp_path / "conflict").items()}
    assert held == {key: it for key, it in wanted.items() if it is not None}
    for case in ("added", "widened"):
        assert found[case]["lines"] == []
        table = current(tmp_path / f"{case} {{y}}")
        assert {key: it["name"] for key, it in table.items()} == {0: "old0", 1: "new6"}
        assert {key: it["n"] for key, it in table.items()} == {0: 0, 1: 6}
        assert {it.get("more") for it in table.values()} == {None}
    for case in ("renamed", "dropped"):
        assert len(found[case]["lines"]) == 2
        for line in found[case]["lines"]:
            assert "has no name string any more: columns were renamed or dropped" in line
        # Nothing was written since.
        held = {key: it["n"] for key, it in current(tmp_path / f"{case} {{y}}").items()}
        assert held == {0: 0, 1: 1}
