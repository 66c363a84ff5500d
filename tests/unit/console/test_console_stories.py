"""What operators do with the console, through its JSON API, against a real broker."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from tools import vendor_console

from console_harness import World, a_console, console_over
from roquet.base.clock import SystemClock
from roquet.client import connect
from roquet.console import table
from roquet.console.config import Limits
from roquet.console.roles import Role
from roquet.console.web.render import said_number
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.testing.cluster import cluster
from roquet.testing.process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from console_harness import Browser

PAGE_MAX = 300 * 1024
TAIL = "GET /api/tail?topic=t HTTP/1.1\r\nHost: localhost\r\nCookie: {}\r\n\r\n"
FORGED = "line one\nevent: forged\n\ndata: x"


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


async def _sent(who: Browser, topic: str, count: int, **more: str) -> list[dict[str, Any]]:
    found = []
    for number in range(count):
        answer = await who.call("/topic/publish", topic=topic, body=f"m{number}", **more)
        assert answer.status == 200, answer.text
        found.append(answer.json)
    return found


async def _rows(who: Browser, count: int, path: str, **query: str) -> list[dict[str, Any]]:
    """Wait until a page has so many rows: a stored message is in its queue a moment later."""
    end_s = SystemClock().steady_ms() + 20_000
    while True:
        answer = await who.get("/api" + path, **query)
        rows: list[dict[str, Any]] = answer.json.get("rows", [])
        if len(rows) >= count or SystemClock().steady_ms() > end_s:
            assert len(rows) == count, answer.text
            return rows


def test_every_page_and_call_answers(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="t", queues=2)
        await keeper.call("/group/create", name="g")
        await _sent(keeper, "t", 3)
        (row, *_) = await _rows(keeper, 3, "/messages", topic="t")
        address = world.cluster.address
        given = {
            "/topic": {"name": "t"},
            "/publish": {"topic": "t"},
            "/group": {"name": "g"},
            "/group/lag": {"name": "g"},
            "/group/seek": {"group": "g", "topic": "t", "to": "earliest"},
            "/message": {"topic": "t", "id": row["id"]},
            "/broker": {"address": address, "all": "true"},
        }
        missing = {"/group/member", "/dead/group"}  # shown by tests of their own
        for view in (*table.VIEWS, *table.DATA):
            if view.path in missing:
                continue
            query = given.get(view.path, {})
            data = await keeper.get("/api" + view.path.rstrip("/"), **query)
            assert data.status == 200, (view.path, data.text)
            assert data.json["left_out"] == {}
            if view.template:
                page = await keeper.get(view.path, **query)
                assert page.status == 200, (view.path, page.text)
                assert f"<title>{view.title}" in page.text
                assert len(page.body) < PAGE_MAX

    play(tmp_path, story)


def test_the_document_of_the_api_has_every_call(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        about = (await world.stranger().get("/api/openapi.json")).json
        assert about["openapi"] == "3.1.0"
        gets = {path for path, it in about["paths"].items() if "get" in it}
        posts = {path for path, it in about["paths"].items() if "post" in it}
        rows = (*table.VIEWS, *table.DATA, *table.DOWNLOADS)
        assert gets == {"/api" + it.path.rstrip("/") for it in rows}
        assert posts == {"/api" + it.path for it in table.ACTIONS}
        keeper = world.administrator
        for path, calls in about["paths"].items():
            if "post" not in calls:
                continue
            body = calls["post"]["requestBody"]["content"]["application/json"]["schema"]
            # A value of the wrong kind for each field that is there: never an error of ours.
            for name, kind in body["properties"].items():
                wrong: Any = {"integer": "x", "boolean": "maybe"}.get(kind["type"], {"a": 1})
                answer = await keeper.call(path.removeprefix("/api"), **{name: wrong})
                assert answer.status == 400, (path, name, answer.text)
                assert answer.json["error"]
            assert (await keeper.call(path.removeprefix("/api"), nonsense=1)).status == 400

    play(tmp_path, story)


def test_a_topic_is_created_altered_and_deleted_by_typing_its_name(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        made = await keeper.call("/topic/create", name="orders", queues=4, type="FIFO")
        assert made.json["done"] == "topic orders created on broker-a, 4 queues on each"
        again = await keeper.call("/topic/create", name="orders")
        assert (again.status, "there is a topic orders" in again.text) == (409, True)
        (row,) = (await keeper.get("/api/topics")).json["rows"]
        assert (row["name"], row["queues"], row["type"]) == ("orders", 4, "FIFO")
        await _sent(keeper, "orders", 8)
        smaller = await keeper.call("/topic/alter", name="orders", queues=1)
        assert smaller.status == 400
        assert "messages are in queues that would be taken away" in smaller.text
        done = await keeper.call("/topic/alter", name="orders", queues=1, confirm="orders")
        assert done.status == 200, done.text
        shown = (await keeper.get("/api/topic", name="orders")).json
        assert shown["configs"][0]["read_queues"] == 1
        assert shown["configs"][0]["attributes"] == {"message.type": "FIFO"}
        for typed in ("", "order", "ORDERS"):
            assert (await keeper.call("/topic/delete", name="orders", confirm=typed)).status == 400
        assert (await keeper.call("/topic/delete", name="nope", confirm="nope")).status == 404
        system = await keeper.call("/topic/delete", name="TBW102", confirm="TBW102")
        assert (system.status, "of the system" in system.text) == (400, True)
        gone = await keeper.call("/topic/delete", name="orders", confirm="orders")
        assert gone.status == 200, gone.text
        assert (await keeper.get("/api/topics")).json["rows"] == []
        assert (await keeper.get("/topic", name="orders")).status == 404

    play(tmp_path, story)


def test_a_message_is_found_before_it_is_due_by_its_key_or_id(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="later", queues=1)
        async with (
            connect(f"rmq://{world.cluster.name_servers}") as mq,
            mq.producer() as producer,
        ):
            made = await producer.send("later", b"in ten minutes", keys="k1", delay=600)
        page = await keeper.get("/waiting")
        assert 'name="topic" value="rmq_sys_wheel_timer"' in page.text
        for key in ("k1", made.message_id):
            (row,) = await _rows(keeper, 1, "/messages", topic="rmq_sys_wheel_timer", key=key)
            shown = await keeper.get("/message", topic="rmq_sys_wheel_timer", id=row["id"])
            assert "in ten minutes" in shown.text
            assert made.message_id in shown.text
        assert (await keeper.get("/api/messages", topic="later")).json["rows"] == []

    play(tmp_path, story)


def test_nothing_is_published_to_a_topic_that_is_not_there(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        answer = await keeper.call("/topic/publish", topic="typo", body="x")
        assert answer.status == 404
        assert (await keeper.get("/api/topics")).json["rows"] == []
        await keeper.call("/topic/create", name="t")
        large = "x" * (256 * 1024 + 1)
        refused = await keeper.call("/topic/publish", topic="t", body=large)
        assert (refused.status, "at most 262144 here" in refused.text) == (400, True)
        wrong = await keeper.call("/topic/publish", topic="t", body="x", properties="no equals")
        assert wrong.status == 400

    play(tmp_path, story)


def test_a_group_goes_on_exactly_where_the_preview_said(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="t", queues=1)
        await _sent(keeper, "t", 10)
        async with (
            connect(f"rmq://{world.cluster.name_servers}") as mq,
            mq.consumer("g", "t", start="earliest") as consumer,
        ):
            count = 0
            async for message in consumer:
                message.ack()
                count += 1
                if count == 10:
                    break
        (row,) = (await keeper.get("/api/groups")).json["rows"]
        assert (row["name"], row["lag"], row["members"]) == ("g", 0, 0)
        seen = (await keeper.get("/api/group/seek", group="g", topic="t", to="earliest")).json
        assert (seen["repeated"], seen["skipped"]) == (10, 0)
        assert (await keeper.get("/api/group", name="g")).json["lag"] == 0, "a look does nothing"
        # What arrives between preview and reset changes nothing of what was confirmed.
        await _sent(keeper, "t", 2)
        page = await keeper.post("/group/seek", group="g", topic="t", exact=seen["exact"])
        assert page.status == 303
        after = (await keeper.get("/api/group", name="g")).json
        assert after["lag"] == 12
        assert [it["offset"] for it in after["queues"] if it["topic"] == "t"] == [0]
        latest = await keeper.call("/group/seek", group="g", topic="t", to="latest")
        assert latest.json["done"].endswith("0 messages again, 12 skipped")
        for wrong in ({"to": "later"}, {"exact": ["broker-a:0:99"]}, {"exact": ["x"]}, {}):
            answer = await keeper.call("/group/seek", group="g", topic="t", **wrong)
            assert answer.status == 400, wrong
        assert (await keeper.call("/group/seek", group="no", topic="t", to="latest")).status == 404

    play(tmp_path, story)


def test_a_member_is_shown_with_its_queues(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="t", queues=1)
        async with (
            connect(f"rmq://{world.cluster.name_servers}") as mq,
            mq.consumer("g", "t", start="earliest") as consumer,
        ):
            await _sent(keeper, "t", 1)
            async for _ in consumer:
                break
            shown = (await keeper.get("/api/group", name="g")).json
            (member,) = shown["members"]
            assert {"topic": "t", "type": "TAG", "expression": "*"} in shown["subscriptions"]
            preview = await keeper.get("/group/seek", group="g", topic="t", to="latest")
            assert "Members online: 1. " in preview.text
            async with mq.producer("shop") as producer:
                await producer.send("t", b"one")
                rows = await _rows(keeper, 1, "/producers")
                assert [it["group"] for it in rows] == ["shop"]
                assert rows[0]["address"].startswith("127.0.0.1:")
            info = await keeper.get("/api/group/member", group="g", client=member["client"])
            assert info.status == 200, info.text
            assert any(it["topic"] == "t" for it in info.json["queues"])
            page = await keeper.get("/group/member", group="g", client=member["client"])
            assert member["client"] in page.text
            assert ">Consumed, msg/s</th>" in page.text
            assert ">Last pull</th>" in page.text
            assert info.json["stacks"] == ""
            asked = {"group": "g", "client": member["client"], "stacks": "true"}
            threads = await keeper.get("/group/member", **asked)
            assert "&#34;MainThread&#34; thread=" in threads.text
        assert (await keeper.get("/group/member", group="g", client="gone")).status == 409

    play(tmp_path, story)


def test_messages_are_found_by_id_key_time_tag_filter_and_text(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="t", queues=2)
        await _sent(keeper, "t", 3, tag="a", keys="k1", properties="amount=5")
        (one,) = await _sent(keeper, "t", 1, tag="b", keys="k2", properties="amount=50")

        await _rows(keeper, 4, "/messages", topic="t")

        async def found(**query: str) -> list[str]:
            answer = await keeper.get("/api/messages", topic="t", **query)
            assert answer.status == 200, answer.text
            return [it["preview"] for it in answer.json["rows"]]

        assert sorted(await found()) == ["m0", "m0", "m1", "m2"]
        assert await found(key="k2") == ["m0"]
        assert await found(id=one["id"]) == ["m0"]
        assert await found(tag="b") == ["m0"]
        assert await found(sql="amount > 10") == ["m0"]
        assert await found(text="m2") == ["m2"]
        await keeper.call("/topic/publish", topic="t", body="x" * 500, keys="long")
        await _rows(keeper, 5, "/messages", topic="t")
        (cut,) = await found(key="long")
        assert cut.strip("x") == "…", "what is cut says so"
        assert await found(since="2020-01-01", until="2020-01-02") == []
        for wrong in ({"since": "x"}, {"sql": "amount >"}, {"until": "yesterday"}):
            assert (await keeper.get("/api/messages", topic="t", **wrong)).status == 400
        assert (await keeper.get("/api/messages", topic="nope")).status == 404

    play(tmp_path, story)


def test_a_search_ends_at_its_limit_and_says_so(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="t", queues=1)
        await _sent(keeper, "t", 40)
        await _rows(keeper, 10, "/messages", topic="t")
        answer = (await keeper.get("/api/messages", topic="t", text="nothing")).json
        assert (answer["rows"], answer["scanned"], answer["is_whole"]) == ([], 10, False)
        page = await keeper.get("/messages", topic="t", text="nothing")
        assert "This is not all" in page.text

    play(tmp_path, story, Limits(scanned=10))


def test_a_message_is_shown_as_json_text_and_hex_and_sent_again(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="t", queues=1)
        await keeper.call("/topic/create", name="other", queues=1)
        await world.cluster.send("t", b'{"b":1,"a":[2]}')
        await world.cluster.send("t", bytes(range(256)))
        await world.cluster.send("t", b"x" * 400_000)
        rows = await _rows(keeper, 3, "/messages", topic="t")
        by_offset = {it["offset"]: it["id"] for it in rows}
        shown = (await keeper.get("/api/message", topic="t", id=by_offset[0])).json
        assert json.loads(shown["body"]["json"]) == {"b": 1, "a": [2]}
        binary = (await keeper.get("/api/message", topic="t", id=by_offset[1])).json
        assert binary["body"]["text"] is None
        assert binary["body"]["hex"].splitlines()[4].endswith("@ABCDEFGHIJKLMNO")
        large = await keeper.get("/message", topic="t", id=by_offset[2])
        assert "Only the beginning is shown" in large.text
        assert len(large.body) < PAGE_MAX
        again = await keeper.call("/message/resend", topic="t", id=by_offset[0], to="other")
        assert again.status == 200, again.text
        (copy,) = await _rows(keeper, 1, "/messages", topic="other")
        assert copy["preview"] == '{"b":1,"a":[2]}'
        draft = (await keeper.get("/api/publish", topic="t", id=by_offset[0])).json
        assert draft["body"] == '{"b":1,"a":[2]}'
        assert (await keeper.get("/publish", topic="t", id=by_offset[1])).status == 400

    play(tmp_path, story)


def test_dead_letters_are_listed_and_sent_again_with_a_result_each(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="t", queues=1)
        await keeper.call("/group/create", name="g", retries=0)
        await _sent(keeper, "t", 2)
        async with (
            connect(f"rmq://{world.cluster.name_servers}") as mq,
            mq.consumer("g", "t", start="earliest") as consumer,
        ):
            given_up = 0
            async for message in consumer:
                message.retry()
                given_up += 1
                if given_up == 2:
                    break
        rows = await _rows(keeper, 2, "/dead/group", group="g")
        assert [it["origin"] for it in rows] == ["t", "t"]
        (listed,) = (await keeper.get("/api/dead")).json["rows"]
        assert (listed["name"], listed["count"]) == ("g", 2)
        page = await keeper.get("/dead/group", group="g")
        assert page.text.count('name="id"') == 2
        sent = await keeper.call("/dead/resend", group="g", id=[rows[0]["id"], "0" * 32])
        results = [it["result"] for it in sent.json["results"]]
        assert results[0] == "sent"
        assert results[1] != "sent"
        assert sent.json["done"].startswith("1 of 2 messages sent again to g; ")
        (_, waiting) = (await keeper.get("/api/topics", kind="retry")).json["rows"][0], None
        assert waiting is None
        assert (await keeper.call("/dead/resend", group="g", id=[])).status == 400

    play(tmp_path, story)


def test_a_group_that_gave_up_nothing_has_an_empty_list(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/group/create", name="g")
        answer = await keeper.get("/api/dead/group", group="g")
        assert (answer.status, answer.json["rows"]) == (200, [])
        page = await keeper.get("/dead/group", group="g")
        assert "g has given up no message" in page.text
        unknown = await keeper.get("/dead/group", group="nobody")
        assert (unknown.status, "there is no group nobody" in unknown.text) == (404, True)

    play(tmp_path, story)


def test_what_is_not_there_is_said_without_a_code(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for path, name in (("/topic", "gone"), ("/group", "gone")):
            page = await world.administrator.get(path, name=name)
            assert (page.status, "Not found</h1>" in page.text) == (404, True), path
            assert "no topic gone" in page.text or "no group gone" in page.text
            assert "code 1" not in page.text
            assert "code 2" not in page.text

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (3, 3.0),
        ("2.5", 2.5),
        (None, None),
        ("many", None),
        (10**400, None),
        ("inf", None),
        ([], None),
    ],
)
def test_number_that_a_client_says_is_one_or_none(said: object, shown: float | None) -> None:
    assert said_number(said) == shown


def test_a_page_that_is_not_there_is_said_on_a_page(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        for path in ("/nowhere", "/topics/x", "/%3Cb%3E"):
            page = await keeper.get(path)
            assert page.status == 404, path
            assert page.headers["content-type"].startswith("text/html")
            assert "Page not found" in page.text
            assert 'href="/topics"' in page.text
        assert (await keeper.post("/topics")).status == 405
        data = await keeper.get("/api/nowhere")
        assert (data.status, list(data.json)) == (404, ["error"])
        assert (await keeper.get("/static/nowhere.js")).status == 404
        # Who is not signed in does not learn which pages there are.
        for path in ("/nowhere", "/topics"):
            assert (await world.stranger().get(path)).headers["location"] == "/login"

    play(tmp_path, story)


def test_a_trace_is_shown_on_one_line_of_time(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        empty = await keeper.get("/trace", id="ID1")
        assert (empty.status, "traceTopicEnable" in empty.text) == (200, True)
        await keeper.call("/topic/create", name="traces", queues=1)
        at_ms = 1_700_000_000_000
        records = (
            ("Pub", at_ms, "r", "makers", "t", "ID1", "", "", "h:1", 3, 50, 0, "O", "true", "c"),
            ("SubBefore", at_ms + 100, "r", "<b>billing</b>", "R1", "ID1", 2, ""),
            ("SubAfter", "R1", "ID1", 100, "false", "", 4, "", ""),
        )
        body = "".join("\x01".join(str(it) for it in row) + "\x02" for row in records)
        sent = await keeper.call("/topic/publish", topic="traces", body=body, keys="ID1")
        assert sent.status == 200, sent.text
        shown = {"id": "ID1", "topic": "traces"}
        end_s = time.monotonic() + 20
        found = (await keeper.get("/api/trace", **shown)).json
        while found["missing"] and time.monotonic() < end_s:
            found = (await keeper.get("/api/trace", **shown)).json
        rows = [
            (it["what"], it["after_ms"], it["took_ms"], it["left"], it["width"], it["is_good"])
            for it in found["steps"]
        ]
        assert rows == [("sent", 0, 50, 0.0, 25.0, True), ("consumed", 100, 100, 50.0, 50.0, False)]
        page = (await keeper.get("/trace", **shown)).text
        assert '<rect class="wrong" x="50.0%"' in page
        assert "&lt;b&gt;billing" in page

    play(tmp_path, story)


def test_settings_show_defaults_and_change_while_the_broker_runs(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        address = world.cluster.address
        shown = (await keeper.get("/api/broker", address=address)).json
        names = {it["name"] for it in shown["settings"]}
        assert {"brokerName", "listenPort"} <= names
        assert "waitTimeMillsInPullQueue" not in names
        done = await keeper.call(
            "/broker/set", address=address, key="waitTimeMillsInPullQueue", value="4000"
        )
        assert done.json["done"].endswith(", was 5000")
        shown = (await keeper.get("/api/broker", address=address)).json
        row = {it["name"]: it for it in shown["settings"]}["waitTimeMillsInPullQueue"]
        assert (row["value"], row["default"], row["source"]) == ("4000", "5000", "set")
        for key, value in (("listenPort", "1"), ("nonsense", "1")):
            answer = await keeper.call("/broker/set", address=address, key=key, value=value)
            assert (answer.status, "cannot be changed" in answer.text) == (400, True)
        wrong = await keeper.call(
            "/broker/set", address=address, key="waitTimeMillsInPullQueue", value="-1"
        )
        assert wrong.status == 409
        # An address that is none of the cluster's is not asked: nobody is to make us connect there.
        for other in ("127.0.0.1:1", world.cluster.name_servers, "example.org:80"):
            assert (await keeper.get("/api/broker", address=other)).status == 404

    play(tmp_path, story)


def test_a_drained_broker_is_shown_and_comes_back(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        assert (await keeper.call("/broker/drain", name="broker-a")).status == 200
        found = (await keeper.get("/api")).json
        assert found["brokers"][0]["drained"] is True
        assert any("drained" in it["text"] for it in found["problems"])
        assert (await keeper.call("/broker/undrain", name="broker-a")).status == 200
        assert (await keeper.get("/api")).json["brokers"][0]["drained"] is False
        assert (await keeper.call("/broker/drain", name="nope")).status == 404

    play(tmp_path, story)


def test_a_broker_that_does_not_answer_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    async def whole() -> None:
        (tmp_path / "b").mkdir()
        async with cluster(tmp_path) as world, console_over(world) as console:
            keeper = console.administrator
            second = BrokerProcess(
                tmp_path / "b", brokerName="broker-b", namesrvAddr=world.name_servers
            )
            try:
                async with second.client():
                    assert (await keeper.call("/topic/create", name="t", queues=2)).status == 200
                    assert (await keeper.get("/api/topic", name="t")).json["left_out"] == {}
                    # Stopped, it stays connected and says nothing.
                    assert second.process is not None
                    second.process.send_signal(signal.SIGSTOP)
                    answer = await keeper.get("/topic", name="t")
                    assert answer.status == 200, answer.text
                    assert "Incomplete: broker-b is left out" in answer.text
                    problems = (await keeper.get("/api")).json["problems"]
                    assert any(it["place"] == "broker-b:0" for it in problems)
                    second.process.send_signal(signal.SIGCONT)
            finally:
                second.kill()

    asyncio.run(whole())


def test_the_live_tail_shows_what_arrives_and_ends_with_the_session(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="t", queues=2)
        await _sent(keeper, "t", 1)
        # A tail begins behind what is in its queues, and a stored message is there a moment later.
        await _rows(keeper, 1, "/messages", topic="t")
        reader, writer = await asyncio.open_connection("127.0.0.1", keeper.port)
        writer.write(TAIL.format(keeper.cookie).encode())
        await asyncio.wait_for(reader.readuntil(b"event: ready"), 20)
        bob = world.as_role(Role.ADMINISTRATOR, "bob")
        await bob.call("/topic/publish", topic="t", body=FORGED, tag="z")
        await asyncio.wait_for(reader.readuntil(b"event: message\ndata: "), 20)
        event = json.loads(await asyncio.wait_for(reader.readuntil(b"\n\n"), 20))
        assert (event["body"], event["tag"]) == (FORGED, "z")
        await bob.call("/people/dismiss", name="ana")
        await asyncio.wait_for(reader.readuntil(b"event: end"), 20)
        writer.close()
        assert (await bob.get("/api/tail", topic="nope")).status == 404

    play(tmp_path, story)


def test_live_tails_of_one_session_are_few(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="t", queues=1)
        writers = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", keeper.port)
            writer.write(TAIL.format(keeper.cookie).encode())
            await asyncio.wait_for(reader.readuntil(b"event: ready"), 20)
            writers.append(writer)
        assert (await keeper.get("/api/tail", topic="t")).status == 503
        for writer in writers:
            writer.close()

    play(tmp_path, story, Limits(streams_each=2))


def test_live_tails_that_begin_together_are_few(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="t", queues=1)

        async def begun() -> tuple[bytes, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", keeper.port)
            writer.write(TAIL.format(keeper.cookie).encode())
            line = b""
            while not line.startswith((b"event: ", b'{"error')):
                line = await asyncio.wait_for(reader.readline(), 20)
            return line.strip(), writer

        found = await asyncio.gather(*(begun() for _ in range(12)))
        assert [line for line, _ in found].count(b"event: ready") == 2
        for line, writer in found:
            assert line in {b"event: ready", b"event: trouble"} or b"too many" in line
            writer.close()

    play(tmp_path, story, Limits(streams_each=2))


def test_pages_of_a_large_cluster_stay_small(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        topics = [
            {"topicName": f"topic-{it:04}", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
            for it in range(1000)
        ]
        made = {"topicConfigList": topics}
        command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=json.dumps(made).encode())
        await world.cluster.call(command)
        groups = [{"groupName": f"group-{it:04}"} for it in range(2000)]
        command = Command(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            body=json.dumps({"groupConfigList": groups}).encode(),
        )
        await world.cluster.call(command)
        keeper = world.administrator
        for path, count in (("/topics", 1000), ("/groups", 2000)):
            data = await keeper.get("/api" + path)
            assert (data.json["count"], data.json["pages"]) == (count, count // 25)
            assert len(data.json["rows"]) == 25
            assert all(not it["error"] for it in data.json["rows"])
            page = await keeper.get(path, page="2")
            assert len(page.body) < PAGE_MAX, len(page.body)
            (one,) = (await keeper.get("/api" + path, q="0777")).json["rows"]
            assert one["name"].endswith("-0777")
        for path in ("/", "/dead", "/brokers", "/producers", "/topics?kind=all", "/messages"):
            assert len((await keeper.get(path)).body) < PAGE_MAX, path
        assert (await keeper.get("/api/topics", page="9999")).json["page"] == 40

    play(tmp_path, story)


def test_pages_of_hostile_messages_stay_small(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/topic/create", name="wide", queues=3000)
        await keeper.call("/topic/create", name="t", queues=1)
        quotes = "\"'<>&" * 1600
        body = json.dumps([quotes] * 4).encode()
        for _ in range(220):
            await world.cluster.send("t", body, properties=f"TAGS\x01{quotes}\x02KEYS\x01{quotes}")
        await _rows(keeper, 200, "/messages", topic="t")
        found = (await keeper.get("/api/messages", topic="t")).json
        assert (len(found["rows"]), found["is_whole"]) == (200, False)
        pages = {
            "/messages?topic=t": 200,
            f"/message?topic=t&id={found['rows'][0]['id']}": 200,
            "/topic?name=wide": 200,
        }
        for path, status in pages.items():
            page = await keeper.get(path)
            assert page.status == status, path
            assert len(page.body) < PAGE_MAX, (path, len(page.body))
        for number in range(60):
            await keeper.call("/topic/create", name=quotes[: 100 + number], type="FIFO")
        assert len((await keeper.get("/audit")).body) < PAGE_MAX

    play(tmp_path, story)


def test_requests_that_have_no_place_are_turned_away(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        answers = await asyncio.gather(*(keeper.get("/api/topics") for _ in range(12)))
        assert {it.status for it in answers} <= {200, 503}
        assert any(it.status == 503 for it in answers)
        assert (await keeper.get("/api/topics")).status == 200

    play(tmp_path, story, Limits(works=1, works_waiting=1))


def test_the_libraries_for_browsers_are_those_that_are_pinned() -> None:
    assert vendor_console.different() == []
    there = {it.name for it in vendor_console.TARGET.iterdir()}
    assert there == set(vendor_console.SHA256)
