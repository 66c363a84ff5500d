"""The systemd units, verified by systemd itself (`make deploy`)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    assert shutil.which("systemd-analyze"), "install systemd: the units are verified by it"
    # The program and the user are those of the machine that the unit is for.
    text = unit.read_text().replace("/opt/roquet/bin/roquet", "/bin/true")
    copy = tmp_path / unit.name.replace("@", "@a")
    copy.write_text(re.sub(r"^(User|Group)=.*\n", "", text, flags=re.MULTILINE))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
