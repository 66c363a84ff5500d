"""Signing in at an OpenID provider of another site, and out again, in a real browser."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from playwright.sync_api import expect

import axe_core
from browser_harness import SHOTS, chromium
from cli_harness import Running, cluster_of, dev_server, roquet, with_users
from oidc_provider import CLIENT, SECRET, provider

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page


def test_sign_in_at_a_provider_of_another_site_opens_the_console(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    login = tmp_path / "login.toml"
    with provider() as it, dev_server(tmp_path, "--no-console") as (namesrv, _):
        # To a browser, 127.0.0.1 and localhost are two sites: strict cookies stay behind.
        login.write_text(
            f'[oidc]\nissuer = "{it.issuer}"\nclient_id = "{CLIENT}"\nclient_secret = "{SECRET}"\n'
            f'url = "http://localhost:{port}"\n[oidc.roles]\noperator = ["mq-ops"]\n'
        )
        login.chmod(0o600)
        flags = ("-n", namesrv, "--port", str(port), "--login", str(login))
        console = Running(tmp_path, "console", *flags)
        try:
            console.lines_until("signs in once")
            with chromium() as browser:
                page = browser.new_page(viewport={"width": 390, "height": 844})
                wrong: list[str] = []
                page.on("pageerror", lambda error: wrong.append(str(error)))
                page.goto(f"http://localhost:{port}/")
                assert axe_core.violations(page, axe_core.source()) == []
                assert page.evaluate("document.documentElement.scrollWidth") <= 390
                page.get_by_role("link", name="Sign in with OpenID Connect").click()
                expect(page.locator("h1")).to_have_text("Overview")
                expect(page.locator(".who")).to_have_text("oidc:ana operator")
                page.get_by_role("button", name="Sign out").click()
                elsewhere = page.get_by_role("link", name="Sign out where you signed in, too")
                expect(elsewhere).to_have_attribute("href", re.compile(re.escape(it.issuer)))
                page.goto(f"http://localhost:{port}/topics")
                expect(page).to_have_url(f"http://localhost:{port}/login")
                assert wrong == []
        finally:
            assert console.stop() == 0


def test_an_account_of_the_cluster_signs_in_and_is_shown_its_own(tmp_path: Path) -> None:
    password = "canary-of-root"
    secret, login = tmp_path / "secret", tmp_path / "login.toml"
    secret.write_text(password + "\n")
    login.write_text("tokens = false\n[cluster]\n")
    login.chmod(0o600)
    SHOTS.mkdir(parents=True, exist_ok=True)
    with cluster_of(tmp_path, **with_users(password)) as address:
        for words in (
            ("context", "add", "mine", address, "--access-key", "root", "--secret-file", secret),
            ("user", "create", "ann", "--password-file", secret, "--context", "mine"),
            ("topic", "create", "orders", "--context", "mine"),
        ):
            done = roquet(tmp_path, *map(str, words))
            assert done.returncode == 0, done.stderr
        flags = ("--context", "mine", "--port", "0", "--login", str(login))
        console = Running(tmp_path, "console", *flags)
        try:
            lines = console.lines_until("sign in there")
            link = next(it for it in lines[0].split() if it.endswith("/login"))
            with chromium() as browser:
                page = browser.new_page(viewport={"width": 390, "height": 844})
                wrong: list[str] = []
                page.on("pageerror", lambda error: wrong.append(str(error)))
                page.goto(link)
                assert axe_core.violations(page, axe_core.source()) == []
                page.screenshot(path=str(SHOTS / "console-cluster-login.png"))
                _sign_in(page, link, "root", "guess")
                said = page.locator(".note.bad")
                expect(said).to_contain_text("the access key or its secret is wrong")
                for name in ("ann", "root"):
                    _look_around(page, link, name, password)
                assert wrong == []
        finally:
            assert console.stop() == 0


def _sign_in(page: Page, link: str, name: str, secret: str) -> None:
    page.goto(link)
    page.get_by_label("Access key of the cluster").fill(name)
    page.get_by_label("Its secret").fill(secret)
    page.get_by_role("button", name="Sign in").click()


def _look_around(page: Page, link: str, name: str, secret: str) -> None:
    _sign_in(page, link, name, secret)
    expect(page.locator(".who")).to_have_text(f"cluster:{name} account of the cluster")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.screenshot(path=str(SHOTS / f"console-cluster-{name}.png"))
    expect(page.get_by_role("link", name="People")).to_have_count(0)
    page.get_by_role("link", name="Topics").click()
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    page.screenshot(path=str(SHOTS / f"console-cluster-{name}-topics.png"))
    assert axe_core.violations(page, axe_core.source()) == []
    # What a user without policies is told in the row of a topic.
    is_refused = page.get_by_text("no matched policies").count() == 1
    assert is_refused == (name == "ann")
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(link)
