"""Log files and JSON lines."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING

import pytest

from roquet.base import log as logs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_log_file_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "broker.log"
    logs.configure(file=logs.LogFile(path, bytes_max=2_000, kept=2))
    log = logging.getLogger("test")
    for number in range(100):
        log.warning("line %d of many that fill a file", number)
    names = sorted(found.name for found in path.parent.iterdir())
    assert names == ["broker.log", "broker.log.1", "broker.log.2"]
    assert all(found.stat().st_size <= 2_000 for found in path.parent.iterdir())
    assert "line 99 of many" in path.read_text()


def test_json_lines() -> None:
    stream = io.StringIO()
    logs.configure(style="json", stream=stream)
    logging.getLogger("roquet.x").warning("two\nlines of %s", "a peer")
    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    assert (found["level"], found["logger"]) == ("WARNING", "roquet.x")
    assert found["message"] == "two\nlines of a peer"
