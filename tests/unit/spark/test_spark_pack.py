"""The archive for a cluster: what is in it, that it runs where nothing else is, and its flags."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from roquet.base.errors import UsageError
from roquet.cli import app
from roquet.cli.pipeline.jobs import Cluster
from roquet.spark.pack import ROOTS, pack

ROOT = Path(__file__).parents[3]
NOT_PACKED = {"pyspark", "matplotlib", "shtab"}
"""Spark is the cluster's; plots are made by the driver, and nobody types commands in a task."""


def test_every_dependency_of_a_task_is_packed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    names = {re.split(r"[<>=; ]", text)[0] for text in declared}
    assert names - NOT_PACKED == set(ROOTS)


@pytest.mark.timeout(300)
def test_the_archive_runs_where_only_the_interpreter_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "env.tar.gz"
    assert app.run(["pipeline", "pack", str(target)]) == 0
    assert capsys.readouterr().out.startswith(f"{target}: ")
    unpacked = tmp_path / "environment"
    with tarfile.open(target) as archive:
        names = archive.getnames()
        archive.extractall(unpacked, filter="fully_trusted")
    assert not [name for name in names if "/pyspark/" in name or "__pycache__" in name]
    found_by_spark = {"pyspark_roquet", "pyspark_roquet_log", "pyspark_roquet_meta"}
    assert {name.split("/")[-2] for name in names if "/pyspark_" in name} == found_by_spark
    code = (
        "import json, sys, google.protobuf, pandas, pyarrow, roquet.roquet_native\n"
        "import roquet; print(json.dumps([sys.prefix, roquet.__file__]))"
    )
    done = subprocess.run(
        ["./environment/bin/python", "-c", code],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    prefix, package = json.loads(done.stdout)
    assert prefix == str(unpacked)
    assert package.startswith(f"{unpacked}/lib/python{sys.version_info.major}.")


def test_a_wrong_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has to end with \.tar\.gz"):
        pack(tmp_path / "env.zip")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        (Cluster(settings=("spark.a",)), "must be spark.NAME=VALUE"),
        (Cluster(settings=("hadoop.a=b",)), "must be spark.NAME=VALUE"),
        (Cluster(archive="/nowhere/env.tar.gz"), "there is no such file"),
    ],
)
def test_wrong_settings_of_a_cluster_are_refused(cluster: Cluster, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        cluster.checked()


def test_settings_go_to_spark(tmp_path: Path) -> None:
    archive = tmp_path / "env.tar.gz"
    archive.touch()
    found = Cluster(archive=str(archive), settings=("spark.a=b=c",)).checked()
    assert found == {"spark.a": "b=c", "spark.archives": f"{archive}#environment"}
