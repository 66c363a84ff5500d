"""Chromium for the tests of pages, with one limit of time for all that they wait for."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect, sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SHOTS = Path(__file__).parents[1] / "build" / "reports"
WAIT_MS = 30_000
"""What a page may take until it shows what is expected; Playwright's 5 s ask for an idle machine.

Actions and navigation have the same limit by default.
"""


@contextlib.contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """Run a browser, with `arguments` beside those that keep it quiet."""
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*QUIET, *arguments], timeout=2 * WAIT_MS
        )
        yield browser
        browser.close()
