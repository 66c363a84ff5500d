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


ASK_TLS = """
import sys
from roquet.broker.config import load_config
config, _ = load_config(None, {}, {"tls.config.file": sys.argv[1]})
print(config.tls.mode)
"""


def said(key: str, home: Path, ask: str = ASK, *more: str) -> str:
    env = environment(key, str(home))
    command = [sys.executable, "-c", ask, *more]
    run = subprocess.run(command, env=env, capture_output=True, check=True)
    return run.stdout.decode().strip()


def test_ignored_setting_keeps_its_default_in_a_process_of_its_own(tmp_path: Path) -> None:
    assert said("", tmp_path) == "North b False"
    assert said("regionId", tmp_path) == "DefaultRegion b False"
    assert said("traceOn", tmp_path) == "North b True"


def test_ignored_file_of_tls_settings_is_not_read_though_that_is_before_the_others(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.mode=disabled\n")
    assert said("", tmp_path, ASK_TLS, str(file)) == "disabled"
    assert said("tls.config.file", tmp_path, ASK_TLS, str(file)) == "permissive"


def test_failures_that_are_wanted_stay_out_of_the_report_of_the_run_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", f"--junitxml={tmp_path / 'report.xml'}")
    assert "PYTEST_ADDOPTS" not in environment("regionId", str(tmp_path))
