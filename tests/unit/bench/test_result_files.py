"""Results of benchmarks say where, when and how they were measured."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from bench import result_files

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_result_is_kept_with_the_load_before_and_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = iter([(1.5, 0.0, 0.0), (7.25, 0.0, 0.0)])
    monkeypatch.setattr(result_files, "FOLDER", tmp_path)
    monkeypatch.setattr(result_files, "commit", lambda: "abc-dirty")
    monkeypatch.setattr("os.getloadavg", lambda: next(loads))
    monkeypatch.setattr(sys, "argv", ["run.py", "--secs", "2"])
    about = result_files.circumstances("revive", "bench.features.revive")
    target = result_files.save({**about, "rows": [1, 2]})
    assert target.name.startswith("revive-2")
    assert target.name.endswith("-abc-dirty.json")
    found = json.loads(target.read_text())
    assert (found["kind"], found["command"]) == (
        "revive",
        "python -m bench.features.revive --secs 2",
    )
    assert (found["load_average"], found["load_average_after"]) == (1.5, 7.25)
    assert found["rows"] == [1, 2]
