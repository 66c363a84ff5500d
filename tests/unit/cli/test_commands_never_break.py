"""Every command with bad values, odd descriptors, no server: one line and an exit code."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roquet.cli import app
from roquet.cli.app import run
from roquet.cli.commands import tree

if TYPE_CHECKING:
    from roquet.cli.commands.declared import Row

SOURCES = Path(__file__).parents[3] / "src"


def away() -> str:
    """Return an address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return f"127.0.0.1:{closed.getsockname()[1]}"


NETWORK = [
    ["pub", "t", "x"],
    ["sub", "t"],
    ["sub", "t", "--sql", "a > 1"],
    ["cat", "t"],
    ["topic", "create", "t"],
    ["topic", "alter", "t", "-q", "4"],
    ["topic", "ls"],
    ["topic", "get", "t"],
]
FILES = [
    ["store", "check"],
    ["store", "dump"],
    ["store", "repair"],
    ["store", "repair", "--dry-run"],
]
BAD_TEXTS = ["", "a b", "../..", "é\udcff", "-1", "9" * 400, "%s{}\n"]
"""No zero byte: arguments of a process have none."""


def check_one_line(err: str) -> None:
    assert "Traceback" not in err
    assert err.startswith("roquet: "), err
    assert err.count("\n") == 1, err


