"""The web console in a real browser (`make browser`); screenshots stay in build/reports."""

from __future__ import annotations

import re
import urllib.parse
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import axe_core
from browser_harness import SHOTS, chromium
from cli_harness import Running
from roquet import sync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, Page

AT_MS = 1_700_000_000_000
PAGES = (
    "/",
    "/topics",
    "/topic?name=orders",
    "/publish?topic=orders",
    "/groups",
    "/group?name=billing",
    "/group/seek?group=billing&topic=orders&to=earliest",
    "/messages?topic=orders",
    "/trace?id=ID1&topic=traces",
    "/dead",
    "/dead/group?group=billing",
    "/waiting",
    "/brokers",
    "/name-servers",
    "/proxies",
    "/producers",
    "/alerts",
    "/accounts",
    "/policies",
    "/people",
    "/audit",
)
TRACE = "".join(
    "\x01".join(str(it) for it in row) + "\x02"
    for row in (
        ("Pub", AT_MS, "r", "shop", "t", "ID1", "", "", "h:1", 3, 12, 0, "O", "true", "c"),
        ("SubBefore", AT_MS + 20, "r", "billing", "R1", "ID1", 0, ""),
        ("SubAfter", "R1", "ID1", 90, "false", "", 4, "", ""),
        ("SubBefore", AT_MS + 1020, "r", "billing", "R2", "ID1", 1, ""),
        ("SubAfter", "R2", "ID1", 40, "true", "", 0, "", ""),
    )
)
"""A message that was sent, refused once by its consumer and taken then."""


