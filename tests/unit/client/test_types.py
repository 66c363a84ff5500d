"""Every public name of the client has a type that all type checkers agree on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import roquet
from roquet import client

ROOT = Path(__file__).parents[3]


def test_every_public_name_is_at_top_level_with_its_type() -> None:
    for name in set(client.__all__) - {"Encoded"}:
        assert getattr(roquet, name) is getattr(client, name)
    stub = (ROOT / "src/roquet/__init__.pyi").read_text()
    lines = {f"from roquet.client import {name} as {name}" for name in vars(roquet)["_NAMES"]}
    assert lines | {"from roquet import sync as sync"} == {
        line for line in stub.splitlines() if line.startswith("from")
    }


@pytest.mark.timeout(300)
def test_types_of_public_names_are_complete(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, "--verifytypes", "roquet.client", "--ignoreexternal", "--outputjson"],
        cwd=tmp_path,  # the project's own settings are for its sources
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    assert found["exportedSymbolCounts"]["withKnownType"] > 50
    wrong = [
        (it["name"], [one["message"] for one in it["diagnostics"]])
        for it in found["symbols"]
        if it["isTypeAmbiguous"] or not it["isTypeKnown"]
    ]
    assert wrong == []
    assert found["completenessScore"] == 1