@pytest.mark.parametrize("command", NETWORK, ids=" ".join)
def test_command_without_server_ends_soon_with_one_line(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    began_s = time.monotonic()
    assert run([*command, "-n", away()]) == 3
    assert time.monotonic() - began_s < 3
    shown = capsys.readouterr()
    assert shown.out == ""
    check_one_line(shown.err)
    assert "roquet dev" in shown.err


@pytest.mark.parametrize("command", NETWORK[::3], ids=" ".join)
def test_command_of_a_silent_server_says_so_within_3_s(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        began_s = time.monotonic()
        assert run([*command, "-n", f"127.0.0.1:{mute.getsockname()[1]}"]) == 3
        assert time.monotonic() - began_s < 6
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "answer" in err


MORE: dict[tuple[str, ...], list[str]] = {
    ("topic", "alter"): ["-q", "4"],
    ("group", "alter"): ["--retries", "3"],
    ("group", "seek"): ["--to", "latest"],
    ("msg", "get"): ["-t", "t"],
    ("msg", "resend"): ["-t", "t"],
    ("msg", "find"): ["-k", "k"],
    ("dlq", "resend"): ["--all"],
    ("user", "set"): ["--admin"],
    ("user", "alter"): ["--status", "disable"],
}
"""What a command needs besides what its declaration demands."""


FITTING = {"--actions": "Pub", "RESOURCE": "Topic:t"}
"""Words of arguments that are checked before anybody is asked."""


def words_of(row: Row, text: str = "t") -> list[str]:
    """Return a command line of a row with `text` for each of its arguments."""
    words = list(row.words)
    for it in row.arguments:
        required = it.options.get("required")
        if it.names[0].startswith("-") and required:
            words += [it.names[0], FITTING.get(it.names[0], text) if text == "t" else text]
        elif not it.names[0].startswith("-") and it.options.get("nargs") not in ("?", "*"):
            metavar = str(it.options.get("metavar"))
            is_pair, is_address = "=" in metavar, metavar == "HOST:PORT"
            choices = it.options.get("choices")
            own = f"{text}{metavar}" if metavar == "TARGET" else text
            own = str(choices[0]) if isinstance(choices, tuple) else own
            own = FITTING.get(metavar, own) if text == "t" else own
            words.append(f"{own}={own}" if is_pair else f"{own}:1" if is_address else own)
    return [*words, *MORE.get(row.words, []), *(["-y"] if row.changes else [])]


ASKING = [row for row in tree.ROWS if row.given != "nothing"]


@pytest.mark.parametrize("row", ASKING, ids=lambda it: " ".join(it.words))
def test_every_declared_command_without_server_ends_with_one_line(
    row: Row, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run([*words_of(row), "-n", away()])
    shown = capsys.readouterr()
    assert code == 3, shown.err
    if row.words != ("namesrv", "ls"):
        check_one_line(shown.err)


@pytest.mark.parametrize("text", BAD_TEXTS, ids=lambda it: repr(it[:8]))
def test_every_declared_command_with_bad_values_ends_with_one_line(
    text: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    # It is the same for every line, and costs more than most of them.
    one = app.parser()
    monkeypatch.setattr(app, "parser", lambda _=None: one)
    monkeypatch.setenv("NAMESRV_ADDR", f"{text}:x" if text == "-1" else away())
    monkeypatch.setenv("ROQUET_CONTEXTS", str(tmp_path / "contexts"))
    for row in tree.ROWS:
        flags = [it.names[0] for it in row.arguments if it.names[0].startswith("-")]
        lines = [words_of(row, text), [*words_of(row), text, text]]
        lines += [[*words_of(row), f"{flag}={text}"] for flag in flags]
        for words in lines:
            code = run(words)
            err = capsys.readouterr().err
            if code and row.words != ("namesrv", "ls"):
                check_one_line(err)
            assert "python -X dev" not in err, words


@pytest.mark.parametrize("redirections", ["> /dev/full", ">&-", "| true"])
@pytest.mark.parametrize("command", ["cheat", "context ls", "completion bash"])
def test_declared_command_whose_output_cannot_be_written_is_one_line(
    command: str, redirections: str, tmp_path: Path
) -> None:
    ended = process(command, redirections, tmp_path)
    assert "Traceback" not in ended.stderr.decode()
    assert ended.stderr.count(b"\n") <= 1
    assert ended.returncode in (0, 1)


def _bad_values() -> list[list[str]]:
    found = [[*words[:-1], text] for words in FILES for text in BAD_TEXTS]
    for text in BAD_TEXTS:
        found += [
            ["pub", text, "x"],
            ["pub", "t", "x", "-c", text],
            ["pub", "t", "-f", text],
            ["pub", "t", "--delimiter", text, "-f", "/nowhere"],
            ["sub", text],
            ["sub", "t", "-g", text],
            ["sub", "t", "-c", text],
            ["sub", "t", "--sql", text + "("],
            ["cat", text],
            ["cat", "t", "-o", text + "x"],
            ["topic", "create", text],
            ["topic", "create", "t", "-q", text],
            ["topic", "alter", "t", "-q", text],
            ["topic", "ls", "-n", text + ":x"],
            ["topic", "get", text],
            ["namesrv", "-c", f"/nowhere/{text}"],
            ["namesrv", "-s", text],
            ["broker", "-c", f"/nowhere/{text}"],
            ["broker", "-s", f"listenPort={text}x"],
            ["broker", "--listen-port", text + "x"],
            ["relay", "-c", f"/nowhere/{text}"],
            ["dev", "--port", text],
            ["dev", "--data", f"/proc/nowhere/{text}"],
            ["doctor", "-c", f"/nowhere/{text}"],
            ["store", "backup", f"/nowhere/{text}", "/nowhere/2"],
            ["store", "restore", f"/nowhere/{text}", "/nowhere/2"],
            ["pipeline", "run", text],
            ["broker", "-p", "-s", f"{text}=1"],
            ["pipeline", "run", "stats", text],
            ["pipeline", "pack", f"/nowhere/{text}/x.tar.gz"],
            [text],
        ]
    return found


def test_bad_values_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = app.parser()
    monkeypatch.setattr(app, "parser", lambda _=None: one)
    monkeypatch.setenv("NAMESRV_ADDR", away())
    wrong: list[str] = []
    for words in _bad_values():
        try:
            code = run(words)
        except SystemExit as ended:  # -h and --version
            code = int(ended.code or 0)
        err = capsys.readouterr().err
        if code == 0 and not err:
            continue
        if code == 0 or "Traceback" in err or not err.startswith("roquet: ") or err.count("\n") > 1:
            wrong.append(f"{words}: {code} {err!r}")
        if "python -X dev" in err:
            wrong.append(f"{words}: a defect: {err!r}")
    assert not wrong, "\n".join(wrong)


def test_files_in_the_way_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(64))
    empty = tmp_path / "empty"
    (empty / "commitlog").mkdir(parents=True)
    for words in (
        ["dev", "--data", str(file)],
        ["store", "check", str(file)],
        ["store", "dump", str(file)],
        ["store", "repair", str(file)],
        ["store", "backup", str(empty), str(file)],
        ["store", "backup", str(empty), str(file / "x")],
        ["store", "backup", str(file), str(tmp_path / "new")],
        ["store", "restore", str(file), str(tmp_path / "new")],
        ["pipeline", "pack", str(file / "x.tar.gz")],
        ["pipeline", "pack", str(tmp_path)],
        ["broker", "-c", str(tmp_path)],
        ["broker", "-c", str(file)],
        ["namesrv", "-c", str(file)],
        ["doctor", "-c", str(file)],
        ["relay", "-c", str(file)],
    ):
        assert run([*words, "-p"] if words[0] in ("broker", "namesrv") else words) != 0, words
        check_one_line(capsys.readouterr().err)


def process(arguments: str, redirections: str, home: Path) -> subprocess.CompletedProcess[bytes]:
    kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}
    return subprocess.run(
        ["bash", "-c", f"{sys.executable} -m roquet {arguments} {redirections}"],
        capture_output=True,
        check=False,
        timeout=120,
        env={
            **kept,
            "HOME": str(home),
            "PYTHONPATH": str(SOURCES),
            "PYTHONIOENCODING": "ascii:strict",
        },
    )


@pytest.mark.parametrize("redirections", ["> /dev/full", ">&-"])
@pytest.mark.parametrize("command", ["version", "broker --explain", "pipeline jobs"])
def test_output_that_cannot_be_written_is_one_line(
    command: str, redirections: str, tmp_path: Path
) -> None:
    ended = process(command, redirections, tmp_path)
    assert ended.returncode == 1
    check_one_line(ended.stderr.decode())


def test_closed_input_is_one_line_and_no_abort(tmp_path: Path) -> None:
    ended = process(f"pub t -n {away()}", "<&-", tmp_path)
    assert ended.returncode == 3
    check_one_line(ended.stderr.decode())
    assert process("version", "<&- 2>&-", tmp_path).returncode == 0
    assert process(f"topic ls -n {away()}", "<&- >&- 2>&-", tmp_path).returncode == 3


def test_ascii_output_gets_escapes(tmp_path: Path) -> None:
    ended = process("pipeline run nonsense-é", "", tmp_path)
    assert ended.returncode == 2
    check_one_line(ended.stderr.decode("ascii"))
