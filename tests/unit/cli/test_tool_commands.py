"""Commands around messages and clusters: sent again, dead letters, contexts, top, bench, cheat."""

from __future__ import annotations

import json
import stat
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from cli_harness import dev_server
from cli_shell import Shell
from roquet import sync
from roquet.base.errors import NotFound, UsageError
from roquet.cli import contexts
from roquet.cli.app import run
from roquet.cli.commands import tree
from roquet.cli.tools.bench import percentiles
from roquet.cli.tools.cheat import SHEETS
from roquet.cli.tools.top import Look, frame
from roquet.client import ConsumerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    home: Path = tmp_path_factory.mktemp("dev")
    with dev_server(home) as (address, _):
        yield Shell(address)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "config" / "contexts.json"
    monkeypatch.setenv("ROQUET_CONTEXTS", str(file))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    return file


def send(shell: Shell, topic: str, body: str, *more: str) -> str:
    return str(json.loads(shell("pub", topic, body, "--json", *more))["id"])


def bodies(shell: Shell, topic: str) -> list[str]:
    return [json.loads(it)["body"] for it in shell("cat", topic, "-e", "--json").splitlines()]


def test_message_is_sent_again_and_nothing_is_in_a_dry_run(shell: Shell) -> None:
    shell("topic", "create", "again", "-q", "1")
    shell("topic", "create", "other", "-q", "1")
    name = send(shell, "again", "x", "-t", "tag", "-k", "k", "-p", "a=1")
    assert "dry run, nothing is changed: a copy" in shell(
        "msg", "resend", name, "-t", "again", "--dry-run"
    )
    shell("msg", "resend", name, "-t", "again")
    assert (shell.code, "--yes does it all the same" in shell.err) == (2, True)
    assert bodies(shell, "again") == ["x"]
    (row,) = shell.rows("msg", "resend", name, "-t", "again", "--to", "other", "-y")
    assert (row["to"], row["queue"], row["offset"], row["result"]) == ("other", 0, 0, "sent")
    (copy,) = [json.loads(it) for it in shell("cat", "other", "-e", "--json").splitlines()]
    assert (copy["id"], copy["tag"], copy["keys"]) == (name, "tag", ["k"])
    assert copy["properties"]["a"] == "1"
    shell("msg", "resend", "0" * 32, "-t", "again", "-y")
    assert shell.code == 5


def test_dead_messages_are_listed_shown_and_given_to_their_group_alone(shell: Shell) -> None:
    shell("topic", "create", "work", "-q", "1")
    shell("group", "create", "tired", "--retries", "1")
    name = send(shell, "work", "hard", "-k", "k")
    options = ConsumerOptions(retry_times_max=0)
    with (
        sync.connect(f"rmq://{shell.address}") as mq,
        mq.consumer("tired", "work", start="earliest", options=options) as consumer,
    ):
        received = consumer.receive(timeout_s=20)
        assert received is not None
        received.retry()
        while not [it for it in shell.rows("dlq", "ls") if it["messages"]]:
            time.sleep(0.1)
        (dead,) = shell.rows("dlq", "show", "tired")
        assert (dead["body"], dead["origin_topic"], dead["id"]) == ("hard", "work", name)
        shell("dlq", "resend", "tired")
        assert (shell.code, "give ids, or --all" in shell.err) == (2, True)
        shell("dlq", "resend", "tired", "nope", "-y")
        assert (shell.code, "has not given up nope" in shell.err) == (5, True)
        assert "1 messages would be sent again, to tired alone" in shell(
            "dlq", "resend", "tired", "--all", "--dry-run"
        )
        (row,) = shell.rows("dlq", "resend", "tired", name, "-y")
        assert (row["to"], row["result"]) == ("%RETRY%tired", "sent")
        again = consumer.receive(timeout_s=30)
        assert again is not None
        assert (again.message.body, again.message.topic) == (b"hard", "work")
        again.ack()
    assert bodies(shell, "work") == ["hard"]
    (row,) = shell.rows("dlq", "resend", "tired", "--all", "--to", "work", "-y")
    assert bodies(shell, "work") == ["hard", "hard"]
    shell("dlq", "show", "nobody")
    assert (shell.code, "nobody has given up nothing" in shell.err) == (5, True)


