"""The commands over topics, groups, messages and brokers, against a dev server."""

from __future__ import annotations

import contextlib
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cli_harness import dev_server
from roquet import sync
from roquet.base.errors import UsageError
from roquet.cli.app import parser, run
from roquet.cli.commands import declared, tree
from roquet.cli.commands.groups import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Shell:
    """Runs commands against one dev server."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.code = 0
        self.err = ""

    def __call__(self, *words: str) -> str:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.code = run([*words, "-n", self.address])
        self.err = err.getvalue()
        assert "Traceback" not in self.err
        return out.getvalue()

    def rows(self, *words: str) -> list[dict[str, Any]]:
        text = self(*words, "-o", "json")
        assert (self.code, self.err) == (0, "")
        return [json.loads(line) for line in text.splitlines()]


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
    assert row == {"group": "billing", "members": 0, "model": "-", "lag": 0}
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
    assert shell("group", "members", "billing") == (
        "client  address  language  version\nnobody of billing is online\n"
    )


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
    assert shell("group", "clone", "billing", "new", "-t", "orders") == (
        "new goes on where billing is\n"
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
    shell("msg", "get", "what")
    assert shell.code == 2


def test_brokers_are_shown_changed_and_drained(shell: Shell) -> None:
    (row,) = shell.rows("broker", "ls")
    broker = row["broker"]
    assert (row["role"], row["version"]) == ("master", "V5_5_0")
    (status,) = shell.rows("broker", "status", broker)
    assert status["brokerActive"] == "true"
    shell("broker", "config", "set", broker, "maxMessageSize=70000")
    assert shell("broker", "config", "get", broker, "maxMessageSize") == "maxMessageSize  70000\n"
    shell("broker", "config", "set", broker, "maxMessageSize")
    assert shell.code == 2
    shell("broker", "config", "get", broker, "noSuchKey")
    assert shell.code == 2
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
        module, _, name = row.work.partition(":")
        found = __import__(f"roquet.cli.commands.{module}", fromlist=[name])
        assert callable(getattr(found, name)), row
        assert row.words[0] in whole
    assert isinstance(tree.ROWS[0], declared.Row)
