"""Alerts: when they are raised and over, and how they are posted."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.server
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from console_harness import console_over
from roquet.base.errors import UsageError
from roquet.client import connect
from roquet.console.alerts.rules import Alert, AlertRules, Alerts, Seen, load
from roquet.console.alerts.webhook import SIGNATURE, Webhook, post
from roquet.console.app import build
from roquet.console.config import ConsoleConfig
from roquet.console.roles import Role
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import cluster
from roquet.testing.process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from roquet.client import MQ

RULES = AlertRules(lag=100, lag_of={"vip": 10, "batch": 0}, disk=80, gone=30, hold=60)


def seen(**given: Any) -> Seen:
    return Seen(**{"lags": {}, "disks": {}, "nodes": {}, **given})


def test_lag_is_raised_when_it_has_held_and_over_with_distance_to_its_limit() -> None:
    alerts = Alerts(RULES)
    steps: tuple[tuple[int, int, list[str]], ...] = (
        (0, 101, []),
        (59, 150, []),
        (60, 200, ["raised"]),
        (61, 90, []),
        (62, 101, []),
        (63, 80, ["over"]),
        (64, 101, []),
        (100, 100, []),
        (124, 101, []),
        (184, 101, ["raised"]),
    )
    for at_s, lag, expected in steps:
        changes = alerts.judge(at_s * 1000, seen(lags={"g": lag}))
        assert [event for event, _ in changes] == expected, at_s
    (again,) = alerts.open.values()
    assert (again.since_ms, again.limit) == (124_000, 100)
    (past,) = alerts.past
    assert (past.since_ms, past.over_ms, past.id) == (0, 63_000, "lag:g:0")


@pytest.mark.parametrize(
    ("node", "gone", "back"),
    [
        ("broker b:0", "broker b:0 does not answer or has left", "broker b:0 answers"),
        ("name servers", "name servers do not answer", "name servers answer"),
    ],
)
def test_alert_of_a_missing_node_says_so_in_correct_english(
    node: str, gone: str, back: str
) -> None:
    alerts = Alerts(RULES)
    assert alerts.judge(0, seen(nodes={node: False})) == []
    ((event, alert),) = alerts.judge(30_000, seen(nodes={node: False}))
    assert (event, alert.text) == ("raised", gone)
    ((event, alert),) = alerts.judge(31_000, seen(nodes={node: True}))
    assert (event, alert.text) == ("over", back)


def test_limits_by_name_count_before_the_general_one_and_zero_is_never() -> None:
    alerts = Alerts(RULES)
    lags = {"vip": 11, "batch": 10**9, "other": 11}
    alerts.judge(0, seen(lags=lags))
    changes = alerts.judge(60_000, seen(lags=lags))
    assert [it.subject for _, it in changes] == ["vip"]
    never = Alerts(AlertRules(lag=0, disk=0, hold=0, gone=0))
    assert never.judge(0, seen(lags=lags, disks={"b": 1.0})) == []


def test_disk_and_node_alerts_end_when_all_is_well_or_what_they_are_about_is_gone() -> None:
    alerts = Alerts(RULES)
    bad = seen(disks={"b:0": 0.81}, nodes={"broker b:0": False})
    assert alerts.judge(0, bad) == []
    assert [it.kind for _, it in alerts.judge(30_000, bad)] == ["gone"]
    assert [it.kind for _, it in alerts.judge(60_000, bad)] == ["disk"]
    better = seen(disks={"b:0": 0.79}, nodes={"broker b:0": True})
    assert [(event, it.kind) for event, it in alerts.judge(61_000, better)] == [("over", "gone")]
    assert [it.text for _, it in alerts.judge(62_000, seen())] == ["it is not there any more"]
    assert alerts.open == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lag = -1", "lag should be a whole number"),
        ("lag = true", "lag should be a whole number"),
        ("disk = 101", "of 0 to 100"),
        ("lags = 1", "'lags' is no key"),
        ("lag_of = 1", "should be a table"),
        ("[lag_of]\nx = 'y'", "whole number"),
        ("[webhook]\nurl = 'ftp://x/y'", "https://host/path"),
        ("[webhook]\nurl = 'https://ana:secret@x/y'", "https://host/path"),
        ("[webhook]\nurl = 1", "are texts"),
        ("[webhook]\nkey = '1'", "'key' is no key"),
        ("lag = ", "--alerts"),
    ],
)
def test_rules_that_are_wrong_are_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "alerts.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        load(file)


def test_rules_are_read_and_their_secret_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "alerts.toml"
    file.write_text('lag = 5\n[lag_of]\nvip = 1\n[webhook]\nurl = "https://h/p"\nsecret = "s3"\n')
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        load(file)
    file.chmod(0o600)
    rules = load(file)
    assert (rules.lag, rules.lag_of, rules.disk, rules.secret) == (5, {"vip": 1}, 85, "s3")
    assert "s3" not in repr(rules)
    with pytest.raises(UsageError, match="No such file"):
        load(tmp_path / "none")


class Receiver:
    """An HTTP server that keeps what is posted, and answers with statuses in turn."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.got.append((dict(self.headers.items()), body))
                self.send_response(outer.statuses.pop(0) if outer.statuses else 204)
                self.end_headers()

            # typing.override came with Python 3.12.
            def log_message(self, *_: object) -> None:  # type: ignore[explicit-override]
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?room=1"

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


