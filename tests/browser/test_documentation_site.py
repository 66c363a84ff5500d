"""The site of the documentation in a real browser without a network; screenshots stay in build."""

from __future__ import annotations

import contextlib
import functools
import http.server
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from playwright.sync_api import expect
from tools.pages import documentation_site as site

from browser_harness import SHOTS, chromium
from roquet.base.overriding import override

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page, Request

CUT_OFF = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
SHOWN = {
    "index.html": "front",
    "docs/guide/migration.html": "guide",
    "docs/guide/command-line.html": "commands",
    "docs/reference/features.html": "features",
    "api/producers.html": "api",
}
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "tools.pages.documentation_site", "--work", str(work)]
    done = subprocess.run(command, cwd=site.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return work / "html"


class Quiet(http.server.SimpleHTTPRequestHandler):
    @override
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name there)
        """Say nothing."""


@pytest.fixture(scope="module")
def address(html: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(html))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def wrong() -> list[str]:
    """What the browser complains about, and what it asks of others."""
    return []


@pytest.fixture
def page(address: str, wrong: list[str]) -> Iterator[Page]:
    with chromium(CUT_OFF) as browser:
        opened = browser.new_page(viewport={"width": 1280, "height": 900})
        opened.on("console", lambda it: wrong.append(it.text) if it.type == "error" else None)
        opened.on("pageerror", lambda it: wrong.append(str(it)))
        opened.on("requestfailed", lambda it: _failed(it, wrong))
        opened.on(
            "request",
            lambda it: None if it.url.startswith((address, "data:")) else wrong.append(it.url),
        )
        yield opened


def _failed(request: Request, wrong: list[str]) -> None:
    # What a page still loads when the next one is opened is given up.
    if request.failure != "net::ERR_ABORTED":
        wrong.append(f"{request.url}: {request.failure}")


def test_every_page_shows_without_a_network_and_without_an_error(
    html: Path, address: str, page: Page, wrong: list[str]
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    names = sorted(str(it.relative_to(html)) for it in html.rglob("*.html"))
    assert len(names) > 70
    for name in names:
        answer = page.goto(address + name, wait_until="domcontentloaded")
        assert answer is not None
        assert answer.ok, name
        expect(page.locator("h1").first).to_be_visible()
        assert wrong == [], name
        if name in SHOWN:
            page.wait_for_load_state("networkidle")
            page.screenshot(path=SHOTS / f"site-{SHOWN[name]}.png")
    page.set_viewport_size({"width": 390, "height": 800})
    for name in SHOWN:
        page.goto(address + name)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, f"{name} scrolls sideways"


def test_search_finds_a_page_and_leads_there(address: str, page: Page, wrong: list[str]) -> None:
    page.goto(address)
    entry = page.get_by_role("combobox", name="Search")
    # The script of the page listens to keys a while after the page is shown.
    for _ in range(30):
        page.keyboard.press("Control+k")
        with contextlib.suppress(PlaywrightTimeout):
            entry.wait_for(timeout=1000)
            break
    entry.press_sequentially("recoveryTruncateCorrupt", delay=20)
    found = page.locator("a[href*='docs/']").filter(has_text=re.compile("recovery", re.IGNORECASE))
    expect(found.first).to_be_visible()
    page.screenshot(path=SHOTS / "site-search.png")
    found.first.click()
    expect(page).to_have_url(re.compile(r"/docs/.*\.html"))
    expect(page.locator("h1").first).to_be_visible()
    assert wrong == []


class Links(HTMLParser):
    """The links and anchors of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {""}

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag
        found = dict(attrs)
        if anchor := found.get("id"):
            self.anchors.add(anchor)
        for name in ("href", "src"):
            if link := found.get(name):
                self.links.append(link)


def test_links_and_anchors_of_the_site_lead_somewhere_on_it(html: Path) -> None:
    read: dict[str, Links] = {}
    for file in html.rglob("*.html"):
        parser = Links()
        parser.feed(file.read_text())
        read[file.relative_to(html).as_posix()] = parser
    lost: list[str] = []
    for name, parser in read.items():
        if name == "404.html":
            continue  # its links begin at the root of the host
        for link in parser.links:
            if "://" in link or link.startswith(("data:", "mailto:", "javascript:")):
                continue
            target, anchor = urldefrag(urljoin(f"/{name}", link))
            there = unquote(target).lstrip("/") or "index.html"
            if there.endswith("/"):
                there += "index.html"
            known = there in read and unquote(anchor) in read[there].anchors
            if not known and not (there not in read and (html / there).is_file()):
                lost.append(f"{name}: {link}")
    assert lost == []


def test_the_api_shows_how_methods_are_called_and_not_how_given_objects_are_made(
    html: Path,
) -> None:
    text = re.sub(r"<[^>]+>", "", (html / "api/producers.html").read_text())
    assert re.search(r"send\(\s*topic:", text)
    assert "in_flight_max" in text
    assert not re.search(r"Producer\(\s*\*,\s*session", text)


def test_a_page_of_the_site_loads_nothing_from_elsewhere(html: Path) -> None:
    loads = re.compile(r"<(?:script|img|iframe|link|source)\b[^>]*(?:src|href)=\"?(https?:)?//")
    for file in html.rglob("*.html"):
        assert not loads.search(file.read_text()), file
    for file in html.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", file.read_text()), file


def test_a_broken_link_or_anchor_ends_the_build(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pages = site.stage(tmp_path)
    found = site.settings(pages)
    # A few pages do, so that it is quick.
    found["nav"] = [{"Roquet": "README.md"}, {"Notice": "CHANGELOG.md"}]
    found["plugins"] = ["search"]
    for name in pages:
        if name not in ("README.md", "CHANGELOG.md"):
            (tmp_path / "pages" / name).unlink()
    front, other = (tmp_path / "pages" / name for name in ("README.md", "CHANGELOG.md"))
    other.write_text("# Changes\n\n## A heading\n")
    front.write_text("# Front\n\n[good](CHANGELOG.md#a-heading)\n")
    assert site.build(tmp_path, found) == 0
    for link, said in (("nowhere.md", "page does not exist"), ("CHANGELOG.md#no", "anchor")):
        front.write_text(f"# Front\n\n[bad]({link})\n")
        capfd.readouterr()
        assert site.build(tmp_path, found) != 0, link
        assert said in "".join(capfd.readouterr())


def test_a_page_that_the_index_does_not_list_ends_the_build() -> None:
    with pytest.raises(ValueError, match=r"docs/lost\.md"):
        site.navigation([*site.PAGES, "docs/README.md", "docs/lost.md"])


def test_lists_and_tables_after_a_paragraph_stay_lists_and_tables() -> None:
    text = "Words:\n- one\n- two\n  more\nEnd\n| a |\n|---|\n```\nx\n- code\n```\n1. a\n   - b"
    assert site.prepared(text) == (
        "Words:\n\n- one\n- two\n  more\nEnd\n\n| a |\n|---|\n```\nx\n- code\n```\n\n1. a\n    - b"
    )
