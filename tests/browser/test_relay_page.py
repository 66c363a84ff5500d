"""The relay's live page in a real browser (`make browser`); a screenshot stays in build/reports."""

from __future__ import annotations

import re
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser_harness import SHOTS, chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page


@pytest.fixture
def address() -> Iterator[str]:
    """Run the demo; its address is on one of its lines."""
    child = subprocess.Popen(
        [sys.executable, "-m", "roquet", "relay", "--demo", "-s", "http_port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )
    assert child.stdout is not None
    found = None
    while found is None:
        ready, _, _ = select.select([child.stdout], [], [], 30)
        assert ready, "the demo says nothing"
        found = re.search(r"metrics on (http://\S+)", child.stdout.readline().decode())
    yield found[1]
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 0
    child.stdout.close()


@pytest.fixture
def page() -> Iterator[Page]:
    with chromium() as browser:
        opened = browser.new_page(viewport={"width": 1280, "height": 800})
        yield opened


def test_the_live_page_shows_the_fleet(address: str, page: Page) -> None:
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(address)
    expect(page.locator("#state")).to_contain_text("3 of 3 servers registered")
    rows = page.locator("#servers tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("lobby-1")
    assert {row.get_attribute("class") for row in rows.all()} == {"registered"}
    expect(page.locator("#map circle")).to_have_count(4)
    # The demo sends in rounds: the page sees packets go by.
    expect(page.locator("#rate")).not_to_have_text("0 packets/s")
    packets = page.locator("#servers tbody tr").nth(1).locator("td").nth(8)
    expect(packets).not_to_have_text(packets.inner_text())
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SHOTS / "relay-page.png"))
    page.emulate_media(color_scheme="dark")
    page.screenshot(path=str(SHOTS / "relay-page-dark.png"))
    assert wrong == []
