"""Signing in at an OpenID provider of another site, and out again, in a real browser."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from playwright.sync_api import expect

import axe_core
from browser_harness import chromium
from cli_harness import Running, dev_server
from oidc_provider import CLIENT, SECRET, provider

if TYPE_CHECKING:
    from pathlib import Path


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
