"""The jobs on a Delta lake, in processes of their own: a session has Delta or has not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tools.spark_kills.world import SHORT_LIVED, world

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.spark
SCRIPT = Path(__file__).parents[1] / "delta_jobs.py"
ROWS = 600
BATCHES = 3


def told(folder: Path, command: Sequence[str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
        cwd=folder,
        env={**os.environ, **SHORT_LIVED, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout.splitlines()


def pipeline(folder: Path, job: str, *words: str) -> list[str]:
    run = ["-m", "roquet", "pipeline", "run", "--master", "local[2]"]
    return told(folder, [*run, "--conf", "spark.ui.enabled=false", job, *words])


@pytest.mark.timeout(7000)
def test_delta_is_archived_once_compacted_removed_and_counted(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with world(tmp_path) as it:
        it.fill(ROWS)
        source = ["--nameServers", it.names, "--subscribe", "Source"]
        limit = ["--maxOffsetsPerTrigger", str(ROWS // BATCHES)]
        given = ["--out", str(lake), "--format", "delta", "--check"]
        said = pipeline(tmp_path, "archive", *given, *source, *limit)
        assert said[-2:] == [
            f"{ROWS} messages archived in {BATCHES} micro-batches",
            "no difference",
        ]
        read = ["--lake", str(lake), "--format", "delta"]
        said = pipeline(tmp_path, "replay", *read, "--dry-run")
        assert said[-1] == f"{ROWS} messages would be sent"
        steps = told(tmp_path, [str(SCRIPT), str(lake), it.names])
    # Delta itself says something about each VACUUM.
    made = [json.loads(line) for line in steps if line.startswith("{")]
    found = {it["step"]: it for it in made}
    whole = {"rows": ROWS, "offsets": ROWS}
    begun = found["begun"]
    assert {name: begun[name] for name in whole} == whole
    assert begun["files"] >= BATCHES
    # Nothing is in the table that was there before, under another query.
    assert "is in the lake up to offset" in found["other notes"]["lines"][0]
    assert {name: found["other notes"][name] for name in ("rows", "files")} == {
        name: begun[name] for name in ("rows", "files")
    }
    # A kill behind the catalog, and one between Delta's transaction and the catalog.
    for step in ("without Spark's note", "without the catalog's and Spark's note"):
        assert found[step]["lines"][-1] == "no difference", step
        assert found[step] == {**begun, "step": step, "lines": found[step]["lines"]}
        assert found[step]["lines"][0].endswith(" messages archived in 1 micro-batches") == (
            "catalog" in step
        ), found[step]
    compacted = found["compacted"]
    assert compacted["lines"] == ["compacted by Delta", "no difference"]
    assert {name: compacted[name] for name in whole} == whole
    assert compacted["files"] == 1
    assert found["nothing is old"]["lines"][0].startswith("0 parts of days before ")
    assert found["nothing is old"]["rows"] == ROWS
    # Delta keeps what its table no longer has until VACUUM finds it older than its own limit.
    assert found["nothing is old"]["kept"] == 1
    removed = found["three days later"]
    assert removed["lines"][0].startswith(f"{BATCHES} parts of days before ")
    assert removed["lines"][-1] == "no difference"
    assert (removed["rows"], removed["files"], removed["kept"]) == (0, 0, 0)
    again = found["archived again"]["lines"]
    assert again == ["0 messages archived in 0 micro-batches", "no difference"]