def test_trace_of_a_message_is_read_in_order(shell: Shell) -> None:
    shell("topic", "create", "traces", "-q", "1")
    parts: tuple[str, ...] = (
        "Pub",
        "1700000000000",
        "r",
        "makers",
        "t",
        "ID1",
        "",
        "",
        "h:1",
        "3",
        "5",
        "0",
    )
    parts = (*parts, "OFF", "true", "c:1")
    shell("pub", "traces", "\x01".join(parts) + "\x02", "-k", "ID1")
    (row,) = shell.rows("msg", "trace", "ID1", "-t", "traces")
    assert (row["what"], row["group"], row["took_ms"], row["result"]) == (
        "sent",
        "makers",
        5,
        "SUCCESS",
    )
    shell("msg", "trace", "ID2", "-t", "traces")
    assert shell.code == 5
    shell("msg", "trace", "ID2")
    assert (shell.code, "traceTopicEnable" in shell.err) == (5, True)


def test_name_servers_are_listed_and_changed(shell: Shell) -> None:
    assert shell.rows("namesrv", "ls") == [{"name_server": shell.address, "state": "answers"}]
    (row,) = shell.rows("namesrv", "config", "get", "orderMessageEnable")
    assert row["value"] == "false"
    shell("namesrv", "config", "set", "orderMessageEnable=true")
    assert shell.code == 2
    shell("namesrv", "config", "set", "orderMessageEnable=true", "-y")
    assert shell.rows("namesrv", "config", "get", "orderMessageEnable")[0]["value"] == "true"
    shell("namesrv", "config", "get", "nope")
    assert shell.code == 5


def test_accounts_of_a_broker_without_access_control_are_named_so(shell: Shell) -> None:
    shell("user", "ls")
    assert (shell.code, "aclEnable=true" in shell.err) == (1, True)
    shell("user", "set", "u", "--topic", "t=ALL", "-y")
    assert (shell.code, "NAME=PUB|SUB" in shell.err) == (2, True)
    shell("user", "ls", "nobody")
    assert shell.code == 5
    for words in (("user", "show"), ("acl", "ls"), ("acl", "revoke", "u", "-y")):
        shell(*words)
        assert (shell.code, "authenticationEnabled=true" in shell.err) == (1, True), shell.err


def test_contexts_choose_the_cluster_and_keep_secrets(
    shell: Shell, home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret-s3cret\n")
    assert run(["context", "add", "dev", shell.address]) == 0
    words = ["--access-key", "admin-key", "--secret-file", str(secret)]
    assert run(["context", "add", "prod", "127.0.0.1:1", *words]) == 0
    assert stat.S_IMODE(home.stat().st_mode) == 0o600
    assert run(["context", "ls"]) == 0
    assert run(["context", "ls", "--json"]) == 0
    assert run(["topic", "ls", "-a"]) == 0
    assert run(["topic", "ls", "--context", "prod"]) == 3
    assert run(["topic", "ls", "--context", "none"]) == 5
    assert run(["topic", "ls", "--context", "prod", "-n", shell.address]) == 2
    assert run(["context", "use", "prod"]) == 0
    assert run(["topic", "ls"]) == 3
    assert run(["context", "rm", "prod", "--dry-run"]) == 0
    assert run(["context", "rm", "prod", "-y"]) == 0
    assert run(["context", "use", "prod"]) == 5
    assert run(["context", "add", "a/b", "h:1"]) == 2
    assert run(["context", "add", "x", "h:port"]) == 2
    assert run(["context", "add", "x", "h", "--ca", str(secret)]) == 2  # without --tls
    for flag in ("--ca", "--cert"):
        assert run(["context", "add", "x", "h", "--tls", flag, str(tmp_path / "none")]) == 2
    assert "x" not in contexts.load().clusters
    shown = capsys.readouterr()
    assert "admin-key" in shown.out
    assert "s3cret" not in shown.out + shown.err


def test_account_of_a_context_signs(home: Path) -> None:
    known = contexts.Contexts({"c": contexts.Context("h:1", "key", "secret")}, "c")
    contexts.save(known)
    credentials = contexts.chosen(None, None).credentials()
    assert credentials is not None
    assert (credentials.access_key, credentials.secret_key) == ("key", "secret")
    assert contexts.chosen("h:2", None).credentials() is None
    assert "secret'" not in repr(known.clusters["c"])
    with pytest.raises(NotFound):
        contexts.chosen(None, "d")
    assert home.exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"contexts": {"a": 1}}',
        '{"contexts": {"a": {"namesrv": 1}}}',
        '{"contexts": {"a": {"namesrv": "h:1", "tls": 1}}}',
        '{"contexts": {"a": {"namesrv": "h:1", "tls": true, "ca": 1}}}',
    ],
)
def test_damaged_file_of_contexts_is_refused(home: Path, text: str) -> None:
    home.parent.mkdir()
    home.write_text(text)
    home.chmod(0o600)
    with pytest.raises(UsageError, match="is no file of contexts"):
        contexts.load()


