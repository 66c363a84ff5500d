"""Signing in with accounts of the cluster, 1.0 and 2.0: who gets in, and what they are shown."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from auth_harness import ANN, ROOT, SWITCHES, acl_command, entry, user_command
from console_harness import FORM, Browser, World, console_over
from roquet.acl.credentials import Credentials
from roquet.base.clock import SystemClock
from roquet.base.errors import UsageError
from roquet.client import connect
from roquet.console import table
from roquet.console.config import Limits
from roquet.console.login.settings import ClusterConfig, Login, load
from roquet.console.roles import Role
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from console_harness import Answer
    from roquet.testing.cluster import Cluster

KEEPER = Credentials("operator", "canary-of-operator")
BOB = Credentials("bob-of-shop", "canary-of-bob")
LOGIN = Login(cluster=ClusterConfig())
DRAINS = ("/broker/drain", "/broker/undrain")
JSON = {"content-type": "application/json"}


def plain_accounts(folder: Path, white: str = "") -> dict[str, str]:
    """Write accounts of access control 1.0; return the settings that make a broker ask for them."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "plain_acl.yml"
    file.write_text(
        "accounts:\n"
        f"- accessKey: {KEEPER.access_key}\n  secretKey: {KEEPER.secret_key}\n  admin: true\n"
        f"- accessKey: {BOB.access_key}\n  secretKey: {BOB.secret_key}\n  admin: false\n"
        "  defaultTopicPerm: DENY\n  defaultGroupPerm: DENY\n"
        "  topicPerms:\n  - shop=PUB|SUB\n  groupPerms:\n  - buyers=SUB\n"
        "  - TOOLS_CONSUMER=SUB\n"
        f"{white}"
    )
    file.chmod(0o600)
    return {"aclEnable": "true", "rocketmq.acl.plain.file": str(file)}


@contextlib.asynccontextmanager
async def of_1_0(
    folder: Path, limits: Limits | None = None, **config: Any
) -> AsyncGenerator[World]:
    config = {"login": LOGIN, **config}
    async with (
        cluster(folder, **plain_accounts(folder)) as world,
        console_over(world, limits, credentials=KEEPER, **config) as console,
    ):
        for name in ("shop", "secret"):
            assert (await console.administrator.call("/topic/create", name=name)).status == 200
        for name in ("buyers", "spies"):
            assert (await console.administrator.call("/group/create", name=name)).status == 200
        yield console


async def signed_in(world: World, who: Credentials, secret: str | None = None) -> Answer:
    given = {"access_key": who.access_key, "secret": secret or who.secret_key}
    return await world.stranger().ask("POST", "/api/login", json.dumps(given), JSON)


async def browser_of(world: World, who: Credentials) -> Browser:
    """Sign in as the page does; return a browser with the session."""
    stranger = world.stranger()
    page = await stranger.get("/login")
    assert "Access key of the cluster" in page.text
    body = f"access_key={who.access_key}&secret={who.secret_key}"
    answer = await stranger.ask("POST", "/login", body, {"content-type": FORM})
    assert (answer.status, answer.headers["location"]) == (303, "/"), answer.text
    cookie = answer.headers["set-cookie"].partition(";")[0]
    key = cookie.partition("=")[2]
    session = world.console.sessions.find(key, SystemClock().steady_ms() / 1000)
    assert session is not None
    return Browser(world.console.server.port, cookie=cookie, csrf=session.csrf)


def play(folder: Path, story: Callable[[World], Awaitable[None]], **more: Any) -> None:
    async def whole() -> None:
        async with of_1_0(folder, **more) as world:
            await story(world)

    asyncio.run(whole())


def test_an_account_of_1_0_sees_and_does_what_the_cluster_grants_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper, bob = world.administrator, await browser_of(world, BOB)
        page = await bob.get("/")
        assert (page.status, "cluster:bob-of-shop" in page.text) == (200, True)
        assert "account of the cluster" in page.text
        sent = await bob.call("/topic/publish", topic="shop", body="of bob")
        assert sent.status == 200, sent.text
        # The console's own account may do all of this.
        denied = await bob.call("/topic/publish", topic="secret", body="x")
        assert denied.status in (404, 409), denied.text
        assert (await bob.call("/topic/create", name="more")).status == 409
        assert (await bob.call("/topic/delete", name="secret", confirm="secret")).status in (
            404,
            409,
        )
        assert "secret" in (await keeper.get("/api/topics")).text
        assert (await bob.get("/api/topic", name="secret")).status in (404, 409)
        found = (await bob.get("/api/messages", topic="secret")).json
        assert "rows" not in found, found
        assert (await bob.get("/api/accounts")).json["rows"] == []
        rows = (await keeper.get("/api/audit", q="/topic/publish")).json["rows"]
        assert {(it["who"], it["outcome"].partition(":")[0]) for it in rows} == {
            ("cluster:bob-of-shop", "done"),
            ("cluster:bob-of-shop", "failed"),
        }
        # An administrator of the cluster may do it by the same console.
        root = await browser_of(world, KEEPER)
        assert (await root.call("/topic/create", name="more")).status == 200

    play(tmp_path, story)


