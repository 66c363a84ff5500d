"""The jobs on a Delta lake, as commands of their own: a session has Delta or has not."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from spark_kills import world

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
ROWS = 600


def pipeline(folder: Path, job: str, *words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "roquet", "pipeline", "run", "--master", "local[2]", job, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
        cwd=folder,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout.splitlines()


@pytest.mark.timeout(3600)
def test_delta_is_archived_compacted_checked_and_counted(tmp_path: Path) -> None:
    lake = ["--out", str(tmp_path / "lake"), "--format", "delta", "--check"]
    with world(tmp_path) as it:
        it.fill(ROWS)
        source = ["--nameServers", it.names, "--subscribe", "Source"]
        limit = ["--maxOffsetsPerTrigger", str(ROWS // 3)]
        said = pipeline(tmp_path, "archive", *lake, *source, *limit)
        assert said[-2:] == [f"{ROWS} messages archived in 3 micro-batches", "no difference"]
        said = pipeline(tmp_path, "archive", *lake, *source, "--compact", "--retain-days", "400")
    assert said[-4] == "0 messages archived in 0 micro-batches"
    assert said[-2:] == ["compacted by Delta", "no difference"]
    read = ["--lake", str(tmp_path / "lake"), "--format", "delta"]
    said = pipeline(tmp_path, "replay", *read, "--dry-run")
    assert said[-1] == f"{ROWS} messages would be sent"
