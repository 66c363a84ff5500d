"""The commands over topics, groups, messages and brokers, against a dev server."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import socket
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

import pytest
import yaml

from cli_harness import dev_server, environment
from cli_shell import Shell
from roquet import sync
from roquet.base.errors import UsageError
from roquet.base.times import place_of
from roquet.cli.app import parser
from roquet.cli.commands import declared, tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A dev server with a topic of ten messages, that a group has read."""
    home: Path = tmp_path_factory.mktemp("dev")
    with dev_server(home) as (address, _):
        with sync.connect(f"rmq://{address}") as mq:
            mq.admin().topics.create("orders", 2)
            with mq.producer("p") as producer:
                for number in range(10):
                    producer.send("orders", f"order {number}", keys=[f"o-{number}"])
            with mq.consumer("billing", "orders", start="earliest") as consumer:
                for _ in range(10):
                    received = consumer.receive(timeout_s=20)
                    assert received is not None
                    received.ack()
        yield Shell(address)


def test_a_group_is_listed_shown_and_moved(shell: Shell) -> None:
    (row,) = [it for it in shell.rows("group", "ls") if it["group"] == "billing"]
    assert row == {"group": "billing", "members": 0, "model": None, "lag": 0}
    assert [it["lag"] for it in shell.rows("group", "lag", "billing", "-t", "orders")] == [0, 0]
    assert "lag of billing: 0" in shell("group", "lag", "billing", "-t", "orders")
    seek = ("group", "seek", "billing", "-t", "orders", "--to", "earliest")
    assert sum(it["again"] for it in shell.rows(*seek, "--preview")) == 10
    shell(*seek)
    assert shell.code == 2
    assert "would get 10 messages of orders again and skip 0: --yes" in shell.err
    assert shell.rows("group", "lag", "billing", "-t", "orders")[0]["lag"] == 0
    shell(*seek, "--yes")
    assert shell.code == 0
    assert shell.rows("group", "lag", "billing", "-t", "orders")[0]["lag"] == 5
    shell(*seek[:-1], "latest", "--yes")
    (shown,) = shell.rows("group", "get", "billing")
    assert shown["retries"] == 16
    assert shell("group", "members", "billing") == ("nobody of billing is online\n")


def test_looking_at_a_group_again_shows_offsets_once_each(shell: Shell) -> None:
    assert {it["queue"] for it in shell.rows("group", "lag", "billing", "-t", "orders")} == {0, 1}
    for words in (("lag",), ("get",), ("rm", "--yes")):
        shell("group", words[0], "nobody", *words[1:])
        assert shell.code == 5
        assert "there is no group nobody; try: roquet group ls" in shell.err


def test_a_group_is_created_once_cloned_and_deleted(shell: Shell) -> None:
    shell("group", "create", "new", "--retries", "3")
    assert shell.rows("group", "get", "new")[0]["retries"] == 3
    shell("group", "create", "new")
    assert shell.code == 1
    assert "there is a group new" in shell.err
    assert shell("group", "clone", "billing", "new", "-t", "orders", "--yes") == (
        "new goes on where billing is in orders\n"
    )
    shell("group", "rm", "new")
    assert shell.code == 2
    shell("group", "rm", "new", "--offsets", "-y")
    assert shell.code == 0
    shell("group", "get", "new")
    assert shell.code == 5


