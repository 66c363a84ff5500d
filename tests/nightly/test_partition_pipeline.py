"""The log of a dead broker on a host without a network: nobody can be asked there."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hosts_harness import ip
from roquet import roquet_native as native

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).parents[1] / "partition_jobs.py"


@pytest.fixture
def lonely() -> Iterator[str]:
    """Make a network namespace with nothing but its loopback."""
    space = f"rq{secrets.token_hex(3)}"
    ip("netns", "add", space)
    try:
        ip("-n", space, "link", "set", "lo", "up")
        yield space
    finally:
        ip("netns", "del", space)


@pytest.mark.timeout(900)
def test_a_log_is_read_rebuilt_and_audited_where_nobody_can_be_asked(
    lonely: str, tmp_path: Path
) -> None:
    store = native.Store.open(
        {"storePathRootDir": str(tmp_path / "whole"), "mappedFileSizeCommitLog": 1 << 20}
    )
    store.start()
    for number in range(500):
        store.put(f"T{number % 2}", 0, f"{number}".encode() * 20, b"KEYS\x01k\x02")
    store.close()
    (tmp_path / "dead").mkdir()
    shutil.move(tmp_path / "whole/commitlog", tmp_path / "dead/commitlog")
    routes = subprocess.run(
        ["ip", "-n", lonely, "route"], capture_output=True, text=True, check=True
    )
    assert not routes.stdout
    with (tmp_path / "said").open("wb") as said:
        done = subprocess.run(
            ["ip", "netns", "exec", lonely, sys.executable, str(SCRIPT), str(tmp_path)],
            stdout=said,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=840,
        )
    text = (tmp_path / "said").read_text()
    assert done.returncode == 0, text[-3000:]
    assert "500 records" in text
    assert "everything was readable" in text
    assert "no difference" in text
    assert sorted(path.name for path in (tmp_path / "new/consumequeue").iterdir()) == ["T0", "T1"]
