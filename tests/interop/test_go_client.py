"""The Go client (rocketmq-client-go v2) against our name server and broker."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from admin_of import admin_of
from interop_world import assert_same, messages
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.blocking import BlockingConnection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interop_world import Received, Sent, World

MODULE = Path(__file__).parent / "go"
BUILD_S = 280


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built program; its modules come by their hashes in go.sum."""
    go = shutil.which("go")
    assert go is not None, "there is no go on this machine"
    built = tmp_path_factory.mktemp("go") / "peer"
    done = subprocess.run(
        [go, "build", "-mod=readonly", "-o", str(built), "."],
        cwd=MODULE,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_S,
    )
    assert done.returncode == 0, done.stderr
    return built


def run(program: Path, **request: Any) -> list[dict[str, Any]]:
    done = subprocess.run(
        [str(program)],
        input=json.dumps({"tags": "*", "group": "go_group", "seconds": 60, **request}),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "HOME": str(program.parent)},
    )
    assert done.returncode == 0, done.stderr
    found = cast("list[dict[str, Any]]", json.loads(done.stdout))
    for one in found:
        one["body"] = base64.b64decode(one.get("body", ""))
    return found


def send(program: Path, world: World, topic: str, given: Sequence[dict[str, Any]]) -> list[Sent]:
    encoded = [{**one, "body": base64.b64encode(one["body"]).decode()} for one in given]
    return run(program, do="send", namesrv=world.ours.namesrv, topic=topic, messages=encoded)


def read(program: Path, world: World, do: str, topic: str, **more: Any) -> list[Received]:
    found = run(program, do=do, namesrv=world.ours.namesrv, topic=topic, **more)
    for one in found:
        one["keys"] = one.get("keys", "").strip()
    return found


def test_go_and_java_read_what_go_sends(program: Path, world: World) -> None:
    topic = world.topic("FromGo", world.ours)
    given = messages(8, seed=61)
    sent = send(program, world, topic, given)
    assert {one["broker"] for one in sent} == {world.ours.name}
    read_by_go = read(program, world, "consume", topic, count=8)
    assert_same(given, sent, read_by_go)
    read_by_java = world.driver.consume(world.ours.namesrv, topic, "java_reads_go", 8)
    assert_same(given, sent, read_by_java)


def test_go_consumes_what_java_sends_and_commits(program: Path, world: World) -> None:
    topic = world.topic("ToGo", world.ours)
    given = messages(9, seed=62)
    sent = world.driver.send(world.ours.namesrv, topic, given)
    came = read(program, world, "consume", topic, count=9, group="go_commits")
    assert_same(given, sent, came)
    committed = 0
    with BlockingConnection(world.ours.broker.address) as broker:
        for queue_id in range(4):
            ext = {"consumerGroup": "go_commits", "topic": topic, "queueId": str(queue_id)}
            answer = broker.call(Command(RequestCode.QUERY_CONSUMER_OFFSET, ext))
            committed += int((answer.ext or {}).get("offset", "0"))
    assert committed == 9


def test_go_filters_by_tag(program: Path, world: World) -> None:
    topic = world.topic("GoTags", world.ours)
    given = messages(6, seed=63)
    sent = send(program, world, topic, given)
    chosen = [number for number in range(6) if given[number]["tags"] == "b"]
    came = read(program, world, "consume", topic, count=3, tags="b", group="go_tags")
    assert_same([given[n] for n in chosen], [sent[n] for n in chosen], came)


def test_go_pulls_queue_by_queue(program: Path, world: World) -> None:
    topic = world.topic("GoPull", world.ours)
    given = messages(10, seed=64)
    sent = send(program, world, topic, given)
    came = read(program, world, "pull", topic, queues=4, broker=world.ours.name, group="go_pulls")
    assert_same(given, sent, came)
    for queue_id in range(4):
        offsets = [one["offset"] for one in came if one["queue"] == queue_id]
        assert offsets == sorted(offsets)


def test_a_topic_that_is_not_there_is_an_error_in_go(program: Path, world: World) -> None:
    with admin_of(world.ours.namesrv) as admin:
        assert "GoNowhere" not in admin.topics.names()
    done = subprocess.run(
        [str(program)],
        input=json.dumps(
            {
                "do": "pull",
                "namesrv": world.ours.namesrv,
                "topic": "GoNowhere",
                "group": "go_group",
                "tags": "*",
                "queues": 1,
                "broker": world.ours.name,
            }
        ),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr
