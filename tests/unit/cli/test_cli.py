"""The command line as a user meets it: help, exit codes, one-line errors, boot lines, speed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli_harness import Running, environment, roquet
from roquet.base.errors import UsageError
from roquet.cli.app import parser, run

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    running = Running(tmp_path, "namesrv", "--listen-port", "0")
    line = running.line()
    assert line.startswith("The Name Server boot success. serializeType=JSON, address 127.0.0.1:")
    yield line.rpartition(" ")[2]
    assert running.stop() == 0


def test_a_name_server_says_javas_line_and_stops_when_asked(namesrv: str, tmp_path: Path) -> None:
    listed = roquet(tmp_path, "topic", "ls", "-n", namesrv)
    assert (listed.returncode, listed.stdout) == (0, "")
    none = f"roquet: no broker is registered at {namesrv}: is one running?"
    assert listed.stderr == f"{none} try: roquet broker -n '{namesrv}'\n"
    for words in (("topic", "list"), ("dlq", "ls"), ("broker", "list"), ("group", "ls")):
        again = roquet(tmp_path, *words, "-n", namesrv)
        assert (again.returncode, again.stderr) == (0, listed.stderr), words
    missing = roquet(tmp_path, "topic", "get", "nowhere", "-n", namesrv)
    assert missing.returncode == 5
    assert missing.stderr == (
        "roquet: code 17: there is no topic nowhere; try: roquet topic create nowhere\n"
    )
    lonely = roquet(tmp_path, "topic", "create", "t", "-n", namesrv)
    assert (lonely.returncode, lonely.stderr) == (
        5,
        f"roquet: no master broker is registered at {namesrv}: is one running?\n",
    )


def test_a_taken_port_ends_with_javas_code(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = roquet(tmp_path, "namesrv", "--listen-port", port, "--log-level", "ERROR")
    assert ended.returncode == 253
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"roquet: cannot listen on 127.0.0.1:{port}: ")
    assert ended.stderr.count("\n") == 1


def test_a_taken_fast_port_is_named_as_that(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        fast = taken.getsockname()[1]
        words = ("-s", f"listenPort={fast + 2}", "-s", f"storePathRootDir={tmp_path / 'store'}")
        ended = roquet(tmp_path, "broker", *words, "--log-level", "ERROR")
    said = ended.stdout + ended.stderr
    assert ended.returncode != 0
    assert f"cannot listen on 127.0.0.1:{fast}: " in said
    assert "this is the fast port, always two below listenPort" in said
    assert "-s listenPort=PORT" in said


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["namesrv", "-s", "listenPort=99999"], 254, "listenPort = '99999' (flag): must be"),
        (["namesrv", "-c", "/no/such/file"], 254, "/no/such/file: No such file"),
        (["namesrv", "-s", "listenPort"], 2, "--set 'listenPort': it should look like"),
        (["namesrv", "--set", "=1"], 2, "--set ''...: it should look like"),
        (["broker", "-s", "listenPort=x"], 254, "listenPort = 'x' (flag): must be"),
        (["broker", "-s", "brokerId=-1"], 253, "brokerId = '-1'"),
        (["broker", "-n", "nonsense"], 253, "namesrvAddr"),
        (
            ["broker", "--log-level", "ERROR", "-s", "messageDelayLevel=5x"],
            253,
            "messageDelayLevel: '5x' is not",
        ),
        (["dev", "--port", "70000"], 2, "argument --port: '70000' is no port"),
        (["nonsense"], 2, "there is no command 'nonsense' (try: roquet -h)"),
        (["topc", "ls"], 2, "there is no command 'topc': did you mean topic?"),
        (["topic", "lss"], 2, "there is no command 'lss': did you mean ls? (try:"),
        (["store", "chek", "x"], 2, "there is no command 'chek': did you mean check?"),
        (["bench", "it"], 2, "there is no command 'it': it is one of send, recv (try: roquet b"),
        (["broker", "-x"], 2, "unrecognized arguments: -x (try: roquet broker -h)"),
        (["help", "nonsense"], 2, "there is no command 'nonsense' (try: roquet -h)"),
        (["topic", "create", "a b"], 2, "The specified topic: a b, contains illegal"),
        (["topic", "ls", "-n", "x:y"], 2, "--namesrv: 'x:y' has no port within"),
        (["topic", "ls", "-n", ";"], 2, "--namesrv is empty"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], code: int, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"roquet: {error}")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["topic"], ["store"], ["pipeline"]], ids=" ".join)
def test_words_without_a_command_show_which_there_are(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"usage: {' '.join(['roquet', *words])} ")
    assert "commands:" in shown.err


@pytest.mark.parametrize(("words", "of"), [([], ""), (["topic"], " topic"), (["pub"], " pub")])
def test_help_of_a_command_is_shown_by_the_word_help_too(
    words: list[str], of: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["help", *words])
    assert ended.value.code == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"usage: roquet{of} [-h]")
    assert shown.err == ""


def test_commands_stand_in_one_column_below_their_heading(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(["topic"])
    _, _, listed = capsys.readouterr().err.partition("\ncommands:\n")
    assert listed.splitlines()[:2] == [
        "  ls (list)   list topics",
        "  get         show a topic's queues and what they hold",
    ]


def test_nobody_home_is_told_with_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert run(["topic", "ls", "-n", f"127.0.0.1:{port};127.0.0.1:{port}"]) == 3
    assert "is one running? try: roquet dev" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["namesrv"],
        ["broker"],
        ["dev"],
        ["pub"],
        ["sub"],
        ["cat"],
        ["topic"],
        ["topic", "create"],
        ["topic", "ls"],
        ["topic", "get"],
        ["version"],
    ],
    ids=" ".join,
)
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run([*command, "-h"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(" ".join(["usage: roquet", *command]))
    assert max(map(len, shown.splitlines())) <= 100


def test_settings_are_printed_as_a_property_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "n.conf"
    file.write_text("waitSecondsForService=9\nlistenPort=9877\n")
    assert run(["namesrv", "-c", str(file), "--listen-port", "9878", "-p"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "waitSecondsForService=9" in shown
    assert "listenPort=9878" in shown
    assert "bindAddress=0.0.0.0" in shown
    assert run(["broker", "-m", "-s", "brokerName=x"]) == 0
    important = capsys.readouterr().out.splitlines()
    assert "brokerName=x" in important
    assert run(["broker", "-p", "-s", "brokerName=x"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 2 * len(important)


def test_a_broker_explains_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "--explain"]) == 0
    shown = capsys.readouterr().out
    assert "registration" in shown
    assert "SEND_MESSAGE_V2" in shown


def test_the_version_loads_nothing_heavy(tmp_path: Path) -> None:
    asked = roquet(tmp_path, "--version")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout == roquet(tmp_path, "version").stdout
    assert roquet(tmp_path, "version").stdout.endswith("speaks RocketMQ up to V5_5_0\n")
    program = (
        "import sys; from roquet.cli.app import run; run(['version'])\n"
        "heavy = {'asyncio', 'logging', 'pickle', 'roquet.roquet_native', 'prometheus_client'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.endswith("[]\n")


def test_output_that_nobody_reads_is_no_error(namesrv: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m roquet topic ls --all -n {namesrv} | true"
    piped = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment(tmp_path),
    )
    assert piped.returncode == 0
    assert "no broker is registered" in piped.stderr
    assert piped.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Name servers' address of a dev server, and the folder it keeps messages in."""
    home = tmp_path_factory.mktemp("dev")
    running = Running(
        home, "dev", "--data", str(home / "data"), "--port", "0", "--namesrv-port", "0"
    )
    try:
        lines = running.lines_until("Ctrl-C")
        assert len(lines) <= 12
        (address,) = [line.split()[2] for line in lines if line.startswith("  name server ")]
        yield address, home
    finally:
        code = running.stop()
    assert code == 0


def test_the_first_steps_that_dev_prints_work(dev: tuple[str, Path]) -> None:
    address, home = dev
    sent = roquet(home, "pub", "hello", "hi {{count}}", "-c", "10", "-n", address)
    assert (sent.returncode, sent.stderr) == (0, "")
    assert len(sent.stdout.splitlines()) == 10
    read = roquet(home, "cat", "hello", "-e", "-n", address)
    assert sorted(line.split("  ")[1] for line in read.stdout.splitlines()) == sorted(
        f"hi {n}" for n in range(1, 11)
    )
    shown = roquet(home, "topic", "get", "hello", "-n", address, "--json")
    queues = [json.loads(line) for line in shown.stdout.splitlines()]
    assert sum(queue["messages"] for queue in queues) == 10
    assert {queue["perm"] for queue in queues} == {"RW-"}
    assert roquet(home, "topic", "ls", "-n", address).stdout.splitlines() == ["hello"]


def test_input_lines_become_messages_and_a_group_gets_each_once(dev: tuple[str, Path]) -> None:
    address, home = dev
    roquet(home, "topic", "create", "lines", "-q", "1", "-n", address)
    sent = roquet(
        home, "pub", "lines", "-t", "t", "-k", "k", "--json", "-n", address, given="a\nb\n\x01c\n"
    )
    receipts = [json.loads(line) for line in sent.stdout.splitlines()]
    assert [receipt["offset"] for receipt in receipts] == [0, 1, 2]
    came = roquet(home, "sub", "lines", "-c", "3", "-g", "once", "--json", "-n", address)
    found = [json.loads(line) for line in came.stdout.splitlines()]
    assert [one["body"] for one in found] == ["a", "b", "\x01c"]
    assert [one["id"] for one in found] == [receipt["id"] for receipt in receipts]
    assert {(one["tag"], *one["keys"]) for one in found} == {("t", "k")}
    more = roquet(home, "pub", "lines", "d", "-n", address)
    assert more.returncode == 0
    came = roquet(home, "sub", "lines", "-c", "1", "-g", "once", "-n", address)
    assert came.stdout == "0:3  d\n"