ALERT = Alert(kind="lag", subject="g", value=7, limit=5, text="behind", since_ms=1)


def test_an_alert_is_posted_signed_and_tried_again_in_order(receiver: Receiver) -> None:
    clock = FakeClock()
    rules = AlertRules(url=receiver.url, secret="key")
    webhook = Webhook(rules, clock)
    receiver.statuses = [500, 302]

    async def story() -> None:
        webhook.put("raised", ALERT, "prod")
        webhook.put("over", ALERT, "prod")
        await webhook.tick()
        assert (len(receiver.got), webhook.posted, webhook.waiting) == (1, 0, 2)
        assert "status 500" in webhook.wrong
        await webhook.tick()
        assert len(receiver.got) == 1, "not before its pause is over"
        await clock.advance(1.0)
        await webhook.tick()
        assert "status 302" in webhook.wrong, "redirects are not followed"
        await clock.advance(2.0)
        await webhook.tick()

    asyncio.run(story())
    assert (webhook.posted, webhook.waiting, webhook.lost, webhook.wrong) == (2, 0, 0, "")
    assert [it["event"] for it in receiver.events()] == ["raised", "raised", "raised", "over"]
    headers, body = receiver.got[-1]
    assert headers[SIGNATURE] == f"sha256={hmac.new(b'key', body, hashlib.sha256).hexdigest()}"
    first = receiver.events()[0]
    assert (first["cluster"], first["text"], first["id"]) == ("prod", "raised: behind", "lag:g:1")


def test_an_alert_that_nobody_takes_is_counted_as_lost(receiver: Receiver) -> None:
    clock = FakeClock()
    receiver.statuses = [500] * 10
    webhook = Webhook(AlertRules(url=receiver.url), clock)

    async def story() -> None:
        webhook.put("raised", ALERT, "prod")
        webhook.put("over", ALERT, "prod")
        for _ in range(11):
            await webhook.tick()
            await clock.advance(60.0)

    asyncio.run(story())
    assert (webhook.lost, webhook.posted, webhook.waiting) == (1, 1, 0)
    for _ in range(201):
        webhook.put("raised", ALERT, "prod")
    assert (webhook.waiting, webhook.lost) == (200, 2)
    receiver.got.clear()
    post(AlertRules(url=receiver.url), {"a": 1})
    assert SIGNATURE not in receiver.got[0][0]


async def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s
        await asyncio.sleep(0.1)


def test_lag_and_a_broker_that_is_gone_are_posted_while_nobody_looks(
    tmp_path: Path, receiver: Receiver
) -> None:
    rules = AlertRules(lag=3, hold=0, gone=0, url=receiver.url)

    async def story() -> None:
        async with cluster(tmp_path / "a") as world, console_over(world, rules=rules) as console:
            async with connect(f"rmq://{world.name_servers}") as mq:
                await mq.admin().topics.create("t", 1)
                async with mq.consumer("slow", "t", start="earliest") as consumer:
                    async with mq.producer("p") as producer:
                        for number in range(10):
                            await producer.send("t", str(number))
                    async for message in consumer:
                        message.ack()
                        break
            await until(lambda: any(it["kind"] == "lag" for it in receiver.events()))
            (event,) = [it for it in receiver.events() if it["kind"] == "lag"]
            assert (event["event"], event["subject"], event["limit"]) == ("raised", "slow", 3)
            keeper = console.as_role(Role.OPERATOR)
            page = (await keeper.get("/alerts")).text
            assert "slow is behind by" in page
            assert "/hook" not in page
            assert "slow is behind by" in (await keeper.get("/")).text
            done = await keeper.call("/alerts/test")
            assert done.status == 200, done.text
            await until(lambda: any(it["kind"] == "test" for it in receiver.events()))
            (tmp_path / "b").mkdir()
            second = BrokerProcess(
                tmp_path / "b", brokerName="broker-b", namesrvAddr=world.name_servers
            )
            try:
                async with second.client():
                    gone = "broker broker-b:0"
                    nodes = console.console.watches[0].nodes
                    await until(lambda: gone in nodes())
            finally:
                second.kill()
            await until(lambda: any(it["kind"] == "gone" for it in receiver.events()))
            (event,) = [it for it in receiver.events() if it["kind"] == "gone"]
            assert (event["event"], event["subject"]) == ("raised", gone)
            viewer = console.as_role(Role.VIEWER, "bob")
            calls = ((viewer, gone, 403), (keeper, "nothing", 404), (keeper, gone, 200))
            for who, name, status in calls:
                assert (await who.call("/alerts/forget", name=name)).status == status

    asyncio.run(story())


async def _behind(mq: MQ, group: str) -> None:
    await mq.admin().topics.create("t", 1)
    async with mq.consumer(group, "t", start="earliest") as consumer:
        async with mq.producer("p") as producer:
            for number in range(10):
                await producer.send("t", str(number))
        async for message in consumer:
            message.ack()
            break


