"""A raw client with accounts of few rights tries every request code against a real broker."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tools.attack import matrix
from tools.attack.__main__ import SECRETS, run, settings

from roquet.base.config import settings as declared
from roquet.broker.config import BrokerConfig
from roquet.protocol.codes import RequestCode

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_matrix_has_every_request_code_once() -> None:
    assert sorted(matrix.CODES) == sorted(RequestCode)


def test_attackers_get_and_change_nothing_by_any_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert set(SECRETS) == {about.java for _, about, _ in declared(BrokerConfig) if about.secret}
    assert asyncio.run(run(settings(tmp_path))) == []
    assert not [value for value in SECRETS.values() if value in caplog.text]