def test_a_message_is_found_and_shown(shell: Shell) -> None:
    (found,) = shell.rows("msg", "find", "orders", "--key", "o-3")
    assert yaml.safe_load(shell("msg", "find", "orders", "-k", "o-3", "-o", "yaml")) == [found]
    assert found["body"] == "order 3"
    assert len(shell.rows("msg", "find", "orders", "--since", "10m")) == 10
    assert len(shell.rows("msg", "find", "orders", "--since", "10m", "-c", "4")) == 4
    assert shell.rows("msg", "find", "orders", "--since", "2001-01-01", "--until", "1d") == []
    shell("msg", "find", "orders")
    assert (shell.code, "give --key, or --since" in shell.err) == (2, True)
    shown = shell("msg", "get", found["id"], "-t", "orders")
    assert "order 3" in shown
    assert "KEYS          o-3" in shown
    assert shell.rows("msg", "get", found["id"], "-t", "orders") == [found]
    shell("msg", "get", "0" * 32, "-t", "orders")
    assert shell.code == 5
    for stranger in ("what", "0" * 32):
        shell("msg", "get", stranger)
        assert (shell.code, "is in the index of" in shell.err) == (5, True), shell.err
    assert shell("msg", "find", "orders", "--key", "o-99") == ""
    assert (shell.code, shell.err) == (0, "0 found\n")
    host, port = row_address(shell)
    nowhere = socket.inet_aton(host).hex() + f"{port:08x}{2**40:016x}"
    shell("msg", "get", nowhere.upper())
    assert (shell.code, "there is no message at offset" in shell.err) == (5, True)


def row_address(shell: Shell) -> tuple[str, int]:
    (row,) = shell.rows("broker", "ls")
    host, _, port = row["address"].rpartition(":")
    return host, int(port)


def test_address_of_a_broker_given_as_name_server_is_named_as_that(shell: Shell) -> None:
    host, port = row_address(shell)
    for words in (("topic", "ls"), ("cat", "orders", "-e"), ("pub", "orders", "x")):
        wrong = Shell(f"{host}:{port}")
        wrong(*words)
        assert wrong.code == 2, words
        assert f"--namesrv: {host}:{port} does not answer as a name server" in wrong.err, words
        assert "is it a broker?" in wrong.err, words


def test_messages_are_filtered_by_tag_key_and_sql(shell: Shell) -> None:
    shell("topic", "create", "mixed", "-q", "1")
    for number, tag in enumerate("aabc"):
        shell("pub", "mixed", f"{number}", "-t", tag, "-k", f"k{number}", "-p", f"n={number}")
    for flags, bodies in (
        (("-t", "a"), "01"),
        (("-t", "b || c"), "23"),
        (("--sql", "n > 1 AND TAGS = 'c'"), "3"),
        (("-k", "k1"), "1"),
    ):
        found = shell("cat", "mixed", "-e", "--json", *flags).splitlines()
        assert "".join(json.loads(it)["body"] for it in found) == bodies
        more = () if flags[0] == "-k" else ("--since", "1h")
        rows = shell.rows("msg", "find", "mixed", *flags, *more)
        assert "".join(it["body"] for it in rows) == bodies
    shell("cat", "mixed", "-e", "--sql", "n >")
    assert (shell.code, "the filter cannot be used" in shell.err) == (2, True)


def test_message_is_sent_late_and_messages_of_one_key_to_one_queue(shell: Shell) -> None:
    shell("topic", "create", "later", "-q", "4")
    began_s = time.monotonic()
    shell("pub", "later", "x", "--delay", "2s")
    while not shell("cat", "later", "-e"):
        time.sleep(0.1)
    assert time.monotonic() - began_s > 1
    shell("pub", "later", "x", "--delay", "soon")
    assert (shell.code, "must be a span" in shell.err) == (2, True)
    for flag, when in (("--at", "1s"), ("--delay", "2001-01-01T10:00")):
        shell("pub", "later", f"{flag} {when}", flag, when)
        assert shell.code == 0, shell.err
        deadline_s = time.monotonic() + 30
        while f"{flag} {when}" not in shell("cat", "later", "-e"):
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
    shell("pub", "later", "x", "--delay", "2s", "--at", "2020-01-01")
    assert shell.code == 2
    placed = shell("pub", "later", "y{{count}}", "-c", "3", "--order-key", "k", "--json")
    assert len({json.loads(it)["queue"] for it in placed.splitlines()}) == 1


