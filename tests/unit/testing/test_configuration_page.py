"""The page of settings says what the source declares."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def test_the_page_of_settings_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.pages.configuration", "--check"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = (REPOSITORY / "docs/reference/configuration.md").read_text()
    assert "| `flushDiskType` | `ASYNC_FLUSH` | `ASYNC_FLUSH`, `SYNC_FLUSH` |" in page
    assert "| `scanNotActiveBrokerInterval` | `10000` |" in page


def test_the_page_of_commands_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.pages.commands", "--check"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, "python -m tools.pages.commands writes it"
    page = (REPOSITORY / "docs/reference/commands.md").read_text()
    assert "## `roquet dlq resend`" in page
