"""`roquet doctor` on this machine and on one that is not ready."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

from roquet.cli.app import run

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def looks(
    capsys: pytest.CaptureFixture[str], folder: Path, *lines: str
) -> tuple[int, dict[str, dict[str, str]]]:
    file = folder / "broker.conf"
    file.write_text("\n".join((f"storePathRootDir={folder}/store", *lines)))
    code = run(["doctor", "-c", str(file), "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return code, {row["about"]: row for row in rows}


def test_a_machine_that_is_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    small = ("mappedFileSizeCommitLog=1048576", "bindAddress=127.0.0.1", f"listenPort={port}")
    code, found = looks(capsys, tmp_path, *small)
    assert code == 0
    assert found["port"]["verdict"] == "ok"
    assert found["address for clients"]["verdict"] in ("ok", "warn")
    assert found["name servers"]["helps"].startswith("namesrvAddr=")
    assert found["clock"]["verdict"] == "ok"


def test_what_stands_in_the_way_is_named_with_what_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken, socket.socket() as nobody:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        nobody.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        code, found = looks(
            capsys,
            tmp_path,
            "bindAddress=127.0.0.1",
            f"listenPort={port}",
            f"namesrvAddr=127.0.0.1:{nobody.getsockname()[1]}",
            "brokerIP1=192.0.2.7",
        )
    assert code == 1
    assert found["port"]["verdict"] == "FAIL"
    assert "ss -ltnp" in found["port"]["helps"]
    assert found["address for clients"]["verdict"] == "warn"
    unreachable = [row for about, row in found.items() if about.startswith("name server ")]
    assert [row["verdict"] for row in unreachable] == ["FAIL"]