@pytest.mark.parametrize(
    ("offset", "bodies"),
    [
        ("earliest", "012345"),
        ("latest", ""),
        ("4", "45"),
        ("-1", "5"),
        ("99", ""),
        ("-99", "012345"),
    ],
)
def test_cat_begins_where_it_is_told(dev: tuple[str, Path], offset: str, bodies: str) -> None:
    address, home = dev
    topic = f"from_{offset.strip('-')}{'n' if offset.startswith('-') else ''}"
    roquet(home, "topic", "create", topic, "-q", "1", "-n", address)
    roquet(home, "pub", topic, "-n", address, given="0\n1\n2\n3\n4\n5\n")
    shown = roquet(home, "cat", topic, "-e", f"--offset={offset}", "-n", address)
    assert shown.returncode == 0
    assert [line.split("  ")[1] for line in shown.stdout.splitlines()] == list(bodies)


def test_control_characters_do_not_reach_the_terminal(dev: tuple[str, Path]) -> None:
    address, home = dev
    roquet(home, "pub", "control", "\x1b[2Jx", "-n", address)
    assert roquet(home, "cat", "control", "-e", "-n", address).stdout.endswith("\\x1b[2Jx\n")


def test_a_second_dev_server_says_which_flag_moves_it(dev: tuple[str, Path]) -> None:
    address, home = dev
    port = address.rpartition(":")[2]
    ended = roquet(home, "dev", "--namesrv-port", port, "--port", "0")
    assert ended.returncode == 253
    assert ended.stderr.endswith("; --namesrv-port takes another\n")
    assert not list(Path("/dev/shm").glob(f"roquet-dev-{os.getpid()}-*"))


def test_a_broker_says_javas_line(namesrv: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        f"brokerName=b1\nlistenPort=0\nnamesrvAddr={namesrv}\nbindAddress=127.0.0.1\n"
        f"brokerIP1=127.0.0.1\nstorePathRootDir={tmp_path / 'store'}\n"
        "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=20000\n"
        "maxHashSlotNum=1000\nmaxIndexNum=4000\n"
    )
    running = Running(tmp_path, "broker", "-c", str(file))
    line = running.line()
    assert line.startswith("The broker[b1, 127.0.0.1:")
    assert line.endswith(f"] boot success. serializeType=JSON and name server is {namesrv}")
    listed = roquet(tmp_path, "topic", "ls", "-a", "-n", namesrv)
    assert "TBW102" in listed.stdout.splitlines()
    assert running.stop() == 0
    assert roquet(tmp_path, "topic", "ls", "-a", "-n", namesrv).stdout == ""
    assert not (tmp_path / "store" / "abort").exists()


def test_broker_without_a_name_server_warns_that_nobody_finds_it(tmp_path: Path) -> None:
    running = Running(
        tmp_path,
        *("broker", "--listen-port", "0"),
        *("-s", "brokerIP1=127.0.0.1", "-s", "bindAddress=127.0.0.1"),
        *("-s", f"storePathRootDir={tmp_path / 'store'}", "-s", "mappedFileSizeCommitLog=1048576"),
        *("-s", "maxHashSlotNum=1000", "-s", "maxIndexNum=4000"),
    )
    assert "boot success" in running.line()
    assert running.stop() == 0
    assert "no name server is known (namesrvAddr): no client" in running.errors.read_text()