def test_brokers_are_shown_changed_and_drained(shell: Shell) -> None:
    (row,) = shell.rows("broker", "ls")
    broker = row["broker"]
    assert (row["role"], row["version"]) == ("master", "V5_5_0")
    assert isinstance(row["in_per_second"], int)
    (status,) = shell.rows("broker", "status", broker)
    assert status["brokerActive"] == "true"
    first = shell("broker", "status", broker).splitlines()[0]
    assert first.startswith(f"{broker} ({row['address']}): master in DefaultCluster, V5_5_0, up ")
    assert first.endswith("%"), first
    shell("broker", "config", "set", broker, "maxMessageSize=70000")
    assert shell("broker", "config", "get", broker, "maxMessageSize") == "maxMessageSize  70000\n"
    shell("broker", "config", "set", broker, "maxMessageSize")
    assert shell.code == 2
    shell("broker", "config", "get", broker, "noSuchKey")
    assert (shell.code, "try: roquet broker config get" in shell.err) == (5, True)
    shell("broker", "config", "set", broker, "maxMesageSize=70000")
    assert (shell.code, "did you mean maxMessageSize?" in shell.err) == (5, True)
    shell("broker", "drain", broker)
    assert shell.code == 2
    assert f"back: roquet broker undrain {broker}" in shell("broker", "drain", broker, "-y")
    assert "can be written again" in shell("broker", "undrain", broker)
    (state,) = shell.rows("cluster", "health")
    assert state["state"] == "fine"
    (pair,) = shell.rows("ha", "status")
    assert pair["state"] == "no slave"


def test_a_topic_with_a_type_is_made_and_deleted_by_its_name(shell: Shell) -> None:
    assert shell("topic", "create", "typed", "-q", "1", "--type", "FIFO").startswith("typed: 1 q")
    assert shell.rows("topic", "get", "typed")[0]["messages"] == 0
    shell("topic", "rm", "typed")
    assert shell.code == 2
    assert shell("topic", "rm", "typed", "-y") == "typed: deleted, with 0 messages\n"
    assert {"topic": "typed"} not in shell.rows("topic", "ls")


def test_message_is_found_by_the_id_that_pub_prints(shell: Shell) -> None:
    shell("topic", "create", "second", "-q", "1")
    name = shell("pub", "second", "by its id").split()[0]
    deadline_s = time.monotonic() + 30
    while not (found := shell("msg", "get", name, "-o", "json")):
        # The index follows the log a moment later.
        assert time.monotonic() < deadline_s, shell.err
        time.sleep(0.1)
    assert json.loads(found)["body"] == "by its id"
    assert json.loads(found)["topic"] == "second"


def test_delayed_message_is_taken_back_by_what_pub_prints(shell: Shell) -> None:
    shell("topic", "create", "taken", "-q", "1")
    said = shell("pub", "taken", "never", "--delay", "4s").split()
    assert said[2:4] == ["waits;", "recall"], said
    shell("msg", "recall", said[4])
    assert (shell.code, "--yes" in shell.err) == (2, True)
    assert shell("msg", "recall", said[4], "-y") == "taken back, unless it was due already\n"
    (row,) = map(json.loads, shell("pub", "taken", "later", "--delay", "5s", "--json").splitlines())
    assert row["recall_handle"]
    assert "recall_handle" in json.loads(shell("pub", "taken", "x", "--json"))
    deadline_s = time.monotonic() + 30
    while "later" not in shell("cat", "taken", "-e"):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    assert "never" not in shell("cat", "taken", "-e")
    shell("msg", "recall", "what", "-y")
    assert (shell.code, shell.err.count("\n")) == (2, 1), shell.err


