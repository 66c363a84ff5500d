"""Commands against a dev server: topics that are not shrunk by accident, what `pub` sends."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cli_harness import dev_server, environment
from cli_harness import roquet as process
from roquet.cli.app import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX = 4 * 1024 * 1024


def roquet(home: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command: in this process unless it reads the input."""
    if given:
        return process(home, *arguments, given=given)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(arguments))
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Name servers' address of a dev server, and a folder."""
    home = tmp_path_factory.mktemp("dev")
    with dev_server(home) as (address, _):
        yield address, home


def queues(dev: tuple[str, Path], topic: str) -> int:
    address, home = dev
    shown = roquet(home, "topic", "get", topic, "-n", address, "--json")
    return len(shown.stdout.splitlines())


def texts(dev: tuple[str, Path], topic: str, *more: str) -> list[str]:
    address, home = dev
    shown = roquet(home, "cat", topic, "-e", "--json", "-n", address, *more)
    return [json.loads(line)["body"] for line in shown.stdout.splitlines()]


def test_topic_create_refuses_what_exists_and_alter_asks_before_it_shrinks(
    dev: tuple[str, Path],
) -> None:
    address, home = dev
    assert roquet(home, "topic", "create", "wide", "-q", "16", "-n", address).returncode == 0
    sent = roquet(home, "pub", "wide", "x{{count}}", "-c", "32", "-n", address)
    assert sent.returncode == 0
    again = roquet(home, "topic", "create", "wide", "-n", address)
    assert again.returncode == 1
    assert "16 queues on dev" in again.stderr
    assert "roquet topic alter wide" in again.stderr
    assert queues(dev, "wide") == 16
    refused = roquet(home, "topic", "alter", "wide", "-q", "8", "-n", address)
    assert refused.returncode == 2
    assert "16 messages of wide would be out of reach" in refused.stderr
    assert "--yes" in refused.stderr
    assert queues(dev, "wide") == 16
    shrunk = roquet(home, "topic", "alter", "wide", "-q", "8", "--yes", "-n", address)
    assert (shrunk.returncode, shrunk.stderr) == (0, "")
    assert queues(dev, "wide") == 8
    grown = roquet(home, "topic", "alter", "wide", "-q", "16", "-n", address)
    assert grown.returncode == 0
    assert len(texts(dev, "wide")) == 32
    assert roquet(home, "topic", "alter", "none", "-q", "8", "-n", address).returncode == 5


def test_pub_refuses_what_is_larger_than_a_message(dev: tuple[str, Path]) -> None:
    address, home = dev
    big = home / "big"
    for given, name in (("a\n" + "x" * (MAX + 7) + "\nb\n", "line 2"), ("x" * (MAX + 9), "line 1")):
        ended = roquet(home, "pub", "large", "-n", address, given=given)
        assert ended.returncode == 2
        size = MAX + (7 if name == "line 2" else 9)
        assert f"{name} has {size} bytes: the limit of a message is {MAX}" in ended.stderr
    big.write_bytes(b"x" * (MAX + 1))
    ended = roquet(home, "pub", "large", "--file", str(big), "-n", address)
    assert ended.returncode == 2
    assert f"has {MAX + 1} bytes" in ended.stderr
    assert texts(dev, "large") == ["a"]


def test_pub_says_what_a_message_is(dev: tuple[str, Path]) -> None:
    address, home = dev
    file = home / "file"
    file.write_bytes(b"one\n\ntwo\n")
    for words in (["--file", str(file)], ["--file", str(file), "--lines"]):
        assert roquet(home, "pub", "parts", *words, "-n", address).returncode == 0
    assert sorted(texts(dev, "parts")) == ["one", "one\n\ntwo\n", "two"]
    sent = roquet(home, "pub", "cut", "--delimiter", r"\0", "-n", address, given="a\nb\0c\0")
    assert sent.returncode == 0
    assert sorted(texts(dev, "cut")) == ["a\nb", "c"]
    empty = roquet(home, "pub", "lines", "-n", address, given="a\n\nb\n")
    assert empty.returncode == 0
    assert "1 empty lines not sent" in empty.stderr
    assert sorted(texts(dev, "lines")) == ["a", "b"]
    raw = subprocess.run(
        [sys.executable, "-m", "roquet", "pub", "bytes", "-n", address],
        input=b"\xff\xfe\n",
        capture_output=True,
        check=False,
        timeout=120,
        env=environment(home),
    )
    assert (raw.returncode, raw.stderr) == (0, b"")
    shown = roquet(home, "cat", "bytes", "-e", "--json", "-n", address)
    assert json.loads(shown.stdout)["body_base64"] == "//4="


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_ctrl_c_ends_an_interactive_pub(dev: tuple[str, Path], terminal: bool) -> None:
    address, home = dev
    topic = f"typed_{terminal}"
    ours, theirs = pty.openpty() if terminal else reversed(os.pipe())
    child = subprocess.Popen(
        [sys.executable, "-m", "roquet", "pub", topic, "-n", address],
        stdin=theirs,
        stdout=subprocess.PIPE,
        env=environment(home),
        start_new_session=True,
    )
    os.close(theirs)
    try:
        assert child.stdout is not None
        os.write(ours, b"first\n")
        assert b"queue" in child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == 130
    finally:
        child.kill()
        os.close(ours)
        assert child.stdout is not None
        child.stdout.close()
    assert texts(dev, topic) == ["first"]


def test_cat_of_the_last_messages_counts_the_topic_and_not_each_queue(
    dev: tuple[str, Path],
) -> None:
    address, home = dev
    roquet(home, "topic", "create", "many", "-q", "4", "-n", address)
    roquet(home, "pub", "many", "m{{count}}", "-c", "20", "-n", address)
    assert texts(dev, "many", "-o", "-5") == [f"m{n}" for n in range(16, 21)]


def test_sql_filters_work_in_dev(dev: tuple[str, Path]) -> None:
    address, home = dev
    roquet(home, "pub", "filtered", "x", "-t", "red", "-n", address)
    roquet(home, "pub", "filtered", "y", "-t", "blue", "-n", address)
    got = roquet(
        home, "sub", "filtered", "--sql", "TAGS = 'blue'", "-c", "1", "-g", "sql", "-n", address
    )
    assert got.returncode == 0
    assert got.stdout.endswith("  y\n")
    wrong = roquet(home, "sub", "filtered", "--sql", "TAGS >< 1", "-n", address)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("roquet: filtered: ")


def test_sub_of_an_unknown_topic_says_so_and_goes_on_when_it_comes(dev: tuple[str, Path]) -> None:
    address, home = dev
    child = subprocess.Popen(
        [sys.executable, "-m", "roquet", "sub", "soon", "-c", "1", "-n", address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(home),
    )
    assert child.stderr is not None
    line = child.stderr.readline().decode()
    assert "there is no topic soon yet" in line
    assert "roquet topic create soon" in line
    roquet(home, "pub", "soon", "now", "-n", address)
    out, rest = child.communicate(timeout=120)
    assert (child.returncode, rest) == (0, b"")
    assert out.endswith(b"now\n")
