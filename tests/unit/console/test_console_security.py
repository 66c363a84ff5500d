"""Who may do what in the console, and what an attacker gets: real sockets, a real broker."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from console_harness import FORM, Browser, World, a_console, console_over
from roquet.base.clock import SystemClock
from roquet.base.errors import UsageError
from roquet.console import table
from roquet.console.accounts import hash_password
from roquet.console.config import ConsoleConfig, Limits
from roquet.console.roles import Role
from roquet.console.sessions import Sessions
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

SCRIPT = "<script>alert(1)</script>"


def play(
    folder: Path,
    story: Callable[[World], Awaitable[None]],
    limits: Limits | None = None,
    **config: Any,
) -> None:
    async def whole() -> None:
        async with a_console(folder, limits, **config) as world:
            await story(world)

    asyncio.run(whole())


async def _stored(who: Browser) -> dict[str, Any]:
    """Wait for the message of topic `t`: a stored message is in its queue a moment later."""
    end_s = time.monotonic() + 20
    rows: list[dict[str, Any]] = []
    while not rows and time.monotonic() < end_s:
        rows = (await who.get("/api/messages", topic="t")).json["rows"]
    (row,) = rows
    return row


def _token(world: World) -> str:
    return world.printed[-1].rpartition("#")[2]


def test_nobody_sees_or_does_anything_without_a_session(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        stranger = world.stranger()
        for view in (*table.VIEWS, *table.DOWNLOADS):
            answer = await stranger.get(view.path)
            assert (answer.status, answer.headers["location"]) == (303, "/login"), view.path
        for view in (*table.VIEWS, *table.DATA, *table.DOWNLOADS):
            assert (await stranger.get("/api" + view.path.rstrip("/"))).status == 401, view.path
        for action in table.ACTIONS:
            answer = await stranger.post(action.path)
            assert (answer.status, answer.headers["location"]) == (303, "/login"), action.path
            assert (await stranger.call(action.path)).status == 401, action.path
        assert (await stranger.get("/api/tail", topic="t")).status == 401
        liar = Browser(stranger.port, cookie="roquet_console=" + "A" * 43)
        assert (await liar.get("/")).status == 303
        bearer = {"authorization": "Bearer nonsense"}
        assert (await stranger.ask("GET", "/api/topics", None, bearer)).status == 401
        assert world.console.sessions.all(0.0) == []

    play(tmp_path, story)


def test_each_row_is_refused_to_the_role_below_its_own(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        for role in (Role.VIEWER, Role.OPERATOR):
            person = world.as_role(role, role.word)
            for view in (*table.VIEWS, *table.DATA):
                answer = await person.get("/api" + view.path.rstrip("/"))
                assert (answer.status == 403) == (view.role > role), (view.path, answer.text)
                if view.template:
                    page = await person.get(view.path)
                    assert (page.status == 403) == (view.role > role), view.path
            for action in table.ACTIONS:
                for answer in (await person.call(action.path), await person.post(action.path)):
                    assert (answer.status == 403) == (action.role > role), action.path
        rows = (await keeper.get("/api/audit", q="/topic/delete")).json["rows"]
        refused = [it for it in rows if it["action"] == "/topic/delete"]
        assert len(refused) == 4
        assert {it["who"] for it in refused} == {"viewer", "operator"}
        assert all("only for the role administrator" in it["outcome"] for it in refused)

    play(tmp_path, story)


def test_a_token_signs_in_once_and_a_new_one_is_printed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        stranger = world.stranger()
        token = _token(world)
        answer = await stranger.ask("POST", "/login", f"token={token}", {"content-type": FORM})
        assert (answer.status, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert len(world.printed) == 2
        again = await stranger.ask("POST", "/login", f"token={token}", {"content-type": FORM})
        assert (again.status, "was used" in again.text) == (401, True)
        body = json.dumps({"token": _token(world)})
        found = await stranger.ask("POST", "/api/login", body, {"content-type": "application/json"})
        assert found.json["role"] == "administrator"
        bearer = {"authorization": f"Bearer {found.json['session']}"}
        assert (await stranger.ask("GET", "/api/topics", None, bearer)).status == 200
        more = {**bearer, "content-type": "application/json"}
        made = await stranger.ask("POST", "/api/topic/create", '{"name": "by-bearer"}', more)
        assert made.status == 200, made.text

    play(tmp_path, story)


def test_sign_ins_that_fail_are_counted_and_then_refused(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(f'[ana]\nrole = "viewer"\npassword = "{hash_password("correct horse")}"\n')
    users.chmod(0o600)

    async def story(world: World) -> None:
        stranger = world.stranger()

        async def enter(name: str, password: str) -> int:
            body = f"name={name}&password={password}"
            return (await stranger.ask("POST", "/login", body, {"content-type": FORM})).status

        assert await enter("ana", "correct+horse") == 303
        assert await enter("ana", "wrong+horse") == 401
        assert await enter("nobody", "correct+horse") == 401
        assert await enter("ana", "x" * 4000) == 401
        assert await enter("ana", "correct+horse") == 429
        shown = (await world.administrator.get("/api/audit")).text
        assert "correct horse" not in shown
        assert "wrong horse" not in shown

    play(tmp_path, story, Limits(failures=3), users=users)


def test_failed_sign_ins_of_one_address_keep_no_other_address_out(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(f'[ana]\nrole = "viewer"\npassword = "{hash_password("correct horse")}"\n')
    users.chmod(0o600)

    async def story(world: World) -> None:
        stranger = world.stranger()

        async def enter(address: str, password: str) -> int:
            more = {"content-type": FORM, "x-forwarded-for": address}
            body = f"name=ana&password={password}"
            return (await stranger.ask("POST", "/login", body, more)).status

        # Tries at the same time do not slip through before the first has failed.
        tries = [enter("203.0.113.9", "guess") for _ in range(12)]
        assert sorted(await asyncio.gather(*tries)) == [401] * 3 + [429] * 9
        assert await enter("203.0.113.9", "correct+horse") == 429
        assert await enter("203.0.113.10", "correct+horse") == 303
        # A token that is good is taken from any other address.
        more = {"content-type": FORM, "x-forwarded-for": "203.0.113.11"}
        body = f"token={_token(world)}"
        assert (await stranger.ask("POST", "/login", body, more)).status == 303

    play(tmp_path, story, Limits(failures=3), users=users, proxy="127.0.0.1")


def test_counts_of_failed_sign_ins_are_bounded_and_fade() -> None:
    sessions = Sessions(Limits(failures=2, failures_all=5, failing_addresses=3))

    def may(address: str, now_s: float, *, has_password: bool = True) -> bool:
        return sessions.may_try(address, now_s, has_password=has_password)

    assert [may("10.0.0.1", 0.0) for _ in range(3)] == [True, True, False]
    # Hosts of one IPv6 network are one; an IPv4 address inside IPv6 is that address.
    assert [may("2001:db8::1", 1.0), may("2001:db8::2", 1.0)] == [True, True]
    assert not may("2001:db8::3%eth0", 1.0)
    assert not may("::ffff:10.0.0.1", 1.0)
    # Of all addresses together five passwords were tried; tokens are not guessed.
    assert may("10.0.0.2", 2.0)
    assert not may("10.0.0.3", 2.0)
    assert may("10.0.0.3", 2.0, has_password=False)
    assert may("10.0.0.1", 60.0)
    # What succeeds gives back its own try alone.
    assert may("10.0.0.4", 100.0)
    assert may("10.0.0.4", 100.0)
    sessions.succeeded("10.0.0.4", has_password=True)
    assert [may("10.0.0.4", 100.0), may("10.0.0.4", 100.0)] == [True, False]


def test_a_file_of_accounts_that_others_may_read_is_refused(tmp_path: Path) -> None:
    async def start(text: str, mode: int) -> None:
        file = tmp_path / "users.toml"
        file.write_text(text)
        file.chmod(mode)
        async with cluster(tmp_path / "c") as world, console_over(world, users=file):
            pytest.fail("it started")

    good = f'[ana]\nrole = "viewer"\npassword = "{hash_password("correct horse")}"\n'
    for text, mode, said in (
        (good, 0o644, "may be read by others"),
        (good.replace("viewer", "god"), 0o600, "is no role"),
        ('[ana]\nrole = "viewer"\npassword = "hunter22"\n', 0o600, "--hash-password"),
        ("[ana]\n", 0o600, "needs a role and a password"),
        ("[", 0o600, "--users"),
    ):
        with pytest.raises(UsageError, match=said):
            asyncio.run(start(text, mode))


def test_forms_of_other_sites_do_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        victim = world.administrator
        other = world.as_role(Role.ADMINISTRATOR, "eve")
        for token in ("", "nonsense", other.csrf):
            forged = Browser(victim.port, cookie=victim.cookie, csrf=token)
            assert (await forged.post("/topic/create", name="forged")).status == 403
            assert (await forged.call("/topic/create", name="forged")).status == 403
        plain = {"content-type": "text/plain"}
        body = f"csrf={victim.csrf}&name=forged"
        assert (await victim.ask("POST", "/topic/create", body, plain)).status == 415
        body = '{"name": "forged"}'
        more = {**plain, "x-csrf-token": victim.csrf}
        assert (await victim.ask("POST", "/api/topic/create", body, more)).status == 415
        assert (await victim.ask("GET", "/topic/create?name=forged")).status == 405
        away = {"content-type": FORM, "sec-fetch-site": "cross-site"}
        body = f"token={_token(world)}"
        assert (await world.stranger().ask("POST", "/login", body, away)).status == 403
        found = (await victim.get("/api/topics")).json
        assert found["rows"] == []
        assert (await victim.post("/topic/create", name="ours")).status == 303

    play(tmp_path, story)


def test_a_console_that_is_read_only_changes_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        for action in table.ACTIONS:
            answer = await keeper.call(action.path)
            is_refused = "this console is read-only" in answer.text
            assert is_refused == action.is_change, action.path
        assert "Create a topic" not in (await keeper.get("/topics")).text
        assert [it.path for it in table.ACTIONS if not it.is_change] == [
            "/people/invite",
            "/people/dismiss",
        ]

    play(tmp_path, story, read_only=True)


def test_without_its_audit_log_nothing_is_changed(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"

    async def kept(world: World) -> None:
        assert (await world.administrator.call("/topic/create", name="noted")).status == 200
        (line,) = [json.loads(it) for it in file.read_text().splitlines()]
        assert (line["who"], line["action"]) == ("ana", "/topic/create")
        assert line["target"]["name"] == "noted"
        assert line["address"] == "127.0.0.1"
        assert line["outcome"].startswith("done: topic noted created")
        assert file.stat().st_mode & 0o077 == 0

    play(tmp_path / "a", kept, audit_log=file)

    async def full(world: World) -> None:
        keeper = world.administrator
        # The first is what finds the disk full; nothing is done after it.
        await keeper.call("/topic/create", name="first")
        refused = await keeper.call("/topic/create", name="second")
        assert refused.status == 503
        assert "the audit log cannot be written" in refused.text
        assert [it["name"] for it in (await keeper.get("/api/topics")).json["rows"]] == ["first"]

    from pathlib import Path as Real  # noqa: PLC0415

    play(tmp_path / "b", full, audit_log=Real("/dev/full"))


def test_what_comes_from_the_cluster_is_text_on_every_page(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        assert (await keeper.call("/topic/create", name="t", queues=1)).status == 200
        sent = await keeper.call(
            "/topic/publish",
            topic="t",
            body=f'{{"a": "{SCRIPT}"}}',
            tag=SCRIPT,
            keys=f"{SCRIPT} \"onx='",
            properties=f"{SCRIPT}={SCRIPT}",
        )
        assert sent.status == 200, sent.text
        assert (await keeper.call("/group/create", name="g")).status == 200
        row = await _stored(keeper)
        assert row["tag"] == SCRIPT
        pages = [
            await keeper.get("/messages", topic="t"),
            await keeper.get("/message", topic="t", id=row["id"]),
            await keeper.get("/publish", topic="t", id=row["id"]),
            await keeper.get("/topic", name=SCRIPT),
            await keeper.get("/group", name=SCRIPT),
            await keeper.get("/topics", q=SCRIPT),
            await keeper.get("/messages", topic=SCRIPT, id=SCRIPT, key=SCRIPT),
            await keeper.get("/audit"),
            await keeper.get("/audit", q=SCRIPT),
            await keeper.get("/broker", address=SCRIPT),
            await keeper.post("/people/invite", name=SCRIPT, role="viewer"),
            await keeper.get("/people"),
        ]
        shown = 0
        for page in pages:
            assert "<script>alert" not in page.text
            assert page.headers["content-security-policy"].count("script-src 'self'") == 1
            assert "unsafe" not in page.headers["content-security-policy"]
            shown += page.text.count("&lt;script&gt;alert(1)")
        assert shown >= 20, "it is there, and escaped"

    play(tmp_path, story)


def test_halves_of_characters_are_refused_and_keep_no_page_from_anybody(tmp_path: Path) -> None:
    """JSON may escape half a character; an audit log that had one was shown to nobody any more."""

    async def story(world: World) -> None:
        half = "a\ud800b"
        stranger, keeper = world.stranger(), world.administrator
        entered = await stranger.call("/login", name=half, password=half)
        assert (entered.status, "surrogate" in entered.text) == (400, True)
        for role in (Role.OPERATOR, Role.ADMINISTRATOR):
            person = world.as_role(role, role.word)
            for path in ("/alerts/forget", "/message/consume", "/topic/publish"):
                answer = await person.call(path, name=half, id=half, body=half)
                assert (answer.status, "surrogate" in answer.text) == (400, True), path
            assert (await person.call("/alerts/forget", **{half: "x"})).status == 400
        # What the console did not ask for may have one as well.
        await world.as_role(Role.OPERATOR, half).call("/alerts/forget", name="nobody")
        body = json.dumps({"a": half})
        assert (await keeper.call("/topic/create", name="t", queues=1)).status == 200
        assert (await keeper.call("/topic/publish", topic="t", body=body)).status == 200
        row = await _stored(keeper)
        for page, fields in {"/audit": {}, "/message": {"topic": "t", "id": row["id"]}}.items():
            for root in ("", "/api"):
                answer = await keeper.get(root + page, **fields)
                assert (answer.status, "a?b" in answer.text) == (200, True), root + page

    play(tmp_path, story)


def test_pages_have_no_inline_script_or_style(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="t")
        for path in [it.path for it in table.VIEWS if not it.fields] + ["/topic?name=t"]:
            text = (await keeper.get(path)).text
            for part in text.split("<script")[1:]:
                assert part.lstrip().startswith("src="), path
            assert "<style" not in text, path
            assert " style=" not in text, path
            assert " onclick" not in text, path
            assert "http://" not in text.replace("http://www.w3.org", ""), path

    play(tmp_path, story)


def test_no_answer_takes_a_header_from_what_is_given(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        evil = "x\r\nset-cookie: owned=1"
        answers = [
            await keeper.get("/topic", name=evil),
            await keeper.post("/topic/create", name=evil),
            await keeper.post("/group/seek", group=evil, topic=evil, to="latest"),
            await keeper.post("/broker/set", address=evil, key=evil, value=evil),
            await keeper.ask("GET", "/%0d%0aset-cookie:%20owned=1"),
            await keeper.ask("GET", "//evil.example/%2f.."),
        ]
        for answer in answers:
            assert "owned" not in str(answer.headers)
            assert "evil.example" not in answer.headers.get("location", "")

    play(tmp_path, story)


def test_hosts_that_are_not_ours_get_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        for host, status in (
            ("127.0.0.1", 200),
            (f"localhost:{keeper.port}", 200),
            ("mq.example:443", 200),
            ("evil.example", 421),
            ("127.0.0.1.evil.example", 421),
            ("", 421),
        ):
            assert (await keeper.ask("GET", "/", None, {"host": host})).status == status, host

    play(tmp_path, story, hosts=("mq.example",))


def test_a_prefix_of_a_proxy_is_kept_in_every_link(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="t")
        outside = Browser(keeper.port, "/ops/mq", keeper.cookie, keeper.csrf)
        for asked in (keeper, outside):
            for path in ("/", "/topics", "/topic?name=t", "/groups", "/messages"):
                text = (await asked.get(path)).text
                assert 'href="/ops/mq/topics"' in text
                assert 'href="/topics' not in text
                assert 'action="/topic' not in text
                assert 'src="/static' not in text
            moved = await asked.post("/topic/alter", name="t", queues="9")
            assert moved.headers["location"] == "/ops/mq/topic?name=t"
        stranger = world.stranger()
        body = f"token={_token(world)}"
        entered = await stranger.ask("POST", "/ops/mq/login", body, {"content-type": FORM})
        assert "Path=/ops/mq" in entered.headers["set-cookie"]

    play(tmp_path, story, root_path="/ops/mq")


def test_behind_a_proxy_with_tls_the_cookie_is_secure(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        stranger = world.stranger()
        more = {
            "content-type": FORM,
            "x-forwarded-proto": "https",
            "x-forwarded-for": "203.0.113.9",
        }
        entered = await stranger.ask("POST", "/login", f"token={_token(world)}", more)
        assert "Secure" in entered.headers["set-cookie"]
        (row,) = (await world.administrator.get("/api/audit")).json["rows"]
        assert row["address"] == "203.0.113.9"

    play(tmp_path / "a", story, proxy="127.0.0.1")

    async def liar(world: World) -> None:
        more = {"content-type": FORM, "x-forwarded-for": "203.0.113.9"}
        await world.stranger().ask("POST", "/login", f"token={_token(world)}", more)
        (row,) = (await world.administrator.get("/api/audit")).json["rows"]
        assert row["address"] == "127.0.0.1"

    play(tmp_path / "b", liar)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bind": "0.0.0.0"}, "passwords would cross the network"),
        ({"root_path": "//evil"}, "--root-path"),
        ({"root_path": '/"><script>'}, "--root-path"),
        ({"root_path": "/mq/"}, "--root-path"),
    ],
)
def test_settings_that_give_the_console_away_are_refused(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        ConsoleConfig(**settings)


def test_huge_requests_are_cut_off(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="t")
        huge = await keeper.post("/topic/publish", topic="t", body="x" * (64 * 1024))
        assert huge.status == 413
        many = "&".join(f"f{number}=" for number in range(300))
        assert (
            await keeper.ask("POST", "/topic/create", many, {"content-type": FORM})
        ).status == 400
        assert (await keeper.get("/topics", q="x" * 301)).status == 400
        assert (await keeper.get("/topics", page="9" * 40)).status == 400
        assert (await keeper.get("/topics", nonsense="1")).status == 400
        deep = "[" * 30_000
        more = {"content-type": "application/json", "x-csrf-token": keeper.csrf}
        assert (await keeper.ask("POST", "/api/topic/create", deep, more)).status == 400
        assert (await keeper.ask("POST", "/api/topic/create", b"\xff", more)).status == 400
        long = await keeper.ask("GET", "/?" + "x" * 40_000)
        assert long.status in (400, 431)

    play(tmp_path, story, Limits(body=40_000))


def test_requests_that_do_not_come_to_an_end_are_ended(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator

        def half() -> bytes:
            with socket.create_connection(("127.0.0.1", keeper.port), timeout=20) as line:
                head = (
                    "POST /topic/create HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
                )
                line.sendall(head.encode())
                return line.recv(4096)

        assert b" 408 " in (await asyncio.to_thread(half)).partition(b"\r\n")[0]

    play(tmp_path, story, Limits(request_s=0.3))


def test_secrets_are_shown_to_nobody(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        address = world.cluster.address
        text = (await keeper.get("/broker", address=address, all="true")).text
        assert "replication-secret-7" not in text
        found = (await keeper.get("/api/broker", address=address, all="true")).json
        secrets = {
            it["name"]: it["value"] for it in found["settings"] if "secret" in it["name"].lower()
        }
        assert secrets
        assert set(secrets.values()) <= {"", "******"}
        for key in secrets:
            assert (
                await keeper.call("/broker/set", address=address, key=key, value="x")
            ).status == 400
        await keeper.call("/account/put", user="robot", secret="very-secret-9")
        made = await keeper.call("/people/invite", name="bob", role="viewer")
        shown = (await keeper.get("/audit")).text + (await keeper.get("/api/audit")).text
        assert "very-secret-9" not in shown
        assert made.json["token"] not in shown
        assert keeper.csrf not in (await keeper.get("/api/audit")).text

    async def whole() -> None:
        async with (
            cluster(tmp_path, haSharedSecret="replication-secret-7") as world,
            console_over(world) as console,
        ):
            await story(console)

    asyncio.run(whole())


def test_bodies_that_are_hidden_are_nowhere(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="t", queues=1)
        await keeper.call(
            "/topic/publish", topic="t", body="hidden-5", keys="hidden-5", properties="a=hidden-5"
        )
        row = await _stored(keeper)
        for path in ("/messages", "/message"):
            query = {"topic": "t", "id": row["id"]}
            assert "hidden-5" not in (await keeper.get("/api" + path, **query)).text
            assert "hidden-5" not in (await keeper.get(path, **query)).text
        assert (await keeper.get("/api/publish", topic="t", id=row["id"])).status == 400
        assert (await keeper.get("/api/messages", topic="t", text="hidden-5")).status == 400

    play(tmp_path, story, hide_bodies=True)


def test_a_session_ends_by_itself_and_by_an_administrator(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        bob = world.as_role(Role.VIEWER, "bob")
        keeper = world.administrator
        assert (await bob.get("/api/topics")).status == 200
        assert (await keeper.call("/people/dismiss", name="bob")).status == 200
        assert (await bob.get("/api/topics")).status == 401
        left = await keeper.post("/logout")
        assert left.headers["location"] == "/login"
        assert (await keeper.get("/api/topics")).status == 401

    play(tmp_path, story)

    async def idle(world: World) -> None:
        keeper = world.administrator
        end_s = time.monotonic() + 20
        while time.monotonic() < end_s:
            # A page that refreshes itself keeps nobody signed in.
            answer = await keeper.ask("GET", "/", None, {"hx-request": "true"})
            if answer.status == 303:
                return
            await SystemClock().sleep(0.1)
        pytest.fail("the session did not end")

    play(tmp_path / "idle", idle, Limits(idle_s=1.0))