def test_topics_of_every_type_are_made(shell: Shell) -> None:
    shell("topic", "create", "urgent", "-q", "1", "--type", "PRIORITY")
    assert shell.code == 0, shell.err
    assert "1 queues, PRIORITY" in shell("topic", "get", "urgent")
    # This broker has no light topics, and says what they need.
    shell("topic", "create", "chat", "-q", "1", "--type", "LITE")
    assert (shell.code, "need enableLmq=true" in shell.err) == (1, True), shell.err


def test_messages_given_back_are_in_the_lag_before_anybody_took_one(shell: Shell) -> None:
    shell("topic", "create", "given", "-q", "1")
    with sync.connect(f"rmq://{shell.address}") as mq:
        with mq.producer("p") as producer:
            producer.send("given", b"back")
        with mq.consumer("giver", "given", start="earliest") as consumer:
            received = consumer.receive(timeout_s=20)
            assert received is not None
            received.retry()
    lag: list[dict[str, object]] = []
    deadline_s = time.monotonic() + 60
    while not any(it["lag"] for it in lag):
        assert time.monotonic() < deadline_s, lag
        lag = [it for it in shell.rows("group", "lag", "giver") if it["topic"] == "%RETRY%giver"]
    assert [(it["lag"], it["last_consumed"]) for it in lag] == [(1, None)]
    (row,) = [it for it in shell.rows("group", "ls") if it["group"] == "giver"]
    assert row["lag"] == 1


@pytest.mark.parametrize(
    "text", ["", "-1", "1w", "-1w", "yesterday", "12345", "٣", "-" + "9" * 7 + "d"]
)
def test_a_place_that_is_none_is_refused_with_what_it_should_be(text: str) -> None:
    with pytest.raises(UsageError, match="a time back"):
        place_of(text)


def test_places_are_read() -> None:
    assert place_of("1700000000123") == 1_700_000_000_123
    assert place_of("2023-11-14T22:13:20+00:00") == 1_700_000_000_000
    assert 0 < place_of("-1d") < place_of("30m")  # type: ignore[operator]


def test_every_row_has_help_and_a_function() -> None:
    whole = parser().format_help()
    for row in tree.ROWS:
        assert callable(row.function()), row
        assert row.words[0] in whole
    assert isinstance(tree.ROWS[0], declared.Row)


def test_clone_of_nothing_onto_itself_or_over_members_is_refused(shell: Shell) -> None:
    for words, code, said in (
        (("nope", "other"), 5, "nope has no offsets"),
        (("billing", "billing"), 2, "is where it is already"),
        (("billing", "other", "-t", "nowhere"), 5, "there is no topic nowhere"),
        (("billing", "a b"), 2, "illegal"),
        (("billing", "other", "-t", "orders"), 2, "--yes does it all the same"),
    ):
        more = ["--yes"] if said == "illegal" else []
        shell("group", "clone", *words, *more)
        assert (shell.code, said in shell.err) == (code, True), (words, shell.err)
    with sync.connect(f"rmq://{shell.address}") as mq, mq.consumer("busy", "orders") as consumer:
        while not consumer.assigned or mq.admin().groups.connection("busy") is None:
            time.sleep(0.05)
        shell("group", "clone", "billing", "busy", "--yes")
        assert (shell.code, "1 members of busy are online" in shell.err) == (2, True)
        shell("group", "seek", "busy", "-t", "orders", "--to", "earliest", "--preview")
        assert (shell.code, "at their next poll" in shell.err) == (0, True)


def test_unknown_names_end_with_5_before_anything_is_asked(shell: Shell) -> None:
    for words in (
        ("group", "lag", "billing", "-t", "nowhere"),
        ("group", "members", "nobody"),
        ("group", "seek", "nobody", "-t", "orders", "--to", "latest"),
        ("group", "seek", "billing", "-t", "nowhere", "--to", "latest"),
    ):
        shell(*words)
        assert shell.code == 5, words
        assert "there is no" in shell.err
    for verb in ("drain", "undrain"):
        shell("broker", verb, "nobody")
        assert (shell.code, "there are dev" in shell.err) == (5, True)
    shell("ha", "role", "nobody", "master")
    assert (shell.code, "there are dev" in shell.err) == (5, True)


