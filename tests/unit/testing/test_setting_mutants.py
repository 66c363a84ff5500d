"""A setting that is ignored keeps its default, also in processes that a test starts."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tools.mutants.ignored_setting import environment

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ASK = """
from roquet.broker.config import load_config
config, _ = load_config(None, {}, {"regionId": "North", "brokerName": "b", "traceOn": False})
print(config.send.region, config.identity.name, config.send.trace_on)
"""


def said(key: str, home: Path) -> str:
    env = environment(key, str(home))
    run = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, check=True)
    return run.stdout.decode().strip()


def test_ignored_setting_keeps_its_default_in_a_process_of_its_own(tmp_path: Path) -> None:
    assert said("", tmp_path) == "North b False"
    assert said("regionId", tmp_path) == "DefaultRegion b False"
    assert said("traceOn", tmp_path) == "North b True"


def test_failures_that_are_wanted_stay_out_of_the_report_of_the_run_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", f"--junitxml={tmp_path / 'report.xml'}")
    assert "PYTEST_ADDOPTS" not in environment("regionId", str(tmp_path))