def test_alerts_go_on_after_a_restart_and_nothing_is_raised_twice(
    tmp_path: Path, receiver: Receiver
) -> None:
    state = tmp_path / "alerts.json"
    rules = AlertRules(lag=3, hold=0, gone=0, url=receiver.url)
    receiver.statuses = [500] * 3

    async def story() -> None:
        async with cluster(tmp_path / "a") as world:
            async with connect(f"rmq://{world.name_servers}") as mq:
                await _behind(mq, "slow")
            async with console_over(world, rules=rules, alerts_state=state) as first:
                (watch,) = first.console.watches
                await until(lambda: watch.webhook.waiting > 0)
                ((key, alert),) = watch.alerts.open.items()
            assert state.stat().st_mode & 0o077 == 0
            async with console_over(world, rules=rules, alerts_state=state) as second:
                (watch,) = second.console.watches
                assert watch.alerts.open == {key: alert}
                assert watch.nodes()["broker broker-a:0"]
                # What waited is posted now; the look that follows raises and ends nothing.
                await until(lambda: watch.webhook.posted > 0)
                await watch.tick()
                assert watch.alerts.open[key].id == alert.id
                assert list(watch.alerts.past) == []
        assert {(it["event"], it["id"]) for it in receiver.events()} == {("raised", alert.id)}

    asyncio.run(story())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"form": 2, "clusters": {}}',
        '{"form": 1, "clusters": {"NAME": {"open": [{}]}}}',
        '{"form": 1, "clusters": {"NAME": {"open": [1]}}}',
        '{"form": 1, "clusters": {"NAME": {"since": [["lag"]]}}}',
        '{"form": 1, "clusters": {"NAME": {"nodes": 5}}}',
        '{"form": 1, "clusters": {"NAME": {"waiting": [7]}}}',
        '{"form": 1, "clusters": {"NAME": 7}}',
    ],
)
def test_state_of_alerts_that_cannot_be_read_ends_the_start(tmp_path: Path, text: str) -> None:
    state = tmp_path / "alerts.json"
    state.write_text(text.replace("NAME", "127.0.0.1:1"))
    config = ConsoleConfig(port=0, cluster="127.0.0.1:1", alerts_state=state)
    with pytest.raises(UsageError, match="--alerts-state"):
        build(config, connect("rmq://127.0.0.1:1"), FakeClock(), lambda _: None)
    assert state.read_text() == text.replace("NAME", "127.0.0.1:1")


def test_state_of_alerts_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    config = ConsoleConfig(port=0, cluster="x", alerts_state=tmp_path / "none" / "alerts.json")
    with pytest.raises(UsageError, match=r"--alerts-state .*No such file"):
        build(config, connect("rmq://127.0.0.1:1"), FakeClock(), lambda _: None)


def test_several_clusters_have_pages_of_their_own_and_one_sign_in(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            cluster(tmp_path / "a") as first,
            cluster(tmp_path / "b") as second,
            console_over(first, others={"two": second}, root_path="/mq") as world,
        ):
            keeper = world.administrator
            assert (await keeper.call("/topic/create", name="only-here")).status == 200
            made = await keeper.ask(
                "POST",
                "/c/two/api/topic/create",
                json.dumps({"name": "only-there"}),
                {"content-type": "application/json", "x-csrf-token": keeper.csrf},
            )
            assert made.status == 200, made.text
            for root, name in (("/mq", "only-here"), ("/mq/c/two", "only-there")):
                found = (await keeper.get(f"{root}/api/topics")).json["rows"]
                assert [it["name"] for it in found] == [name]
                page = (await keeper.get(f"{root}/topics")).text
                assert f'href="{root}/topic?name={name}"' in page
                assert 'href="/mq/c/two/"' in page
                assert 'action="/mq/logout"' in page
                assert "/mq/static/console.css" in page
                assert "/c/two/static" not in page
                missing = await keeper.get(f"{root}/nowhere")
                assert (missing.status, "Page not found" in missing.text) == (404, True)
                wrong = await keeper.get(f"{root}/api/nowhere")
                assert (wrong.status, list(wrong.json)) == (404, ["error"])
                for path in ("/api/topics", "/api"):
                    unknown = await keeper.get(f"{root}/c/none{path}")
                    assert (unknown.status, list(unknown.json)) == (404, ["error"])
                    assert unknown.json["error"] == "there is no cluster 'none' here"
                unknown = await keeper.get(f"{root}/c/none/topics")
                assert (unknown.status, "there is no cluster" in unknown.text) == (404, True)
                stranger = await world.stranger().get(f"{root}/topics")
                assert stranger.headers["location"] == "/mq/login"
            rows = (await keeper.get("/api/audit")).json["rows"]
            assert "cluster=two" in rows[0]["target"]
            about = (await keeper.get("/mq/c/two/api/openapi.json")).json
            assert about["servers"] == [{"url": "/mq/c/two"}]

    asyncio.run(story())