@pytest.mark.parametrize(
    "words",
    [
        ("ha", "role", "127.0.0.1:1", "slave"),
        ("ha", "role", "dev", "master"),
        ("broker", "drain", "dev"),
        ("user", "set", "ana", "--admin"),
        ("user", "rm", "ana"),
        ("user", "delete", "ana"),
        ("user", "alter", "ana", "--status", "disable"),
        ("acl", "grant", "ana", "Topic:a", "--actions", "Pub"),
        ("acl", "revoke", "ana"),
        ("acl", "allow", "10.0.0.1"),
        ("namesrv", "config", "set", "a=b"),
    ],
)
def test_command_without_a_server_does_not_ask_for_yes(words: tuple[str, ...]) -> None:
    away = Shell("127.0.0.1:1")
    away(*words)
    assert away.code == 3, away.err
    assert "--yes" not in away.err


def test_the_command_lines_own_group_is_not_listed_as_a_users(shell: Shell) -> None:
    shell("sub", "orders", "-c", "1")
    assert shell.code == 0, shell.err
    listed = [it["group"] for it in shell.rows("group", "ls")]
    assert "billing" in listed
    assert "roquet_cli" not in listed
    assert "roquet_cli" in [it["group"] for it in shell.rows("group", "ls", "--all")]


def test_drained_broker_shows_it(shell: Shell) -> None:
    broker = shell.rows("broker", "ls")[0]["broker"]
    shell("broker", "drain", broker, "-y")
    assert "drained" in shell.rows("broker", "ls")[0]["state"]
    assert [it["state"] for it in shell.rows("cluster", "health")] == ["warning", "fine"]
    shell("broker", "undrain", broker)
    assert "drained" not in shell.rows("broker", "ls")[0]["state"]


def test_group_without_offsets_shows_none_in_a_preview(shell: Shell) -> None:
    shell("group", "create", "fresh")
    rows = shell.rows("group", "seek", "fresh", "-t", "orders", "--to", "latest", "--preview")
    assert {it["now"] for it in rows} == {None}


