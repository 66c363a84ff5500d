"""Dead letters of a console: exported as CSV and JSON lines, and sent again with a result each."""

from __future__ import annotations

import asyncio
import base64
import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from console_harness import World, a_console
from roquet.base.clock import SystemClock
from roquet.client import connect
from roquet.console.config import Limits
from roquet.console.roles import Role
from roquet.console.web.files import comma_separated, file_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from console_harness import Answer, Browser

HOSTILE: tuple[bytes, ...] = (
    b"=cmd|' /C calc'!A0",
    b'"x";=1+1\r\n=2+2\n@SUM(1)',
    "\uff1dHYPERLINK() Z\u00fcrich".encode(),
    b"zero\x00=1",
    b"\xff\xfe\x80",
    b"'=3",
    b"-5",
    b'{"a": [1, -2], "b": "x,y"}',
)
KEYS = ("a,b", "=1+1")


def play(
    folder: Path,
    bodies: Sequence[bytes],
    story: Callable[[World], Awaitable[None]],
    limits: Limits | None = None,
    **config: Any,
) -> None:
    """Tell a story over a group `g` that has given up these messages of the topic `t`."""

    async def whole() -> None:
        async with a_console(folder, limits, **config) as world:
            keeper = world.administrator
            await keeper.call("/topic/create", name="t", queues=1)
            await _given_up(world, bodies)
            await story(world)

    asyncio.run(whole())


async def _given_up(world: World, bodies: Sequence[bytes]) -> None:
    async with (
        connect(f"rmq://{world.cluster.name_servers}") as mq,
        mq.producer() as producer,
        mq.consumer("g", "t", start="earliest") as consumer,
    ):
        for body in bodies:
            await producer.send("t", body, tag="=t", keys=KEYS, properties={"p": "@x,\ny"})
        count = 0
        async for message in consumer:
            message.dead_letter()
            count += 1
            # One after the other: they are not all of one millisecond.
            await _there(world, count)
            if count == len(bodies):
                break


async def _there(world: World, count: int) -> None:
    keeper = world.administrator
    end_s = SystemClock().steady_ms() + 30_000
    while SystemClock().steady_ms() < end_s:
        if len((await keeper.get("/api/dead/group", group="g")).json.get("rows", [])) == count:
            return
    pytest.fail("a dead letter did not arrive")


def objects(answer: Answer) -> list[dict[str, Any]]:
    assert answer.status == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def cells(answer: Answer) -> list[dict[str, str]]:
    assert answer.status == 200, answer.text
    assert answer.body.startswith(b"\xef\xbb\xbf")
    return list(csv.DictReader(io.StringIO(answer.body.decode("utf-8-sig"), newline="")))


