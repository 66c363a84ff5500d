"""Signing in by a provider of OpenID Connect and by the header of a proxy: real HTTP, real keys."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from console_harness import FORM, Answer, Browser, World, a_console
from oidc_provider import CLIENT, SECRET, Provider, provider
from roquet.base.errors import UsageError
from roquet.console.config import ConsoleConfig
from roquet.console.login.flow import FLOW_S, Flows
from roquet.console.login.settings import Login, OidcConfig, load
from roquet.console.roles import Role, RoleMap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

URL = "http://127.0.0.1:8082"
ROLES = RoleMap(groups={"mq-ops": Role.OPERATOR, "mq-admins": Role.ADMINISTRATOR})
HEADER = """
[header]
from = ["127.0.0.1"]
user = "X-Forwarded-User"
groups = "X-Forwarded-Groups"
"""


def oidc(it: Provider, issuer: str = "", url: str = URL) -> OidcConfig:
    return OidcConfig(
        issuer=issuer or it.issuer, client_id=CLIENT, client_secret=SECRET, url=url, roles=ROLES
    )


def play(
    folder: Path, login: Login, story: Callable[[World], Awaitable[None]], **config: Any
) -> None:
    async def whole() -> None:
        async with a_console(folder, login=login, **config) as world:
            await story(world)

    asyncio.run(whole())


def written(folder: Path, text: str) -> Login:
    file = folder / "login.toml"
    file.write_text(text)
    file.chmod(0o600)
    return load(file)


def cookie_of(answer: Answer, name: str) -> str:
    (found,) = [
        it for it in answer.headers.get_all("set-cookie") or () if it.startswith(name + "=")
    ]
    return found.partition(";")[0]


async def sent(who: Browser) -> tuple[str, dict[str, str]]:
    """Leave for the provider; return its address and what it is asked."""
    answer = await who.get("/login/oidc")
    assert answer.status == 303, answer.text
    who.cookie = cookie_of(answer, "roquet_console_oidc")
    address, _, query = answer.headers["location"].partition("?")
    return address, dict(parse_qsl(query))


async def judged(address: str, query: dict[str, str]) -> dict[str, str]:
    """Be signed in by the provider; return what it sends back."""
    at = urlsplit(address)
    assert at.port is not None
    answer = await Browser(at.port).get(at.path, **query)
    back, _, found = answer.headers["location"].partition("?")
    assert back == query["redirect_uri"]
    return dict(parse_qsl(found))


async def came(who: Browser) -> Answer:
    """Go to the provider and back."""
    return await who.get("/login/oidc/back", **await judged(*await sent(who)))


def test_sign_in_by_a_provider_gives_the_role_of_the_groups(tmp_path: Path) -> None:
    with provider() as it:

        async def story(world: World) -> None:
            page = await world.stranger().get("/login")
            assert "Sign in with OpenID Connect" in page.text
            who = world.stranger()
            answer = await came(who)
            assert answer.status == 200, answer.text
            whole = [
                v for v in answer.headers.get_all("set-cookie") or () if "roquet_console=" in v
            ]
            assert all(flag in whole[0] for flag in ("HttpOnly", "SameSite=strict", "Path=/"))
            who.cookie = cookie_of(answer, "roquet_console")
            assert 'content="0; url=/"' in answer.text
            home = await who.get("/")
            assert (home.status, "oidc:ana" in home.text) == (200, True)
            assert (await who.get("/api/people")).status == 403, "an operator is no administrator"
            rows = (await world.administrator.get("/api/audit")).json["rows"]
            assert ("oidc:ana", "operator") in {(row["who"], row["role"]) for row in rows}
            assert (await who.post("/logout")).status == 403, "a form of another site (CSRF)"
            who.csrf = world.console.sessions.all(0)[0].csrf
            left = await who.post("/logout")
            assert f"{it.issuer}/leave?client_id=console" in left.text
            assert (await who.get("/")).status == 303

        play(tmp_path, Login(oidc=oidc(it)), story)


def test_tokens_that_are_not_exactly_right_let_nobody_in(tmp_path: Path) -> None:
    now_s = int(time.time())
    wrong: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("", {"nonce": "other"}, "nonce"),
        ("", {"nonce": None}, "nonce"),
        ("", {"iss": "https://other.example"}, "iss"),
        ("", {"aud": "other"}, "aud"),
        ("", {"aud": [CLIENT, "other"]}, "azp"),
        ("", {"aud": [CLIENT], "azp": "other"}, "azp"),
        ("", {"exp": now_s - 61}, "expired"),
        ("", {"exp": True}, "exp"),
        ("", {"exp": float("nan")}, "exp"),
        ("", {"iat": now_s - 700}, "expired"),
        ("", {"iat": now_s + 120}, "future"),
        ("", {"nbf": now_s + 120}, "future"),
        ("", {"preferred_username": "a\nb"}, "name"),
        ("", {"groups": ["staff"]}, "no group that has a role"),
        ("", {"groups": {"mq-ops": True}}, "no group that has a role"),
        ("none", {}, "not good"),
        ("hs256", {}, "not good"),
        ("stranger", {}, "not signed by a key"),
    )
    with provider() as it:

        async def story(world: World) -> None:
            for forge, claims, text in wrong:
                it.forge, it.claims = forge, claims
                answer = await came(Browser(world.console.server.port))
                assert answer.status in (400, 403), (forge, claims)
                assert text in answer.text, (forge, claims, answer.text)
                assert "roquet_console=" not in str(answer.headers.get_all("set-cookie"))
                world.console.sessions.succeeded("127.0.0.1", has_password=False)
            assert world.console.sessions.all(0) == []
            # Clocks differ a little.
            it.forge, it.claims = "", {"exp": now_s - 5, "iat": now_s + 30, "aud": [CLIENT]}
            assert (await came(world.stranger())).status == 200

        play(tmp_path, Login(oidc=oidc(it)), story)


def test_keys_that_change_are_asked_for_and_a_withdrawn_one_counts_no_more(tmp_path: Path) -> None:
    with provider() as it:

        async def story(world: World) -> None:
            assert (await came(world.stranger())).status == 200
            old = it.key
            it.rotate()
            assert (await came(world.stranger())).status == 200, "rotated"
            it.key = old
            answer = await came(world.stranger())
            assert (answer.status, "not signed by a key" in answer.text) == (400, True)
            it.rotate(published=False)
            assert (await came(world.stranger())).status == 400, "a kid that nobody publishes"
            for _ in range(5):
                await came(world.stranger())
            assert it.asked.count("/keys") <= 1 + 6, "bounded, whatever kids come"

        play(tmp_path, Login(oidc=oidc(it)), story)


def test_what_comes_back_must_be_of_this_browser_and_counts_once(tmp_path: Path) -> None:
    with provider() as it:

        async def story(world: World) -> None:
            who = world.stranger()
            back = await judged(*await sent(who))
            fine = who.cookie
            port = world.console.server.port
            for cookie, query in (
                ("", back),
                ("roquet_console_oidc=forged.99999999999", back),
                (fine, {**back, "state": "x"}),
                (fine, {**back, "state": "\xff"}),
                (fine, {"code": back["code"]}),
            ):
                answer = await Browser(port, cookie=cookie).get("/login/oidc/back", **query)
                assert (answer.status, "begin again" in answer.text) == (400, True), query
            path = f"/login/oidc/back?{urlencode(back)}"
            for more in ("&code=other", "&iss=a&iss=b"):
                assert (await who.ask("GET", path + more)).status == 400
            assert (await who.ask("GET", path)).status == 200
            again = await Browser(port, cookie=fine).ask("GET", path)
            assert (again.status, "begin again" in again.text) == (400, True)
            # The provider itself refuses a code that was used, and what that is called is said.
            address, query = await sent(who)
            answer = await who.get("/login/oidc/back", code=back["code"], state=query["state"])
            assert (answer.status, "invalid_grant" in answer.text) == (400, True), answer.text
            address, query = await sent(who)
            other = {**await judged(address, query), "iss": "https://other.example"}
            assert "another provider" in (await who.get("/login/oidc/back", **other)).text
            _, query = await sent(who)
            denied = {"error": "<b>access_denied", "state": query["state"]}
            answer = await who.get("/login/oidc/back", **denied)
            assert (answer.status, "&lt;b&gt;access_denied" in answer.text) == (403, True)

        play(tmp_path, Login(oidc=oidc(it)), story)


def test_sign_in_ends_at_the_console_whatever_next_says(tmp_path: Path) -> None:
    with provider() as it:

        async def story(world: World) -> None:
            who = world.stranger()
            answer = await who.ask("GET", "/login/oidc?next=https://evil.example/")
            assert "evil" not in answer.headers["location"]
            who.cookie = cookie_of(answer, "roquet_console_oidc")
            assert "path=/mq/login/oidc" in answer.headers["set-cookie"].lower()
            address, _, query = answer.headers["location"].partition("?")
            back = await judged(address, dict(parse_qsl(query)))
            answer = await who.get("/login/oidc/back", **back, next="https://evil.example")
            assert (answer.status, "evil" in answer.text) == (200, False)
            assert 'content="0; url=/mq/"' in answer.text
            assert "Path=/mq;" in str(answer.headers.get_all("set-cookie"))

        url = URL + "/mq"
        play(tmp_path, Login(oidc=oidc(it, url=url)), story, root_path="/mq")


def test_a_provider_that_is_away_or_silent_is_said_within_3_s(tmp_path: Path) -> None:
    with provider() as it, socket.create_server(("127.0.0.1", 0)) as taken:
        silent = f"http://127.0.0.1:{taken.getsockname()[1]}"

        async def story(world: World) -> None:
            begun = time.monotonic()
            answer = await world.stranger().get("/login/oidc")
            assert (answer.status, "curl" in answer.text) == (502, True), answer.text
            assert "One-time token" in answer.text, "the other ways in are there"
            # What has to hold is that it does not hang; 3 s are those of a machine at rest.
            assert time.monotonic() - begun < 10

        play(tmp_path / "silent", Login(oidc=oidc(it, issuer=silent)), story)
        play(tmp_path / "away", Login(oidc=oidc(it, issuer="http://127.0.0.1:1")), story)
        it.description = {"issuer": "https://other.example"}

        async def other(world: World) -> None:
            answer = await world.stranger().get("/login/oidc")
            assert (answer.status, "calls itself" in answer.text) == (400, True)

        play(tmp_path / "other", Login(oidc=oidc(it)), other)


def test_without_tokens_only_the_provider_lets_in(tmp_path: Path) -> None:
    with provider() as it:

        async def story(world: World) -> None:
            assert world.printed[0].endswith("/login")
            stranger = world.stranger()
            assert "One-time token" not in (await stranger.get("/login")).text
            body = {"content-type": FORM}
            answer = await stranger.ask("POST", "/login", "token=abc", body)
            assert (answer.status, "are off" in answer.text) == (401, True)
            invited = await world.administrator.call("/people/invite", name="bo", role="viewer")
            assert (invited.status, "are off" in invited.text) == (400, True)
            assert (await came(stranger)).status == 200

        play(tmp_path, Login(tokens=False, oidc=oidc(it)), story)


def test_strangers_fill_no_audit_log_and_use_up_nobodys_tries(tmp_path: Path) -> None:
    with provider() as it:

        async def story(world: World) -> None:
            who = world.stranger()
            for _ in range(20):
                # As a page elsewhere may send a browser here.
                assert (await who.get("/login/oidc/back", state="x", code="y")).status == 400
            assert (await world.administrator.get("/api/audit")).json["rows"] == []
            statuses: list[int] = []
            for _ in range(15):
                _, query = await sent(who)
                denied = {"error": "access_denied", "state": query["state"]}
                statuses.append((await who.get("/login/oidc/back", **denied)).status)
            assert statuses == [403] * 10 + [429] * 5
            assert len((await world.administrator.get("/api/audit")).json["rows"]) == 10

        play(tmp_path, Login(oidc=oidc(it)), story)


def test_a_sign_in_that_began_is_forgotten_after_ten_minutes() -> None:
    flows = Flows()
    flow = flows.begin(100.5)
    assert flows.resume(flow.cookie, flow.state, 100 + FLOW_S + 1) is None
    assert Flows().resume(flow.cookie, flow.state, 101.0) is None, "of another process"
    found = flows.resume(flow.cookie, flow.state, 101.0)
    assert found == flow
    assert flows.resume(flow.cookie, flow.state, 101.0) is None, "once"


def test_a_trusted_proxy_says_who_somebody_is_in_each_request(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        who = world.stranger()
        ana = {"X-Forwarded-User": "ana", "X-Forwarded-Groups": "staff, operator"}
        home = await who.ask("GET", "/", None, ana)
        assert (home.status, "proxy:ana" in home.text) == (200, True)
        assert home.headers["set-cookie"] is None
        assert (await who.ask("GET", "/api/people", None, ana)).status == 403
        keeper = {**ana, "X-Forwarded-Groups": "administrator"}
        assert (await who.ask("GET", "/api/people", None, keeper)).status == 200, "at once"
        assert (await who.ask("GET", "/api/topics")).status == 401, "no longer said"
        other = {"X-Forwarded-User": "bo", "X-Forwarded-Groups": "staff"}
        assert (await who.ask("GET", "/", None, other)).status == 303
        page = await who.ask("GET", "/login", None, other)
        assert (page.status, "no group that has a role" in page.text) == (403, True)
        assert (await who.ask("GET", "/", None, {"X-Forwarded-Groups": "operator"})).status == 303

    play(tmp_path, written(tmp_path, HEADER), story)


def test_forms_of_other_sites_do_nothing_behind_a_trusted_proxy(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        who = world.stranger()
        ana = {"X-Forwarded-User": "ana", "X-Forwarded-Groups": "operator"}
        form = {**ana, "content-type": FORM}
        assert (await who.ask("POST", "/topic/create", "name=evil", form)).status == 403
        # Proxies pass an Authorization of their own on: it is none of a program.
        json = {**ana, "content-type": "application/json", "authorization": "Bearer ofproxy"}
        assert (await who.ask("POST", "/api/topic/create", '{"name": "evil"}', json)).status == 403
        (session,) = [it for it in world.console.sessions.all(0) if it.name == "proxy:ana"]
        json["x-csrf-token"] = session.csrf
        made = await who.ask("POST", "/api/topic/create", '{"name": "good"}', json)
        assert made.status == 200, made.text

    play(tmp_path, written(tmp_path, HEADER), story)


def test_headers_of_anybody_else_are_dropped_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        ana = {"X-Forwarded-User": "ana", "X-Forwarded-Groups": "administrator"}
        who = world.stranger()
        for more in ({}, {"X-Forwarded-For": "10.1.1.1"}, {"X-Real-IP": "10.1.1.1"}):
            assert (await who.ask("GET", "/api/topics", None, {**ana, **more})).status == 401
        assert world.console.sessions.all(0) == []

    login = written(tmp_path, HEADER.replace("127.0.0.1", "10.1.1.1"))
    # The word of the proxy about addresses is believed, but not about who connects.
    play(tmp_path, login, story, proxy="127.0.0.1")
    (line,) = [it.getMessage() for it in caplog.records if "dropped" in it.getMessage()]
    assert "x-forwarded-user of 127.0.0.1" in line


def test_headers_that_can_be_read_in_two_ways_are_refused(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        def raw(head: bytes) -> int:
            with socket.create_connection(("127.0.0.1", world.console.server.port)) as there:
                there.settimeout(20)
                there.sendall(b"GET /api/topics HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n")
                return int(there.makefile("rb").readline().split()[1])

        groups = b"X-Forwarded-Groups: administrator\r\n"
        for head, status in (
            (b"X-Forwarded-User: ana\r\n" + groups, 200),
            (b"X-Forwarded-User: ana\r\nx-forwarded-user: root\r\n" + groups, 400),
            (b"X-Forwarded-User: ana\r\n" + groups + groups, 400),
            (b"X-Forwarded-User: ana, root\r\n" + groups, 400),
            (b"X-Forwarded-User: ana\0\r\n" + groups, 400),
            (b"X-Forwarded-User: ana\r\n root\r\n" + groups, 400),
            (b"X-Forwarded-User: \xff\xfe\r\n" + groups, 400),
            (b"X-Forwarded-User: " + b"a" * 129 + b"\r\n" + groups, 400),
            (b"X-Forwarded-User: " + b"a" * 65536 + b"\r\n" + groups, 400),
            (b"X-Forwarded-User: ana\r\nX-Forwarded-Groups: " + b"g," * 5000 + b"\r\n", 400),
            (b"X-Forwarded-User:\r\n" + groups, 401),
            (b"X_Forwarded_User: ana\r\nX_Forwarded_Groups: administrator\r\n", 401),
            (groups, 401),
            (b"X-Forwarded-User: ana\r\n", 401),
        ):
            assert await asyncio.to_thread(raw, head) == status, head[:80]

    play(tmp_path, written(tmp_path, HEADER), story)


OIDC = '[oidc]\nissuer = "https://a.example"\nclient_id = "c"\nurl = "https://mq.example"\n'
FULL = OIDC + '[oidc.roles]\nviewer = ["staff"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "neither"),
        ("tokens = false\n", "neither"),
        ("toknes = false\n", "is no key"),
        (OIDC, "[oidc.roles] is missing"),
        (FULL.replace('client_id = "c"\n', ""), "client_id is missing"),
        (FULL.replace('url = "https://mq.example"\n', ""), "url is missing"),
        (FULL.replace("https://a", "http://a"), "in the clear"),
        (FULL.replace("https://a", "https://u:p@a"), "should look like"),
        (FULL.replace("staff", ""), "list of groups"),
        (FULL.replace("viewer", "root"), "is no key"),
        (OIDC + "[oidc.roles]\n", "names no group"),
        (OIDC + 'scopes = "profile"\n[oidc.roles]\nviewer = ["a"]\n', "need openid"),
        (HEADER.replace('from = ["127.0.0.1"]\n', ""), "from is a list"),
        (HEADER.replace("127.0.0.1", "0.0.0.0/0"), "is everybody"),
        (HEADER.replace("127.0.0.1", "proxy"), "from: "),
        (HEADER.replace('user = "X-Forwarded-User"\n', ""), "user is missing"),
        (HEADER.replace("X-Forwarded-User", "Cookie"), "is no header for that"),
        (HEADER.replace("X-Forwarded-User", "X-Forwarded-For"), "is no header for that"),
        (HEADER.replace('groups = "X-Forwarded-Groups"\n', ""), "give groups"),
        (HEADER.replace("Groups", "User"), "two headers"),
    ],
)
def test_half_of_a_login_file_is_refused_with_a_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        written(tmp_path, text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_login_file_that_does_not_fit_the_console_is_refused(tmp_path: Path) -> None:
    login = written(tmp_path, FULL)
    with pytest.raises(UsageError, match=r"--host mq\.example"):
        ConsoleConfig(login=login)
    with pytest.raises(UsageError, match="differ"):
        ConsoleConfig(login=login, hosts=("mq.example",), root_path="/mq")
    ConsoleConfig(login=login, hosts=("mq.example",))
    (tmp_path / "login.toml").chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        load(tmp_path / "login.toml")