def test_change_reaches_name_servers_that_are_there_and_names_the_others(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        away = f"127.0.0.1:{closed.getsockname()[1]}"
    both = Shell(f"{away};{shell.address}")
    shell("topic", "create", "shared", "-q", "1")
    both("topic", "rm", "shared", "-y")
    assert both.code == 3
    assert f"done at 1 name servers, but not at {away}" in both.err
    assert {"topic": "shared"} not in shell.rows("topic", "ls")
    both("broker", "drain", "dev", "-y")
    assert (both.code, away in both.err) == (3, True)
    assert "drained" in shell.rows("broker", "ls")[0]["state"]
    shell("broker", "undrain", "dev")


def test_message_is_sent_with_properties(shell: Shell) -> None:
    shell("topic", "create", "marked", "-q", "1")
    shell("pub", "marked", "x", "-p", "a=1", "-p", "b==")
    shell("pub", "marked", "x", "-p", "a")
    assert (shell.code, "should look like NAME=VALUE" in shell.err) == (2, True)
    while not (found := shell.rows("msg", "find", "marked", "--since", "1h")):
        time.sleep(0.05)
    assert found[0]["properties"]["a"] == "1"
    assert found[0]["properties"]["b"] == "="
    shell("msg", "find", "marked", "-k", "")
    assert shell.code == 2
    shell("msg", "find", "marked", "--since", "1h", "--until", "2h")
    assert (shell.code, "nothing lies between" in shell.err) == (2, True)


@pytest.mark.parametrize(
    ("typed", "code"), [(b"\x03", 130), (b"n\n", 1), (b"y\n", 0), (b"\x04", 1)]
)
def test_question_at_a_terminal_is_answered_or_interrupted(
    shell: Shell, tmp_path: Path, typed: bytes, code: int
) -> None:
    inner, outer = pty.openpty()
    program = [sys.executable, "-m", "roquet", "group", "seek", "billing", "-t", "orders"]
    asked = subprocess.Popen(
        [*program, "--to", "latest", "-n", shell.address],
        stdin=outer,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )
    os.close(outer)
    try:
        assert asked.stderr is not None
        said = b""
        while b"[y/N]" not in said:
            said += os.read(asked.stderr.fileno(), 4096)
        os.write(inner, typed)
        assert asked.wait(20) == code
    finally:
        asked.kill()
        asked.communicate()
        os.close(inner)


def test_alter_changes_what_is_given_and_nothing_else(shell: Shell) -> None:
    shell("topic", "create", "changed", "-q", "2", "--type", "FIFO")
    assert "changed on dev: 2 queues, FIFO\n" in shell("topic", "get", "changed")
    assert "2 queues R-- FIFO on dev" in shell("topic", "alter", "changed", "--perm", "r")
    said = shell("topic", "alter", "changed", "--perm", "rw", "--type", "DELAY", "--order")
    assert "2 queues RW- DELAY in order on dev" in said
    assert "4 queues RW- DELAY on" in shell("topic", "alter", "changed", "-q", "4", "--no-order")
    said = shell("topic", "alter", "changed", "-q", "8", "--dry-run")
    assert said == "dry run, nothing is changed: changed would be changed on dev\n"
    assert "changed on dev: 4 queues" in shell("topic", "get", "changed")
    shell("topic", "alter", "changed")
    assert (shell.code, "nothing is to be changed" in shell.err) == (2, True)
    shell("group", "create", "tuned", "--retries", "3")
    assert "5 retries, enabled" in shell("group", "alter", "tuned", "--retries", "5")
    assert "5 retries, disabled" in shell("group", "alter", "tuned", "--no-enabled")
    (row,) = shell.rows("group", "get", "tuned")
    assert (row["retries"], row["enabled"], row["ordered"], row["attributes"]) == (
        5,
        False,
        False,
        {},
    )
    shell("group", "alter", "tuned")
    assert shell.code == 2
    shell("group", "alter", "nobody", "--retries", "1")
    assert shell.code == 5


@pytest.mark.parametrize("name", ["a b", ""])
def test_name_that_no_topic_can_have_is_not_to_be_created(shell: Shell, name: str) -> None:
    shell("topic", "get", name)
    assert shell.code != 0
    assert "topic create" not in shell.err


def test_group_is_moved_in_one_queue_or_by_a_number_of_messages(shell: Shell) -> None:
    shell("group", "create", "walker")
    seek = ("group", "seek", "walker", "-t", "orders")
    shell(*seek, "--to", "latest", "-y")
    one = shell.rows(*seek, "--queue", "dev:1", "--to", "2", "-y")
    assert [(it["queue"], it["then"], it["again"]) for it in one] == [(1, 2, 3)]
    moved = shell.rows(*seek, "--by", "-4", "--preview")
    assert [(it["queue"], it["now"], it["then"]) for it in moved] == [(0, 5, 1), (1, 2, 0)]
    assert [it["then"] for it in shell.rows(*seek, "--by", "9", "--preview")] == [5, 5]
    (first,) = shell.rows(*seek, "--queue", "dev:0", "--to", "earliest", "--preview")
    assert first["then"] == 0
    for wrong in (
        ("--to", "latest", "--by", "1"),
        (),
        ("--queue", "dev:9", "--to", "0"),
        ("--queue", "dev", "--to", "0"),
        ("--queue", "dev:0", "--to", "6"),
        ("--queue", "dev:0", "--to", "1h"),
        ("--by", "1_0"),
        ("--by", "+-1"),
    ):
        shell(*seek, *wrong, "--preview")
        assert shell.code == 2, wrong