def test_json_lines_have_the_exact_messages_and_csv_no_formula(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        viewer = world.as_role(Role.VIEWER)
        answer = await viewer.get("/api/dead/export", group="g", format="jsonl")
        found = objects(answer)
        assert answer.headers["content-disposition"] == (
            'attachment; filename="dead-letters-g.jsonl"'
        )
        assert answer.headers["content-type"] == "application/x-ndjson"
        bodies = [
            base64.b64decode(it["body"]) if it["encoding"] == "base64" else it["body"].encode()
            for it in found
        ]
        assert bodies == list(HOSTILE), "all, the oldest first"
        for it in found:
            assert it["keys"] == list(KEYS)
            assert it["properties"]["p"] == "@x,\ny"
            assert (it["topic"], it["tag"], it["reconsumeTimes"]) == ("t", "=t", 1)
            assert it["stored_ms"] > 0

        sheet = await viewer.get("/dead/export", group="g")
        assert sheet.headers["content-type"] == "text/csv; charset=utf-8"
        rows = cells(sheet)
        assert [it["body"] for it in rows] == [
            "'=cmd|' /C calc'!A0",
            "\"x\";'=1+1\r\n'=2+2\n'@SUM(1)",
            "'\uff1dHYPERLINK() Z\u00fcrich",
            base64.b64encode(HOSTILE[3]).decode(),
            base64.b64encode(HOSTILE[4]).decode(),
            "''=3",
            "'-5",
            HOSTILE[7].decode(),
        ]
        assert [it["encoding"] for it in rows][3:6] == ["base64", "base64", "text"]
        assert {it["keys"] for it in rows} == {"a,b =1+1"}
        assert {it["tag"] for it in rows} == {"'=t"}
        assert {it["reconsumeTimes"] for it in rows} == {"1"}
        assert json.loads(rows[0]["properties"])["p"] == "@x,\ny"
        # A country's settings may split at semicolons, whatever quotes there are.
        for line in sheet.body.decode("utf-8-sig").splitlines():
            for cell in line.replace("\t", ";").split(";"):
                assert cell.lstrip("\"' ")[:1] not in ("=", "+", "@") or "'" in cell[:3], line

        audit = (await world.administrator.get("/api/audit", q="/dead/export")).json["rows"]
        assert audit[0]["outcome"].startswith("done: 8 rows, ")
        assert (audit[0]["who"], "group=g" in audit[0]["target"]) == ("ana", True)

    play(tmp_path, HOSTILE, story)


def test_chosen_dead_letters_are_exported_and_one_that_is_missing_says_why(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        viewer = world.as_role(Role.VIEWER)
        rows = (await viewer.get("/api/dead/group", group="g")).json["rows"]
        chosen = [rows[0]["id"], "0" * 32]
        sheet = cells(await viewer.post("/dead/export/chosen", group="g", id=chosen, format="csv"))
        assert [it["id"] for it in sheet] == chosen
        assert (sheet[0]["error"], sheet[0]["body"]) == ("", "two")
        assert sheet[1]["error"], "a row for each that was chosen"
        lines = objects(
            await viewer.ask("GET", f"/api/dead/export/chosen?group=g&format=jsonl&id={chosen[0]}")
        )
        assert [it["id"] for it in lines] == chosen[:1]
        # A message that is no dead letter is not to be had as one.
        (live,) = (await viewer.get("/api/messages", topic="t", text="one")).json["rows"]
        (other,) = objects(
            await viewer.post("/dead/export/chosen", group="g", id=live["id"], format="jsonl")
        )
        assert ("body" in other, "has not given up" in other["error"]) == (False, True)
        none = await viewer.post("/dead/export/chosen", group="g", format="csv")
        assert (none.status, "id is missing" in none.text) == (400, True)
        many = await viewer.post("/dead/export/chosen", group="g", id=["x"] * 201, format="csv")
        assert (many.status, "at most 200" in many.text) == (400, True)
        viewer.csrf = "guess"
        forged = await viewer.post("/dead/export/chosen", group="g", id=chosen, format="csv")
        assert forged.status == 403, "a form of another site"

    play(tmp_path, (b"one", b"two"), story)


def test_an_export_ends_at_its_limits_and_says_where_to_go_on(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        seen: list[str] = []
        since = "30d"
        for _ in range(5):
            query = {"group": "g", "format": "jsonl", "since": since}
            answer = await keeper.get("/dead/export", **query)
            found = objects(answer)
            assert 1 <= len(found) <= 4
            seen += [it["body"] for it in found if it["body"] not in seen]
            said = answer.headers.get("x-roquet-incomplete")
            name = answer.headers["content-disposition"]
            assert ("g-incomplete.jsonl" in name) == (said is not None)
            if said is None:
                break
            since = said.rpartition("go on with since=")[2]
        assert seen == [f"m{it}" for it in range(5)], "nothing is left out between two files"

    play(tmp_path, [f"m{it}".encode() for it in range(5)], story, Limits(exported=2))


def test_chosen_messages_beyond_the_size_of_a_file_are_said(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        ids = [it["id"] for it in (await keeper.get("/api/dead/group", group="g")).json["rows"]]
        answer = await keeper.post("/dead/export/chosen", group="g", id=ids, format="jsonl")
        assert len(objects(answer)) == 1
        said = answer.headers["x-roquet-incomplete"]
        assert said == "the first 1 of 3 messages: more are too large"
        assert len(objects(await keeper.get("/dead/export", group="g", format="jsonl"))) <= 2

    play(tmp_path, [b"x" * 900] * 3, story, Limits(exported_bytes=1_500))


def test_hidden_contents_are_in_no_file(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        for kind in ("csv", "jsonl"):
            answer = await keeper.get("/dead/export", group="g", format=kind)
            assert answer.status == 200
            for secret in (b"canary", b"a,b", b"@x"):
                assert secret not in answer.body, kind
            assert b"(hidden)" in answer.body
            assert b'"reconsumeTimes"' in answer.body

    play(tmp_path, (b"canary",), story, hide_bodies=True)


def test_each_message_that_was_sent_again_has_its_result_on_the_page(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        rows = (await keeper.get("/api/dead/group", group="g")).json["rows"]
        ids = [rows[0]["id"], "0" * 32, rows[1]["id"]]
        done = await keeper.post("/dead/resend", group="g", id=ids)
        assert done.headers["location"] == "/dead/group?group=g"
        page = await keeper.get("/dead/group", group="g")
        assert "2 of 3 messages sent again to g" in page.text
        assert "What became of each (3)" in page.text
        assert page.text.count("<td>sent <code>") == 2
        assert f'<code>{"0" * 32}</code></td><td class="bad">' in page.text
        again = await keeper.get("/dead/group", group="g")
        assert "What became of each" not in again.text, "once"

    play(tmp_path, (b"one", b"two"), story)


def test_exports_of_nothing_and_of_nobody_are_told_apart(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = world.administrator
        await keeper.call("/group/create", name="fine")
        assert cells(await keeper.get("/dead/export", group="fine")) == []
        unknown = await keeper.get("/api/dead/export", group="nobody")
        assert (unknown.status, unknown.json["error"]) == (404, "there is no group nobody")
        assert (await keeper.get("/dead/export", group="g", format="xls")).status == 400
        assert (await keeper.get("/dead/export")).status == 400
        assert await _status(keeper, "/dead/export?group=a%0d%0aset-cookie:x") == 404

    play(tmp_path, (b"one",), story)


async def _status(who: Browser, path: str) -> int:
    answer = await who.ask("GET", path)
    assert "set-cookie" not in answer.headers
    return answer.status


def test_names_of_files_are_harmless() -> None:
    assert file_name("dead", '../a\r\n"b', ending="csv") == "dead-.._a_b.csv"
    assert len(file_name("x" * 1000, ending="csv")) < 80


def test_csv_of_very_long_cells_is_made_in_linear_time() -> None:
    body = "\n" * 1_000_000 + "'" * 1_000_000
    made = comma_separated(["body"], [{"body": body}])
    assert len(made) > 2_000_000