def test_broker_that_left_is_a_problem_of_the_cluster(namesrv: str, tmp_path: Path) -> None:
    def start(name: str) -> Running:
        words = [f"brokerName={name}", "brokerIP1=127.0.0.1", f"storePathRootDir={tmp_path / name}"]
        small = ["mappedFileSizeCommitLog=1048576", "maxHashSlotNum=1000", "maxIndexNum=4000"]
        flags = [it for text in (*words, *small) for it in ("-s", text)]
        running = Running(tmp_path, "broker", *flags, "--listen-port", "0", "-n", namesrv)
        assert "boot success" in running.line()
        return running

    both = [start("stays"), start("leaves")]
    assert roquet(tmp_path, "cluster", "health", "-n", namesrv).returncode == 0
    assert both[1].stop() == 0
    health = roquet(tmp_path, "cluster", "health", "-n", namesrv)
    assert health.returncode == 1
    assert health.stdout.splitlines()[1].split()[:3] == ["problem", "leaves", "it"]
    assert "roquet broker forget leaves" in health.stdout
    forget = ("broker", "forget", "-n", namesrv, "-y")
    there = roquet(tmp_path, *forget, "stays")
    assert (there.returncode, "stays is there: stop it first" in there.stderr) == (2, True)
    nobody = roquet(tmp_path, *forget, "nobody")
    assert (nobody.returncode, "is missed" in nobody.stderr) == (5, True), nobody.stderr
    done = roquet(tmp_path, *forget, "leaves")
    assert done.stdout == "leaves: not missed any more\n", done.stderr
    assert roquet(tmp_path, "cluster", "health", "-n", namesrv).returncode == 0
    assert both[0].stop() == 0


@pytest.mark.parametrize("style", ["json", "text"])
def test_the_log_goes_where_and_how_it_was_said(tmp_path: Path, style: str) -> None:
    path = tmp_path / "logs" / "server.log"
    flags = ("--log-style", style, "--log-file", str(path), "--log-level", "DEBUG")
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=0\nbindAddress=127.0.0.1\nnoSuchSetting=1\n")
    running = Running(tmp_path, "namesrv", "-c", str(file), *flags)
    line = running.line()
    assert running.stop() == 0
    assert line.startswith("The Name Server boot success.")
    assert running.errors.read_bytes() == b""
    lines = path.read_text().splitlines()
    (said,) = [line for line in lines if "noSuchSetting" in line]
    if style == "json":
        rows = [json.loads(line) for line in lines]
        assert all(set(row) >= {"time", "level", "logger", "message"} for row in rows)
        assert json.loads(said)["message"] == "unknown settings ignored: noSuchSetting"
        assert {"DEBUG", "WARNING"} <= {row["level"] for row in rows}
    else:
        assert " WARNING roquet." in said


def test_a_log_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = roquet(tmp_path, "broker", "--log-file", str(tmp_path / "file" / "broker.log"))
    assert ended.returncode == 254
    assert ended.stderr.startswith("roquet: --log-file cannot be written: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sub", "t", "--gruop", "g"), "--gruop g: did you mean --group? (try: roquet sub -h)"),
        (("pub", "t", "one", "two"), "unrecognized arguments: two (try: roquet pub -h)"),
        (("topic", "create", "t", "-r", "1"), "unrecognized arguments: -r 1 (try: roquet topic"),
    ],
)
def test_unknown_argument_is_refused_with_the_help_of_its_command(
    words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        parser().parse_args(words)
    assert said in str(refused.value)


def test_body_of_a_message_may_stand_behind_options() -> None:
    for words in (("hi", "--delay", "1s"), ("--delay", "1s", "hi")):
        options = parser().parse_args(["pub", "t", *words])
        assert (options.topic, options.body, options.delay) == ("t", "hi", "1s")


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["namesrv", "-n", "127.0.0.1:1", "ls"], "-n"),
        (["namesrv", "-c", "x.conf", "config", "get"], "-c"),
        (["broker", "-n", "127.0.0.1:1", "ls"], "-n"),
        (["broker", "--namesrv-addr=127.0.0.1:1", "drain", "broker-a", "--yes"], "-n"),
        (["broker", "-s", "listenPort=1", "config", "get", "broker-a"], "-s"),
    ],
)
def test_server_flag_before_a_command_is_refused_not_dropped(
    words: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert f"{flag} before " in said
    assert "put it behind" in said


@pytest.mark.parametrize("server", ["namesrv", "broker"])
@pytest.mark.parametrize("words", [["-p", "9876"], ["-p9876"], ["-p=9876"], ["9876"]])
def test_port_by_the_flag_that_prints_settings_names_the_flag_for_ports(
    server: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([server, *words]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "--listen-port 9876" in said
