"""Log lines stay lines, and do not flood."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING

import pytest

from roquet.base import limits, log

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)


def test_text_cannot_start_a_line(root: logging.Logger) -> None:
    out = io.StringIO()
    log.configure("debug", stream=out)
    root.debug("topic %s", "a\r\n2026 ERROR fake\x1b[31m")
    assert out.getvalue().count("\n") == 1
    assert "\\r\\n2026" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_json_lines(root: logging.Logger) -> None:
    out = io.StringIO()
    log.configure(style="json", stream=out)
    root.error("failed\n%s", "x", exc_info=ValueError("bad"))
    line = json.loads(out.getvalue())
    assert line["message"] == "failed\nx"
    assert "ValueError: bad" in line["exception"]


def test_safe_text() -> None:
    assert limits.safe("plain é") == "plain é"
    assert limits.safe("a\nb") == "a\\nb"
    assert len(limits.safe("x" * 1000)) == 301