class Console:
    """What runs, and whoever is signed in."""

    def __init__(self, lines: list[str], context: BrowserContext) -> None:
        (self.namesrv,) = [it.split()[2] for it in lines if it.startswith("  name server ")]
        (link,) = [it.split()[1] for it in lines if it.startswith("  console ")]
        self.address, _, self.token = link.partition("/login#")
        self.pages: tuple[str, ...] = PAGES
        """All of them, with what is there in their queries."""
        self.wrong: list[str] = []
        """What the browser's console complained about."""
        self.page = context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.goto(link)
        expect(self.page.locator("h1")).to_have_text("Overview")
        assert self.token not in self.page.url

    def _said(self, said: object) -> None:
        if getattr(said, "type", "") in ("error", "warning"):
            self.wrong.append(str(getattr(said, "text", said)))

    def go(self, path: str) -> Page:
        self.page.goto(self.address + path)
        return self.page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def console(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A dev server with a topic, a group that is behind, and two dead letters."""
    home = tmp_path_factory.mktemp("dev")
    flags = ("--port", "0", "--namesrv-port", "0", "--console-port", "0")
    running = Running(home, "dev", *flags, "-s", "recallMessageEnable=true")
    lines = running.lines_until("Ctrl-C")
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    found = Console(lines, context)
    with sync.connect(f"rmq://{found.namesrv}") as mq:
        mq.admin().topics.create("orders", 4)
        with mq.producer("shop") as producer:
            for number in range(25):
                body = f'{{"order": {number}, "amount": {number * 10}, "city": "Z\u00fcrich"}}'
                producer.send("orders", body, tag="paid", keys=f"o-{number}")
            mq.admin().topics.create("traces", 1)
            producer.send("traces", TRACE, keys="ID1")
        with mq.consumer("billing", "orders", start="earliest") as consumer:
            for count, message in enumerate(consumer, start=1):
                message.dead_letter() if count <= 2 else message.ack()
                if count == 10:
                    break
        with mq.consumer("watching", "traces", start="earliest") as member:
            traced = member.receive(30)
            assert traced is not None
            (address,) = mq.admin().brokers.masters().values()
            client = urllib.parse.quote(mq.client_id)
            found.pages = (
                *PAGES,
                f"/message?topic=traces&id={traced.message_id}",
                f"/broker?address={address}&all=true",
                f"/group/member?group=watching&client={client}&stacks=true",
            )
            yield found
    context.close()
    assert running.stop() == 0


@pytest.fixture(autouse=True)
def no_complaints(console: Console) -> Iterator[None]:
    console.wrong.clear()
    yield
    assert console.wrong == []


def test_a_topic_is_created_published_to_followed_and_deleted(console: Console) -> None:
    page = console.go("/topics")
    page.get_by_text("Create a topic").click()
    page.get_by_label("Name").fill("fresh")
    page.get_by_label("Queues on each broker").fill("2")
    page.get_by_role("button", name="Create").click()
    expect(page.locator(".note.done")).to_contain_text("topic fresh created")
    expect(page.locator("h1")).to_have_text("fresh")
    page.get_by_role("button", name="Follow").click()
    expect(page.locator("[data-state]")).to_contain_text("Following")
    other = page.context.new_page()
    other.goto(f"{console.address}/publish?topic=fresh")
    other.get_by_label("Body").fill("<b>hello</b> & <script>alert(1)</script>")
    other.get_by_label("Tag").fill("greeting")
    other.get_by_role("button", name="Publish").click()
    expect(other.locator(".note.done")).to_contain_text("stored in queue")
    other.close()
    line = page.locator(".tail li").first
    expect(line).to_contain_text("<b>hello</b> & <script>alert(1)</script>")
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SHOTS / "console-tail.png"))
    line.locator("a").click()
    expect(page.locator("pre").first).to_have_text("<b>hello</b> & <script>alert(1)</script>")
    console.go("/topic?name=fresh")
    page.get_by_text("Delete this topic").click()
    delete = page.get_by_role("button", name="Delete topic")
    expect(delete).to_be_disabled()
    page.get_by_label("to delete it").fill("fres")
    expect(delete).to_be_disabled()
    page.get_by_label("to delete it").fill("fresh")
    delete.click()
    expect(page.locator(".note.done")).to_have_text("topic fresh deleted")
    expect(page.locator("tbody")).not_to_contain_text("fresh")


def test_a_group_is_moved_as_its_preview_says(console: Console) -> None:
    page = console.go("/group?name=billing")
    expect(page.locator(".figures dd").first).to_have_text("15")
    page.get_by_label("To", exact=True).fill("latest")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".note.warn").first).to_contain_text("15 would be skipped")
    page.screenshot(path=str(SHOTS / "console-seek.png"))
    page.get_by_role("button", name="Reset to these offsets").click()
    expect(page.locator(".note.done")).to_contain_text("0 messages again, 15 skipped")
    expect(page.locator(".figures dd").first).to_have_text("0")
    console.go("/group/seek?group=billing&topic=orders&to=earliest")
    page.get_by_role("button", name="Reset to these offsets").click()
    expect(page.locator(".figures dd").first).to_have_text("25")


def test_a_message_is_found_edited_and_sent_again(console: Console) -> None:
    page = console.go("/messages")
    page.get_by_label("Topic").fill("orders")
    page.get_by_label("Key").fill("o-7")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("tbody a").click()
    expect(page.locator("pre").first).to_contain_text('"amount": 70')
    expect(page.locator("pre").first).to_contain_text("Z\u00fcrich")
    page.screenshot(path=str(SHOTS / "console-message.png"), full_page=True)
    page.get_by_role("link", name="Edit first").click()
    page.get_by_label("Body").fill('{"order": 7, "amount": 71}')
    page.get_by_role("button", name="Publish").click()
    expect(page.locator(".note.done")).to_contain_text("stored in queue")
    console.go("/messages?topic=orders&text=71")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_dead_letters_are_chosen_and_sent_again(console: Console) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page = console.go("/dead")
    page.get_by_role("link", name="billing").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_label("Choose all").check()
    page.get_by_role("button", name="Send the chosen again").click()
    expect(page.locator(".note.done")).to_contain_text("2 of 2 messages sent again to billing")
    expect(page.locator("details.results")).to_contain_text("What became of each (2)")
    expect(page.locator("details.results tbody tr")).to_have_count(2)
    page.screenshot(path=str(SHOTS / "console-dead-resent.png"), full_page=True)


def test_dead_letters_are_saved_as_files(console: Console) -> None:
    page = console.go("/dead/group?group=billing")
    with page.expect_download() as all_of_them:
        page.get_by_role("link", name="CSV").click()
    assert all_of_them.value.suggested_filename == "dead-letters-billing.csv"
    text = all_of_them.value.path().read_text("utf-8-sig")
    assert text.count('"billing"') == 0
    assert [it.partition(",")[0] for it in text.splitlines()[:1]] == ['"stored"']
    assert text.count("Z\u00fcrich") == 2
    page.get_by_label("Choose this message").first.check()
    with page.expect_download() as chosen:
        page.get_by_role("button", name="JSON lines").click()
    assert chosen.value.suggested_filename == "dead-letters-billing.jsonl"
    assert len(chosen.value.path().read_text().splitlines()) == 1
    page.screenshot(path=str(SHOTS / "console-dead-group.png"), full_page=True)


def test_a_timer_message_is_recalled_on_its_page(console: Console) -> None:
    with sync.connect(f"rmq://{console.namesrv}") as mq, mq.producer("shop") as producer:
        producer.send("orders", b"in ten minutes", keys="later-1", delay=600)
    page = console.go("/waiting")
    expect(page.locator("tbody tr").first).to_contain_text("orders")
    page.get_by_label("Find one before it is due").fill("later-1")
    page.get_by_role("button", name="Find").click()
    page.locator("tbody a").first.click()
    expect(page.get_by_text("for orders, until")).to_be_visible()
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SHOTS / "console-recall.png"), full_page=True)
    page.get_by_role("button", name="Recall it").click()
    expect(page.locator(".note.done")).to_contain_text("it will not come to orders")
    page.get_by_label("Find one before it is due").fill("later-1")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_text("1 left out: recalled while they waited.")).to_be_visible()
    expect(page.locator("tbody a")).to_have_count(0)


def test_a_setting_is_changed_and_a_broker_is_drained(console: Console) -> None:
    page = console.go("/brokers")
    page.get_by_role("button", name="Drain").click()
    expect(page.locator(".tag")).to_have_text("drained")
    console.go("/")
    expect(page.locator(".note.warn").first).to_contain_text("drained")
    console.go("/brokers")
    page.get_by_role("button", name="Let producers come back").click()
    expect(page.locator(".tag")).to_have_count(0)
    page.locator("tbody a").first.click()
    page.get_by_role("link", name=re.compile("all ")).click()
    page.get_by_label("waitTimeMillsInPullQueue").fill("4321")
    page.locator("#s-waitTimeMillsInPullQueue button").click()
    expect(page.locator(".note.done")).to_contain_text("waitTimeMillsInPullQueue=4321")
    console.go("/audit")
    expect(page.locator("tbody")).to_contain_text("/broker/set")


def test_keys_move_about(console: Console) -> None:
    page = console.go("/")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.locator("h1")).to_have_text("Topics")
    # Its script listens to keys once it is loaded.
    page.wait_for_load_state()
    page.keyboard.press("/")
    page.keyboard.type("ord")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    page.reload()
    page.keyboard.press("Tab")
    expect(page.get_by_text("To the content")).to_be_focused()


def test_another_role_sees_less_and_signs_out(console: Console, browser: Browser) -> None:
    page = console.go("/people")
    page.get_by_label("Name").fill("bob")
    page.get_by_role("button", name="Make a one-time token").click()
    text = page.locator(".note.done").inner_text()
    token = text.rpartition(": ")[2]
    context = browser.new_context()
    theirs = context.new_page()
    theirs.goto(f"{console.address}/login")
    theirs.get_by_label("One-time token").fill(token)
    theirs.get_by_role("button", name="Sign in").click()
    expect(theirs.locator(".who")).to_contain_text("bob")
    expect(theirs.get_by_role("link", name="Audit log")).to_have_count(0)
    theirs.goto(f"{console.address}/topic?name=orders")
    expect(theirs.get_by_text("Delete this topic")).to_have_count(0)
    expect(theirs.get_by_text("Publish a message")).to_have_count(0)
    theirs.goto(f"{console.address}/audit")
    expect(theirs.locator(".note.bad")).to_contain_text("only for the role administrator")
    theirs.get_by_role("button", name="Sign out").click()
    expect(theirs.get_by_label("One-time token")).to_be_visible()
    theirs.goto(f"{console.address}/topics")
    expect(theirs).to_have_url(f"{console.address}/login")
    context.close()


def test_the_overview_refreshes_itself_and_draws_rates(console: Console) -> None:
    page = console.go("/")
    expect(page.locator(".chart canvas")).to_have_count(1)
    expect(page.locator("#live .card")).to_have_count(1)
    page.evaluate("document.querySelector('#live').dataset.old = 'yes'")
    expect(page.locator("#live[data-old]")).to_have_count(0)
    expect(page.locator("#live .card")).to_have_count(1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_the_screen(console: Console, width: int, scheme: str) -> None:
    page = console.page
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    SHOTS.mkdir(parents=True, exist_ok=True)
    try:
        for path in console.pages:
            console.go(path)
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, path
            assert page.locator("h1").count() == 1, path
            unnamed = page.evaluate(UNNAMED)
            assert unnamed == [], path
            pale = page.evaluate(PALE)
            assert pale == [], path
            name = re.sub(r"\W+", "-", path.partition("?")[0]).strip("-") or "overview"
            page.screenshot(path=str(SHOTS / f"console-{name}-{width}-{scheme}.png"))
    finally:
        page.set_viewport_size({"width": 1280, "height": 800})
        page.emulate_media(color_scheme="light")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_core_finds_nothing_wrong_with_any_page(
    console: Console, width: int, scheme: str
) -> None:
    page, script = console.page, axe_core.source()
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    found: dict[str, list[str]] = {}
    try:
        for path in console.pages:
            console.go(path)
            page.evaluate(
                "document.querySelectorAll('details').forEach((it) => { it.open = true; })"
            )
            if wrong := axe_core.violations(page, script):
                found[path] = wrong
    finally:
        page.set_viewport_size({"width": 1280, "height": 800})
        page.emulate_media(color_scheme="light")
    assert found == {}


def test_axe_core_finds_nothing_wrong_with_the_page_of_signing_in(
    console: Console, browser: Browser
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{console.address}/login")
    assert axe_core.violations(page, axe_core.source()) == []
    # What it is for: a field without a label is found.
    page.evaluate("document.querySelector('label').replaceWith(document.querySelector('input'))")
    assert [it.partition(":")[0] for it in axe_core.violations(page, axe_core.source())] == [
        "label"
    ]
    context.close()


def test_a_table_that_goes_on_at_the_side_says_so(console: Console) -> None:
    page = console.page
    page.set_viewport_size({"width": 390, "height": 844})
    try:
        console.go("/brokers")
        sign = page.locator(".more")
        expect(sign).to_be_visible()
        expect(sign).to_contain_text("scroll sideways")
        table = page.locator(".scroll")
        expect(table).to_have_attribute("tabindex", "0")
        table.focus()
        page.keyboard.press("ArrowRight")
        # No wait_for_function: the page forbids to evaluate text.
        expect(table).not_to_have_js_property("scrollLeft", 0)
        page.set_viewport_size({"width": 1280, "height": 800})
        expect(sign).to_be_hidden()
        expect(page.locator(".scroll[tabindex]")).to_have_count(0)
    finally:
        page.set_viewport_size({"width": 1280, "height": 800})


def test_longest_names_do_not_widen_pages_on_a_phone(console: Console) -> None:
    name = "n" * 127
    with sync.connect(f"rmq://{console.namesrv}") as mq:
        mq.admin().topics.create(name, 1)
        with mq.producer("shop") as producer:
            sent = producer.send(name, bytes(range(256)), tag="t" * 100, keys="k" * 200)
    page = console.page
    try:
        page.set_viewport_size({"width": 390, "height": 844})
        query = f"topic={name}&id={sent.message_id}"
        for path in ("/topics", f"/topic?name={name}", f"/messages?{query}", f"/message?{query}"):
            console.go(path)
            assert page.evaluate(OVERFLOW) <= 0, path
        page.screenshot(path=str(SHOTS / "console-phone-long-name.png"))
    finally:
        page.set_viewport_size({"width": 1280, "height": 800})


def test_a_page_that_is_not_there_is_a_page(console: Console) -> None:
    page = console.go("/nowhere")
    expect(page.locator("h1")).to_have_text("Page not found")
    expect(page.get_by_role("link", name="Overview")).to_be_visible()
    page.screenshot(path=str(SHOTS / "console-not-found.png"))
    # The browser itself complains about the status; nothing else may.
    assert [it for it in console.wrong if "404" not in it] == []
    console.wrong.clear()


def test_a_group_without_dead_letters_has_an_empty_list(console: Console) -> None:
    with sync.connect(f"rmq://{console.namesrv}") as mq:
        mq.admin().groups.put("careful")
    page = console.go("/dead/group?group=careful")
    expect(page.locator(".empty")).to_contain_text("careful has given up no message")
    expect(page.locator(".note.bad")).to_have_count(0)
    page.screenshot(path=str(SHOTS / "console-dead-empty.png"))


OVERFLOW = """() => {
  const all = document.documentElement;
  return all.scrollWidth - all.clientWidth;
}"""
"""How much wider than the window a page is."""

UNNAMED = """() => [...document.querySelectorAll(
    'input:not([type=hidden]), select, textarea, button')]
  .filter((it) => !(it.labels && it.labels.length) && !it.getAttribute('aria-label')
    && !it.textContent.trim())
  .map((it) => it.outerHTML)"""
"""Controls that a screen reader has no name for."""

PALE = """() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((it) => it / 255)
    .map((it) => (it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4))
    .reduce((sum, it, at) => sum + it * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (element) => {
    for (let it = element; it; it = it.parentElement) {
      const found = numbers(getComputedStyle(it).backgroundColor);
      if (found.length < 4 || found[3] > 0.99) return found;
    }
    return [255, 255, 255];
  };
  const pale = [];
  for (const it of document.querySelectorAll('main *, .top *, .side *')) {
    const own = [...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || it.closest('.chart') || it.disabled || !it.getClientRects().length) continue;
    const [a, b] = [light(numbers(getComputedStyle(it).color)), light(behind(it))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) pale.push(`${it.outerHTML.slice(0, 90)} ${ratio.toFixed(2)}`);
  }
  return pale;
}"""
"""Texts whose contrast with what is behind them is below 4.5 (WCAG AA)."""
