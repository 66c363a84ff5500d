"""Users and policies in the web console, in a real browser, before a broker with users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import axe_core
from browser_harness import SHOTS, chromium
from cli_harness import Running, cluster_of, roquet, with_users

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import ConsoleMessage, Locator, Page

PASSWORD = "canary-of-root"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """Give the page of policies, signed in, with a user `ann` who may do nothing."""
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD + "\n")
    account = ("--access-key", "root", "--secret-file", str(secret))
    with cluster_of(tmp_path, **with_users(PASSWORD)) as address:
        for words in (
            ("context", "add", "mine", address, *account),
            ("user", "create", "ann", "--password-file", str(secret), "--context", "mine"),
        ):
            done = roquet(tmp_path, *words)
            assert done.returncode == 0, done.stderr
        console = Running(tmp_path, "console", "--context", "mine", "--port", "0")
        try:
            link = next(
                it for it in console.lines_until("signs in once")[0].split() if "/login#" in it
            )
            with chromium() as browser:
                opened = browser.new_page(viewport={"width": 1280, "height": 800})
                wrong: list[str] = []
                opened.on("pageerror", lambda error: wrong.append(str(error)))

                def said(it: ConsoleMessage) -> None:
                    if it.type == "error":
                        wrong.append(it.text)

                opened.on("console", said)
                opened.goto(link)
                expect(opened.locator("h1")).to_have_text("Overview")
                opened.get_by_role("link", name="Policies").click()
                yield opened
                assert wrong == []
        finally:
            assert console.stop() == 0


def test_entry_of_a_policy_is_made_changed_and_removed(page: Page) -> None:
    expect(page.locator("h1")).to_have_text("Users and policies")
    expect(page.locator("main")).to_contain_text("No policies")
    expect(page.locator("tbody tr")).to_have_count(2)  # root and ann
    assert PASSWORD not in page.content()

    def put(actions: str, decision: str) -> None:
        page.get_by_text("Add or change an entry").click()
        form = page.locator("form[action$='/policy/put']")
        form.get_by_label("User").fill("ann")
        form.get_by_label("Resource").fill("Topic:orders")
        form.get_by_label("Actions").fill(actions)
        form.get_by_label("Only from").fill("127.0.0.1")
        form.get_by_label("Decision").select_option(decision)
        form.get_by_role("button", name="Set").click()

    entries = page.locator("section", has_text="Policies").last.locator("tbody tr")
    put("Pub,Sub", "Allow")
    expect(page.locator(".note.done")).to_contain_text("ann: Allow Pub,Sub on Topic:orders")
    expect(entries).to_have_count(1)
    expect(entries.first).to_contain_text("127.0.0.1")
    put("All", "Deny")
    expect(page.locator(".note.done")).to_contain_text("on every broker")
    expect(entries).to_have_count(1)
    expect(entries.first).to_contain_text("Deny")
    SHOTS.mkdir(parents=True, exist_ok=True)
    for width, scheme in ((1280, "light"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 844})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=str(SHOTS / f"console-policies-{width}-{scheme}.png"), full_page=True)
        page.evaluate("document.querySelectorAll('details').forEach((it) => { it.open = true; })")
        assert axe_core.violations(page, axe_core.source()) == []
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("button", name="Remove Topic:orders of ann").click()
    expect(page.locator(".note.done")).to_contain_text("without the entry about Topic:orders")
    expect(page.locator("main")).to_contain_text("No policies")


def test_user_is_made_changed_and_deleted_on_every_broker(page: Page) -> None:
    users = page.locator("section", has_text="Users").first.locator("tbody tr")
    expect(users).to_have_count(2)  # root and ann

    def form(name: str, label: str) -> Locator:
        page.get_by_text(label).click()
        found = page.locator(f"form[action$='/user/{name}']")
        found.get_by_label("User").fill("bob")
        return found

    made = form("create", "Make a user")
    made.get_by_label("Password").fill("canary-of-bob")
    made.get_by_role("button", name="Make the user").click()
    expect(page.locator(".note.done")).to_contain_text("bob: made, on every broker")
    expect(users.filter(has_text="bob")).to_contain_text("Normal")
    changed = form("alter", "Change a user")
    changed.get_by_label("Type").select_option("Super")
    changed.get_by_label("Status").select_option("disable")
    changed.get_by_role("button", name="Change the user").click()
    expect(page.locator(".note.done")).to_contain_text("bob: another type, status")
    expect(users.filter(has_text="bob")).to_contain_text("Super")
    expect(users.filter(has_text="bob")).to_contain_text("disable")
    gone = form("delete", "Delete a user")
    gone.get_by_label("The same again").fill("bob")
    gone.get_by_role("button", name="Delete the user").click()
    expect(page.locator(".note.done")).to_contain_text("bob: deleted, on every broker")
    expect(users).to_have_count(2)
    page.get_by_role("link", name="Audit log").click()
    expect(page.locator("tbody")).to_contain_text("/user/create")
    assert "canary-of-bob" not in page.content()