def test_what_is_the_consoles_own_is_not_for_accounts_of_the_cluster(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        root = await browser_of(world, KEEPER)
        own = [it for it in (*table.VIEWS, *table.DATA) if it.is_own]
        assert {it.path for it in own} == {"/alerts", "/proxies", "/people", "/audit"}
        for view in own:
            assert (await root.get(view.path)).status == 403, view.path
            assert (await root.get("/api" + view.path)).status == 403, view.path
        actions = {it.path for it in table.ACTIONS if it.is_own}
        people = {"/people/invite", "/people/dismiss"}
        assert actions == {*people, "/alerts/forget", "/alerts/test", *DRAINS}
        for path in actions:
            answer = await root.call(path, name="x", role="administrator")
            assert answer.status in (400, 403), (path, answer.text)
        assert (await root.call("/people/dismiss", name="ana")).status == 403
        # Name servers of 1.0 check nobody, so an account would drain what it has no right to.
        bob = await browser_of(world, BOB)
        for path in DRAINS:
            assert (await bob.call(path, name="broker-a")).status == 403, path
        assert "drained" not in (await world.administrator.get("/brokers")).text.partition("<p")[0]
        page = (await root.get("/")).text
        for label in ("People", "Audit log", "Alerts", "Proxies"):
            assert f">{label}</a>" not in page

    play(tmp_path, story)


def test_what_the_console_samples_is_shown_as_far_as_the_account_may_read_it(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        account = connect(f"rmq://{world.cluster.name_servers}", credentials=KEEPER)
        async with account as mq:
            for group, topic in (("buyers", "shop"), ("spies", "secret")):
                async with mq.producer() as producer:
                    for _ in range(5):
                        await producer.send(topic, b"x")
                async with mq.consumer(group, topic, start="earliest") as consumer:
                    message = await consumer.receive(30)
                    assert message is not None
                    message.ack()
        end_s = time.monotonic() + 30
        behind: set[str] = set()
        while time.monotonic() < end_s and behind != {"buyers", "spies"}:
            behind = {it["group"] for it in (await keeper.get("/api")).json["behind"]}
            await SystemClock().sleep(0.2)
        assert behind == {"buyers", "spies"}
        for _ in range(3):
            await keeper.get("/api/group", name="spies")
        assert (await keeper.get("/api/group/lag", name="spies")).json["lag"]
        bob = await browser_of(world, BOB)
        seen = await bob.get("/api")
        assert "spies" not in seen.text
        assert [it["group"] for it in seen.json["behind"]] == ["buyers"]
        assert (seen.json["groups_seen"], seen.json["groups_known"]) == (0, 0)
        assert "spies" not in (await bob.get("/")).text
        assert (await bob.get("/api/group/lag", name="spies")).json["lag"] == []
        assert (await bob.get("/api/group/lag", name="buyers")).json["lag"] == []
        lag = (await keeper.get("/api/group", name="buyers")).json["lag"]
        points = len((await keeper.get("/api/group/lag", name="buyers")).json["lag"])
        await bob.get("/api/group", name="buyers")
        again = (await keeper.get("/api/group/lag", name="buyers")).json["lag"]
        assert (lag > 0, len(again) >= points) == (True, True)

    play(tmp_path, story)


def test_a_wrong_secret_and_an_unknown_account_are_told_the_same(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        said: set[tuple[int, str]] = set()
        for who, secret in (
            (BOB, "not-the-secret"),
            (Credentials("nobody-here", "x" * 12), None),
            (Credentials("a" * 129, "x"), None),
            (BOB, "x" * 2000),
            (BOB, "\n"),
        ):
            answer = await signed_in(world, who, secret)
            said.add((answer.status, answer.text))
        assert len(said) == 1, said
        ((status, text),) = said
        assert (status, "canary" in text) == (401, False)
        assert not any(it.is_account for it in world.console.sessions.all(0.0))
        audit = (await world.administrator.get("/api/audit", q="sign in")).text
        assert "does not know the account" in audit
        assert "not-the-secret" not in audit

    play(tmp_path, story)


def test_guesses_of_secrets_are_bounded(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        answers = await asyncio.gather(*(signed_in(world, BOB, f"guess-{it}") for it in range(20)))
        found = sorted(it.status for it in answers)
        assert found == [401] * 10 + [429] * 10
        assert (await signed_in(world, BOB)).status == 429, "also with the right one, for a minute"
        token = world.printed[-1].rpartition("#")[2]
        # A one-time token of another address is not kept out; this address has failed too often.
        answer = await world.stranger().ask(
            "POST", "/api/login", json.dumps({"token": token}), JSON
        )
        assert answer.status == 429

    play(tmp_path, story)


def test_a_cluster_that_checks_nobody_signs_nobody_in(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(tmp_path) as world, console_over(world, login=LOGIN) as console:
            answer = await signed_in(console, BOB)
            assert answer.status == 401
            audit = (await console.administrator.get("/api/audit", q="sign in")).text
            assert "broker-a takes any secret from this console" in audit
            assert console.console.sessions.all(0.0)[0].name == "ana"

    asyncio.run(story())


def test_an_account_that_needs_no_signature_from_here_does_not_sign_in(tmp_path: Path) -> None:
    async def story() -> None:
        white = "  whiteRemoteAddress: 127.0.0.1\n"
        async with (
            cluster(tmp_path, **plain_accounts(tmp_path, white)) as world,
            console_over(world, credentials=KEEPER, login=LOGIN) as console,
        ):
            assert (await signed_in(console, BOB)).status == 401
            assert (await signed_in(console, BOB, "anything")).status == 401
            assert (await signed_in(console, KEEPER)).status == 200

    asyncio.run(story())


def test_a_cluster_that_is_away_is_said_and_nobody_is_in(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            cluster(tmp_path, brokerIP1="127.0.0.2", **plain_accounts(tmp_path)) as world,
            console_over(world, credentials=KEEPER, login=LOGIN) as console,
        ):
            answer = await signed_in(console, BOB)
            assert (answer.status, "does not answer" in answer.text) == (502, True)

    asyncio.run(story())


def test_off_by_default_and_a_role_narrows_it(tmp_path: Path) -> None:
    async def off(world: World) -> None:
        assert "Access key" not in (await world.stranger().get("/login")).text
        answer = await signed_in(world, BOB)
        assert (answer.status, "--login" in answer.text) == (401, True)

    play(tmp_path / "off", off, login=Login())

    async def narrow(world: World) -> None:
        root = await browser_of(world, KEEPER)
        assert (await root.get("/api/topics")).status == 200
        refused = await root.call("/topic/create", name="more")
        assert (refused.status, "only for the role operator" in refused.text) == (403, True)

    play(tmp_path / "on", narrow, login=Login(cluster=ClusterConfig(role=Role.VIEWER)))


def test_a_session_ends_with_its_secret_and_its_client(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper, bob = world.administrator, await browser_of(world, BOB)
        assert (await bob.get("/api/topics")).status == 200
        held = [it for it in world.console.sessions.all(0.0) if it.is_account]
        assert BOB.secret_key not in repr(held)
        assert (await keeper.call("/people/dismiss", name="cluster:bob-of-shop")).status == 200
        assert (await bob.get("/api/topics")).status == 401
        assert [it.account for it in held] == [None]
        again = await browser_of(world, BOB)
        assert (await again.get("/api/topics")).status == 200
        assert (await again.post("/logout")).headers["location"] == "/login"
        assert (await again.get("/api/topics")).status == 401
        held.clear()
        gc.collect()
        left = [
            it
            for it in gc.get_objects()
            if isinstance(it, Credentials) and it is not BOB and it.access_key == BOB.access_key
        ]
        assert left == [], "no client or session keeps the secret"

    play(tmp_path, story)


def test_open_clients_and_sessions_of_an_account_are_few(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        clients = world.console.clients
        assert clients is not None
        people = [await browser_of(world, who) for who in (BOB, KEEPER, BOB, KEEPER)]
        for who in (*people, *people):
            assert (await who.get("/api/topics")).status == 200
            assert len(clients) <= 2
        answers = await asyncio.gather(*(it.get("/api/topics") for it in people))
        assert {it.status for it in answers} <= {200, 503}
        assert len(clients) <= 2
        for _ in range(2):
            await browser_of(world, BOB)
        now_s = SystemClock().steady_ms() / 1000
        mine = [it for it in world.console.sessions.all(now_s) if it.name == "cluster:bob-of-shop"]
        assert len(mine) == 3
        assert (await people[0].get("/api/topics")).status == 401, "the one idle for longest"
        end_s = time.monotonic() + 30
        while len(clients) and time.monotonic() < end_s:
            await SystemClock().sleep(0.1)
        assert len(clients) == 0, "closed when idle"
        assert (await people[2].get("/api/topics")).status == 200, "and opened again"

    limits = Limits(account_clients=2, account_idle_s=0.5, sessions_each=3)
    play(tmp_path, story, limits=limits)


def test_a_user_of_2_0_sees_what_its_policies_grant(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            cluster(tmp_path, **SWITCHES) as world,
            console_over(world, credentials=ROOT, login=LOGIN) as console,
        ):
            keeper = console.administrator
            for name in ("shop", "secret"):
                assert (await keeper.call("/topic/create", name=name)).status == 200
            body = {"password": ANN.secret_key, "userType": "Normal"}
            await _told(world, user_command(3001, "ann", body))
            policy = [entry("Topic:shop", "All"), entry("Cluster:*", "Get", "List")]
            await _told(world, acl_command(3006, "ann", policy))
            ann = await browser_of(console, ANN)
            sent = await ann.call("/topic/publish", topic="shop", body="of ann")
            assert sent.status == 200, sent.text
            denied = await ann.call("/topic/publish", topic="secret", body="x")
            assert denied.status in (404, 409), denied.text
            assert (await ann.call("/topic/create", name="more")).status == 409
            # Her password is changed at the cluster: what she asks is refused from then on.
            changed = {"password": "another-password", "userType": "Normal"}
            await _told(world, user_command(3002, "ann", changed))
            refused = await ann.call("/topic/publish", topic="shop", body="x")
            assert refused.status in (404, 409), refused.text
            assert (await signed_in(console, ANN)).status == 401
            assert (await signed_in(console, Credentials("ann", "another-password"))).status == 200
            await _told(world, user_command(3002, "ann", {"userStatus": "disable"}))
            assert (await signed_in(console, Credentials("ann", "another-password"))).status == 401

    asyncio.run(story())


async def _told(world: Cluster, command: Any) -> None:
    answer = await world.call(ROOT.sign(command))
    assert answer.code == 0, answer.remark


def test_an_account_of_one_cluster_is_nobody_at_another(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            cluster(tmp_path / "a", **plain_accounts(tmp_path / "a")) as one,
            cluster(tmp_path / "b") as two,
            console_over(one, credentials=KEEPER, login=LOGIN, others={"two": two}) as console,
        ):
            root = await browser_of(console, KEEPER)
            assert (await root.get("/api/topics")).status == 200
            for path in ("/c/two/api/topics", "/c/two/topics"):
                answer = await root.get(path)
                assert (answer.status, "another cluster" in answer.text) == (403, True)
            made = await root.call("/topic/create", name="x")
            assert made.status == 200
            root.root = "/c/two"
            assert (await root.call("/topic/create", name="x")).status == 403
            assert (await root.get("/api/tail", topic="x")).status == 403

    asyncio.run(story())


def test_a_tail_of_an_account_is_its_own_and_ends_with_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        bob = await browser_of(world, BOB)
        assert (await bob.get("/api/tail", topic="secret")).status in (404, 409)
        port = world.console.server.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f"GET /api/tail?topic=shop HTTP/1.1\r\nHost: localhost\r\nCookie: {bob.cookie}\r\n\r\n"
        )
        writer.write(head.encode())
        await asyncio.wait_for(reader.readuntil(b"event: ready"), 20)
        await bob.call("/topic/publish", topic="shop", body="followed")
        await asyncio.wait_for(reader.readuntil(b"followed"), 20)
        world.console.sessions.end_all("cluster:bob-of-shop")
        await asyncio.wait_for(reader.readuntil(b"event: end"), 20)
        writer.close()
        clients = world.console.clients
        assert clients is not None
        end_s = time.monotonic() + 30
        while len(clients) and time.monotonic() < end_s:
            await SystemClock().sleep(0.1)
        assert len(clients) == 0

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cluster = true", "cluster should be a table"),
        ('[cluster]\nrole = "king"', "'king' is no role"),
        ("[cluster]\nroles = []", "is no key: role"),
        ("tokens = false", "nor [cluster]"),
    ],
)
def test_half_of_a_login_file_for_accounts_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "login.toml"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(UsageError) as raised:
        load(file)
    assert said in str(raised.value)


def test_a_login_file_may_have_accounts_of_the_cluster_alone(tmp_path: Path) -> None:
    file = tmp_path / "login.toml"
    file.write_text('tokens = false\n[cluster]\nrole = "operator"\n')
    file.chmod(0o600)
    assert load(file) == Login(tokens=False, cluster=ClusterConfig(role=Role.OPERATOR))
    assert dataclasses.replace(load(file), tokens=True).cluster is not None