def test_file_of_contexts_that_others_may_read_is_refused(home: Path) -> None:
    home.parent.mkdir()
    home.write_text('{"contexts": {}}')
    home.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        contexts.load()


def test_top_shows_problems_first_then_traffic() -> None:
    before = Look(1_000, 1, {"a": 10, "b": 10}, {"g": 5}, {"g": 5}, {"g": 1}, [])
    trouble = [("problem", "broker-a", "it has no master")]
    now = Look(3_000, 1, {"a": 12, "b": 50, "c": 1}, {"g": 25}, {"g": 3}, {"g": 1}, trouble)
    lines = frame(before, now, 2)
    assert lines[1] == "problem: broker-a: it has no master"
    assert [it.split() for it in lines if it.startswith(("a ", "b ", "g "))] == [
        ["b", "20.0", "50"],
        ["a", "1.0", "12"],
        ["g", "10.0", "3", "1"],
    ]
    assert frame(None, now, 9)[4].split() == ["a", "-", "12"]


def test_rows_of_top_are_no_wider_than_the_terminal() -> None:
    name = "n" * 120
    now = Look(9, 1_700_000_000_000, {name: 12}, {name: 5}, {name: 7}, {name: 1}, [])
    for columns in (200, 60, 51):
        assert max(map(len, frame(None, now, 9, columns)[3:])) <= columns


def test_top_and_bench_at_work(shell: Shell) -> None:
    (sent,) = shell.rows("bench", "send", "load", "-c", "200", "--size", "10", "--in-flight", "8")
    assert sent["messages"] == 200
    assert sent["p50_ms"] <= sent["p99_ms"] <= sent["max_ms"]
    (read,) = shell.rows("bench", "recv", "load", "-c", "200", "-g", "loaders")
    assert (read["messages"], read["messages_a_second"] > 0) == (200, True)
    shown = shell("top", "-c", "2", "--every", "1")
    assert (shell.code, shown.count("topics,")) == (0, 2)
    (look,) = shell.rows("top", "-c", "1")
    assert look["stored"]["load"] == 200
    shell("bench", "send", "load", "--size", "999999999")
    assert shell.code == 2
    shell("bench", "recv", "no_such_topic")
    assert shell.code == 5


def test_percentiles_by_nearest_rank() -> None:
    assert percentiles([]) == {}
    assert percentiles([5.0]) == {"p50": 5, "p90": 5, "p99": 5, "p99.9": 5, "max": 5}
    found = percentiles([float(it) for it in range(1, 1001)])
    assert found == {"p50": 500, "p90": 900, "p99": 990, "p99.9": 999, "max": 1000}


def test_cheat_sheets_name_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cheat"]) == 0
    shown = capsys.readouterr().out
    assert all(f"# {name}\n" in shown for name in SHEETS)
    assert run(["cheat", "nothing"]) == 5
    words = {row.words for row in tree.ROWS}
    for text in SHEETS.values():
        for line in text.splitlines():
            command = line.split()[1:]
            known = command[0] in ("dev", "pub", "sub", "cat", "top")
            assert known or tuple(command[:2]) in words or tuple(command[:3]) in words, line


@pytest.mark.parametrize(("shell_name", "check"), [("bash", "bash"), ("zsh", None), ("fish", None)])
def test_completion_knows_every_command(
    shell_name: str, check: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell_name]) == 0
    script = capsys.readouterr().out
    for words in ("resend", "seek", "undrain", "doctor"):
        assert words in script
    if check is not None:
        done = subprocess.run([check, "-n"], input=script, text=True, check=False)
        assert done.returncode == 0
