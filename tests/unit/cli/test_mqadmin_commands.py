"""RocketMQ's admin commands under their own names: the table, the flags, and commands at work.

tests/interop/test_our_mqadmin.py compares what they print with what Java's tool prints.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import socket
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

import interop_commands
from cli_harness import dev_server, roquet
from cli_shell import Shell
from roquet.admin.rocketmq.static_plans import extended
from roquet.cli.app import run
from roquet.cli.mqadmin.run import COMMANDS
from roquet.cli.mqadmin.shared import java_map, java_order, pretty
from roquet.cli.mqadmin.table.absent import ABSENT
from roquet.cli.mqadmin.table.built import BUILT
from roquet.cli.mqadmin.table.declared import INSTEAD, MARKS, UNKNOWN, Java, parser_of
from roquet.cli.mqadmin.table.for_rocketmq import FOR_ROCKETMQ
from roquet.model.topic import TopicConfig
from roquet.protocol import properties as props
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ASKED_FOR_NOTHING = ("queryMsgById", "topic")
"""RocketMQ's tool demands it, and gives it to a broker that looks at the id alone."""
FITTING = {
    "queryMsgById": ["-t", "T", "-i", "7F00000100002A9F0000000000000000"],
    "updateTopicList": ["-b", "127.0.0.1:1", "-f", "FILE"],
    "updateSubGroupList": ["-b", "127.0.0.1:1", "-f", "FILE"],
    "setConsumeMode": ["-b", "127.0.0.1:1", "-t", "T", "-g", "G", "-m", "POP"],
    "resetMasterFlushOffset": ["-b", "127.0.0.1:1", "-o", "0"],
    "updateUser": ["-b", "127.0.0.1:1", "-u", "U", "-s", "disable"],
    "copyUser": ["-f", "127.0.0.1:1", "-t", "127.0.0.1:1"],
    "copyAcl": ["-f", "127.0.0.1:1", "-t", "127.0.0.1:1"],
    "updateOrderConf": ["-t", "T", "-m", "get"],
}
"""Arguments of commands that do not take a 0 everywhere."""
AT_OURS = {
    "addBroker": "-c {address} -b /nowhere",
    "removeBroker": "-c {address} -b {cluster}:{broker}:0",
    "getSyncStateSet": "-a {address} -b {broker}",
    "getBrokerEpoch": "-b {broker}",
    "getControllerMetaData": "-a {address}",
    "getControllerConfig": "-a {address}",
    "updateControllerConfig": "-a {address} -k a -v b",
    "electMaster": "-a {address} -b 1 -bn {broker} -c {cluster}",
    "cleanBrokerMetadata": "-a {address} -bn {broker} -c {cluster}",
    "getColdDataFlowCtrInfo": "-b {address}",
    "updateColdDataFlowCtrGroupConfig": "-c {cluster} -g g -v 1",
    "removeColdDataFlowCtrGroupConfig": "-c {cluster} -g g",
    "setCommitLogReadAheadMode": "-b {address} -m 0",
    "rocksDBConfigToJson": "-c {cluster}",
    "checkRocksdbCqWriteProgress": "-c {cluster}",
    "switchTimerEngine": "-c {cluster} -e R",
    "updateStaticTopic": "-b {broker} -t Static -qn 2",
    "remappingStaticTopic": "-b {broker} -t Static",
}
"""Arguments that lead to a server of ours, which has no such thing."""
WORKING = (*BUILT, *FOR_ROCKETMQ)
ASKING = tuple(it for it in WORKING if not it.local)
NOTHING_TO_MOVE = "remappingStaticTopic"
"""Looks for the topic, which no broker of ours has."""
ONLY_THEIRS = tuple(it for it in FOR_ROCKETMQ if not it.local and it.name != NOTHING_TO_MOVE)
BAD_TEXTS = ["", "a b", "../..", "é\udcff", "-1", "9" * 400, "%s{}\n"]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    home: Path = tmp_path_factory.mktemp("dev")
    with dev_server(home) as (address, _):
        yield Shell(address)


@pytest.fixture
def away() -> str:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return f"127.0.0.1:{closed.getsockname()[1]}"


def required(command: Java, text: str) -> list[str]:
    """Return the flags that a command must be given."""
    words: list[str] = []
    chosen = False
    for flag in command.flags.split():
        name = flag.partition(":")[2].rstrip(MARKS)
        if flag.endswith("!") or (name in command.one_of and not chosen):
            chosen = chosen or name in command.one_of
            words.append(f"--{name}={text}")
    return words


def test_table_has_the_96_commands_of_5_5_0() -> None:
    there = {it.name for it in interop_commands.COMMANDS}
    assert set(COMMANDS) == there
    assert len(COMMANDS) == sum(map(len, (BUILT, FOR_ROCKETMQ, ABSENT))) == 96
    for command in COMMANDS.values():
        assert bool(command.work) == (command not in ABSENT), command
        assert bool(command.lacks) == (command not in BUILT), command
        assert "-n" in parser_of(command).format_help()


def read_by(function: Callable[..., Any], seen: set[str]) -> set[str]:
    """Return the options that a function reads, or one of our tool that it calls."""
    read: set[str] = set()
    tree = ast.parse(inspect.getsource(function))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "options":
            read.add(node.attr)
        if not isinstance(node, ast.Call):
            continue
        if ast.unparse(node).startswith("getattr(options, "):
            read.add(ast.literal_eval(node.args[1]))
        name = ast.unparse(node.func)
        called = function.__globals__.get(name)
        if name not in seen and inspect.isfunction(called):
            seen.add(name)
            if called.__module__.startswith("roquet.cli.mqadmin"):
                read |= read_by(called, seen)
    return read


@pytest.mark.parametrize("command", WORKING, ids=lambda it: it.name)
def test_every_flag_has_an_effect_or_is_refused(
    command: Java, capsys: pytest.CaptureFixture[str]
) -> None:
    read = read_by(command.function(), set())
    for flag in command.flags.split():
        name = flag.partition(":")[2].rstrip(MARKS)
        # What leads to the brokers is read for all commands by the one that runs them.
        if (command.name, name) != ASKED_FOR_NOTHING and not {">", "="} & set(flag):
            assert (name in read) != ("~" in flag), flag
        if "~" not in flag:
            continue
        given = [f"--{name}"] if "-" in flag else [f"--{name}=true"]
        assert run(["mqadmin", command.name, *required(command, "x"), *given]) == 2
        assert f"--{name} is not here; {UNKNOWN[name]}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ASKING, ids=lambda it: it.name)
def test_command_without_server_ends_with_one_line(
    command: Java, away: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(command.function())
    places = {"address": away, "cluster": "C", "broker": "B"}
    given = FITTING.get(command.name) or AT_OURS.get(command.name, "").format(**places).split()
    given = given or required(command, "0")
    file = tmp_path / "list.json"
    file.write_text('[{"topicName": "T", "groupName": "G"}]')
    words = [word.replace("FILE", str(file)) for word in given]
    assert run(["mqadmin", command.name, "-n", away, *words]) == 3
    err = capsys.readouterr().err
    assert (err.startswith("roquet: "), err.count("\n")) == (True, 1), err


@pytest.mark.parametrize("command", ABSENT, ids=lambda it: it.name)
def test_command_without_work_says_why_in_one_line(
    command: Java, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["mqadmin", command.name, *required(command, "x")]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"roquet: mqadmin {command.name}: roquet has no ")
    assert INSTEAD[command.lacks] in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ONLY_THEIRS, ids=lambda it: it.name)
def test_command_for_rocketmqs_servers_says_at_ours_what_to_type(
    shell: Shell, command: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mappings of static topics are written before anything is asked.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (row,) = shell.rows("broker", "ls")
    for address in (row["address"], shell.address):
        words = AT_OURS[command.name].format(**row | {"address": address}).split()
        if words[0] == "-b" and address in words and address != row["address"]:
            continue  # the address of a broker is looked up first
        mqadmin(shell, command.name, *words)
        assert (shell.code, shell.err.count("\n")) == (1, 1), shell.err
        assert f"roquet: mqadmin {command.name}: code 3: request type " in shell.err
        assert f": roquet has no {command.lacks.removeprefix('the ')}; " in shell.err
        assert INSTEAD[command.lacks] in shell.err


def test_ordinary_topic_is_not_made_a_static_one(shell: Shell) -> None:
    (row,) = shell.rows("broker", "ls")
    where = ("-b", row["broker"], "-t", "Ordinary")
    more = ("updateStaticTopic", *where, "-qn")
    move = (NOTHING_TO_MOVE, *where)
    mqadmin(shell, *move)
    assert (shell.code, shell.err) == (5, "roquet: no broker has the topic Ordinary\n")
    mqadmin(shell, "updateTopic", "-b", row["address"], "-t", "Ordinary", "-r", "2", "-w", "2")
    for words in ((*more, "4"), move):
        mqadmin(shell, *words)
        told = f"roquet: the broker {row['broker']} has Ordinary as an ordinary topic\n"
        assert (shell.code, shell.err) == (2, told)
    for wrong in ("0", "-1", "70000", "x"):
        mqadmin(shell, *more, wrong)
        assert (shell.code, "-qn" in shell.err) == (2, True), shell.err
    mqadmin(shell, NOTHING_TO_MOVE, "-b", "nobody", "-t", "Ordinary")
    assert (shell.code, "no master of nobody" in shell.err) == (5, True), shell.err


def test_mapping_file_is_checked_before_anything_is_changed(shell: Shell, tmp_path: Path) -> None:
    (row,) = shell.rows("broker", "ls")
    broker, file = row["broker"], tmp_path / "plan.json"
    plan = extended("Planned", 2, [broker], {}, 1_800_000_000_000)
    words = ("-b", broker, "-t", "Planned", "-mf", str(file))
    file.write_bytes(plan.encode())
    mqadmin(shell, "updateStaticTopic", *words, "-qn", "2", "-fr", "true")
    assert (shell.code, "code 3: request type 513 not supported" in shell.err) == (1, True)
    for text, told in (
        (b"{", "cannot be read"),
        (b"{}", "has no mapping of Planned"),
        (plan.encode().replace(b"Planned", b"Other"), "has no mapping of Planned"),
        (plan.encode().replace(b'"queueId":1', b'"queueId":7'), "is no queue of the broker"),
        (plan.encode().replace(b'MapIn":[]', b'MapIn":["x"]'), "x is without a mapping"),
    ):
        file.write_bytes(text)
        mqadmin(shell, NOTHING_TO_MOVE, *words)
        assert (shell.code, shell.err.count("\n")) == (2, 1), shell.err
        assert told in shell.err


def test_file_that_is_no_compaction_log_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def dumped(data: bytes) -> tuple[int, str]:
        file = tmp_path / "0"
        file.write_bytes(data)
        code = run(["mqadmin", "dumpCompactionLog", "-f", str(file)])
        return code, capsys.readouterr().err

    assert dumped(b"") == dumped(bytes(4096)) == (0, "")
    for wrong in (b"\0\1", b"\0\0\0\x10" + bytes(12), b"\xff" * 64, b"\0\0\x10\0" + bytes(60)):
        code, err = dumped(wrong)
        assert (code, err.count("\n")) == (4, 1), err
        assert "no message begins at 0: " in err
    assert run(["mqadmin", "dumpCompactionLog"]) == 2
    assert run(["mqadmin", "dumpCompactionLog", "-f", str(tmp_path)]) == 2
    assert run(["mqadmin", "dumpCompactionLog", "-f", str(tmp_path / "gone")]) == 5


@pytest.mark.parametrize("text", BAD_TEXTS, ids=lambda it: repr(it[:8]))
def test_bad_values_end_with_one_line(
    shell: Shell, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in WORKING:
        if command.name in ("updateKvConfig", "deleteKvConfig", "clusterRT"):
            continue  # any text is a key there; the last one needs none, and goes on
        code = run(["mqadmin", command.name, "-n", shell.address, *required(command, text)])
        err = capsys.readouterr().err
        assert "Traceback" not in err
        assert "python -X dev" not in err, (command.name, err)
        assert err.count("\n") <= 1, (command.name, err)
        assert bool(code) == bool(err), (command.name, code, err)


def mqadmin(shell: Shell, *words: str) -> str:
    return shell("mqadmin", *words)


def test_words_that_are_no_command_or_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mqadmin", "topicLst"]) == 5
    assert "did you mean topicList?" in capsys.readouterr().err
    assert run(["mqadmin", "topicRoute"]) == 2
    assert "-t/--topic" in capsys.readouterr().err
    assert run(["mqadmin", "updateTopic", "-t", "x"]) == 2
    assert run(["mqadmin", "updateTopic", "-t", "x", "-b", "h:1", "-c", "c"]) == 2
    user = ["mqadmin", "updateUser", "-b", "h:1", "-u", "u"]
    assert run(user) == 2
    assert run([*user, "-s", "disable", "-t", "Super"]) == 2
    capsys.readouterr()
    assert run(["mqadmin"]) == 2
    capsys.readouterr()
    assert run(["mqadmin", "-h"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in COMMANDS)
    with pytest.raises(SystemExit):
        run(["mqadmin", "resetOffsetByTime", "-h"])
    assert "-c CLUSTER" in capsys.readouterr().out


def test_commands_at_work(shell: Shell) -> None:
    (row,) = shell.rows("broker", "ls")
    broker, cluster, address = row["broker"], row["cluster"], row["address"]
    made = mqadmin(shell, "updateTopic", "-c", cluster, "-t", "Made", "-r", "2", "-w", "2")
    assert made.startswith(f"create topic to {address} success.\nTopicConfig [topicName=Made,")
    assert "Made" in mqadmin(shell, "topicList").split()
    changed = mqadmin(shell, "updateTopicPerm", "-b", address, "-t", "Made", "-p", "4")
    assert f"update topic perm from 6 to 4 in {address} success." in changed
    assert mqadmin(shell, "updateTopicPerm", "-b", address, "-t", "Made", "-p", "4").startswith(
        "new perm equals"
    )
    mqadmin(shell, "updateTopicPerm", "-b", address, "-t", "Made", "-p", "6")
    name = shell("pub", "Made", "hello", "-k", "k", "-t", "tag").split()[0]
    assert name in mqadmin(shell, "printMsg", "-t", "Made", "-s", "tag")
    assert name not in mqadmin(shell, "printMsg", "-t", "Made", "-s", "other")
    assert "Keys:                [k]" in mqadmin(
        shell, "queryMsgByUniqueKey", "-t", "Made", "-i", name
    )
    mqadmin(shell, "queryMsgByUniqueKey", "-t", "Made", "-i", "0" * 32)
    assert shell.code == 5
    mqadmin(shell, "updateSubGroup", "-c", cluster, "-g", "g", "-r", "3")
    assert shell.rows("group", "get", "g")[0]["retries"] == 3
    mqadmin(shell, "resetOffsetByTime", "-g", "g", "-t", "Made", "-s", "0")
    assert "Consume Diff Total: 1" in mqadmin(shell, "consumerProgress", "-g", "g", "-t", "Made")
    mqadmin(shell, "skipAccumulatedMessage", "-g", "g", "-t", "Made")
    assert "Consume Diff Total: 0" in mqadmin(shell, "consumerProgress", "-g", "g", "-t", "Made")
    mqadmin(shell, "resetOffsetByTime", "-g", "g", "-t", "Made", "-s", "0")
    assert "Consume Diff Total: 1" in mqadmin(shell, "consumerProgress", "-g", "g", "-t", "Made")
    mqadmin(shell, "wipeWritePerm", "-b", broker)
    assert "drained" in shell.rows("broker", "ls")[0]["state"]
    mqadmin(shell, "addWritePerm", "-b", broker)
    mqadmin(shell, "deleteSubGroup", "-c", cluster, "-g", "g")
    mqadmin(shell, "deleteTopic", "-c", cluster, "-t", "Made")
    assert "Made" not in mqadmin(shell, "topicList").split()


def test_flag_of_another_route_asks_the_brokers_of_that_topic(shell: Shell) -> None:
    (row,) = shell.rows("broker", "ls")
    cluster = row["cluster"]
    mqadmin(shell, "updateTopic", "-c", cluster, "-t", "Routed", "-r", "1", "-w", "1")
    name = shell("pub", "Routed", "hello", "-k", "k", "-t", "tag").split()[0]
    mqadmin(shell, "updateSubGroup", "-c", cluster, "-g", "routed")
    at = ("-g", "routed", "-t", "Routed")
    progress = ("consumerProgress", *at)
    assert "goes" not in mqadmin(shell, "resetOffsetByTime", *at, "-s", "0", "--cplus")
    for where in (cluster, "Routed"):
        assert name in mqadmin(shell, "queryMsgByKey", "-t", "Routed", "-k", "k", "-c", where)
        by_id = ("queryMsgByUniqueKey", "-t", "Routed", "-i", name)
        assert "Keys:                [k]" in mqadmin(shell, *by_id, "-c", where)
        mqadmin(shell, "resetOffsetByTime", *at, "-s", "0", "-c", where)
        assert "Consume Diff Total: 1" in mqadmin(shell, *progress, "-c", where)
        mqadmin(shell, "skipAccumulatedMessage", *at, "-c", where)
        assert "Consume Diff Total: 0" in mqadmin(shell, *progress, "-c", where)
    for words in (progress, ("skipAccumulatedMessage", *at)):
        mqadmin(shell, *words, "-c", "Nowhere")
        assert (shell.code, "Nowhere" in shell.err) == (5, True), shell.err
    by_tag = ("queryMsgByKey", "-t", "Routed", "-p", "T", "-k")
    assert f"@Routed@T@tag@{name}@" in mqadmin(shell, *by_tag, "tag")
    mqadmin(shell, *by_tag, "other")
    assert shell.code == 5
    mqadmin(shell, "queryMsgByKey", "-t", "Routed", "-p", "X", "-k", "k")
    assert (shell.code, "K, keys, or T, tags" in shell.err) == (2, True)


def test_retry_policy_of_a_group_is_set_as_json_and_printed(shell: Shell) -> None:
    (row,) = shell.rows("broker", "ls")
    put = ("updateSubGroup", "-c", row["cluster"], "-g", "patient", "-p")
    growing = '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000,"max":9000}}'
    shown = "type=EXPONENTIAL, exponentialRetryPolicy=ExponentialRetryPolicy{initial=1000, max=9000"
    assert shown in mqadmin(shell, *put, growing)
    assert shown in mqadmin(shell, "getConsumerConfig", "-g", "patient")
    custom = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[5,10]}}'
    assert "CustomizedRetryPolicy{next=[5, 10]}" in mqadmin(shell, *put, custom)
    for wrong in (
        "7",
        "{",
        '{"customizedRetryPolicy":5}',
        '{"exponentialRetryPolicy":{"max":"x"}}',
    ):
        mqadmin(shell, *put, wrong)
        assert (shell.code, shell.err.count("\n")) == (2, 1), shell.err


def test_messages_of_a_light_queue_are_printed_by_the_route_of_its_parent(tmp_path: Path) -> None:
    light = "%LMQ%one"

    async def story() -> str:
        on = {"enableLmq": "true", "enableMultiDispatch": "true"}
        async with cluster(tmp_path, **on) as it:
            made = it.broker.metadata.topics
            made.put(TopicConfig(name="parent", read_queues=2, write_queues=2))
            carried = props.write({props.INNER_MULTI_DISPATCH: light})
            for body in (b"first", b"second"):
                await it.send("parent", body, properties=carried)
            words = ("mqadmin", "printMsg", "-n", it.name_servers, "-t", light)
            while True:
                done = await asyncio.to_thread(roquet, tmp_path, *words, "-l", "parent")
                assert done.returncode == 0, done.stderr
                # A stored message is in its queues a moment later.
                if "BODY: second" in done.stdout:
                    return done.stdout

    printed = asyncio.run(asyncio.wait_for(story(), 60))
    assert printed.count("MSGID: ") == 2
    assert f"minOffset=0, maxOffset=2, MessageQueue [topic={light}, brokerName=broker-a" in printed
    assert "BODY: first" in printed


@pytest.mark.parametrize(
    "words",
    [
        ("mqadmin", "brokerStatus", "-b", "{ns}"),
        ("mqadmin", "producer", "-b", "{ns}"),
        ("mqadmin", "brokerConsumeStats", "-b", "{ns}"),
        ("mqadmin", "listUser", "-b", "{ns}"),
        ("mqadmin", "copyUser", "-f", "{ns}", "-t", "{broker}"),
        ("broker", "config", "get", "{ns}"),
    ],
    ids=lambda it: it[1],
)
def test_name_server_in_place_of_a_broker_is_told(shell: Shell, words: tuple[str, ...]) -> None:
    (row,) = shell.rows("broker", "ls")
    shell(*(it.format(ns=shell.address, broker=row["address"]) for it in words))
    assert (shell.code, f"{shell.address} is a name server" in shell.err) == (2, True), shell.err
    assert shell.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("topicList",),
        ("getNamesrvConfig",),
        ("updateKvConfig", "-s", "a", "-k", "b", "-v", "c"),
        ("wipeWritePerm", "-b", "x"),
    ],
    ids=lambda it: it[0],
)
def test_broker_in_place_of_a_name_server_is_told(shell: Shell, words: tuple[str, ...]) -> None:
    (row,) = shell.rows("broker", "ls")
    wrong = Shell(row["address"])
    wrong("mqadmin", *words)
    text = f"--namesrv: {row['address']} does not answer as a name server does; is it a broker?"
    assert (wrong.code, text in wrong.err) == (2, True), wrong.err


def test_attributes_of_topics_and_groups_come_and_go(shell: Shell) -> None:
    (row,) = shell.rows("broker", "ls")
    cluster = row["cluster"]

    def topic(changes: str) -> str:
        return mqadmin(shell, "updateTopic", "-c", cluster, "-t", "Parent", "-a", changes)

    def group(*more: str) -> str:
        return mqadmin(shell, "updateSubGroup", "-c", cluster, "-g", "bound", *more)

    def has() -> object:
        return shell.rows("group", "get", "bound")[0]["attributes"]

    assert "attributes={+message.type=FIFO}]" in topic("+message.type=FIFO")
    made = group("--attributes", "+lite.bind.topic=Parent,+lite.sub.client.quota=7")
    assert "attributes={+lite.bind.topic=Parent, +lite.sub.client.quota=7}}" in made
    assert has() == {"lite.bind.topic": "Parent", "lite.sub.client.quota": "7"}
    # What is not named stays, also when other settings change.
    assert "attributes={}}" in group("-r", "3")
    group("--attributes", "-lite.sub.client.quota,+lite.sub.model=Exclusive")
    assert has() == {"lite.bind.topic": "Parent", "lite.sub.model": "Exclusive"}
    for wrong in ("lite.sub.model=Shared", "+", "+lite.sub.client.quota=-2", "-lite.sub.wildcard"):
        group("--attributes", wrong)
        assert shell.code != 0, wrong
    topic("message.type=FIFO")
    assert shell.code == 2
    assert "attributes={-message.type=}]" in topic("-message.type")
    assert has() == {"lite.bind.topic": "Parent", "lite.sub.model": "Exclusive"}


def test_order_and_json_are_those_of_java() -> None:
    assert java_order(["10.0.0.1", "10.0.0.2", "10.0.0.3"]) == ["10.0.0.3", "10.0.0.2", "10.0.0.1"]
    names = ["KEYS", "TAGS", "WAIT", "UNIQ_KEY", "CLUSTER", "MSG_REGION", "TRACE_ON"]
    assert java_map(dict.fromkeys(names, "v"), 128) == (
        "{MSG_REGION=v, UNIQ_KEY=v, CLUSTER=v, TAGS=v, KEYS=v, WAIT=v, TRACE_ON=v}"
    )
    assert pretty({"a": [], "b": {0: "x"}, "c": True}) == (
        '{\n\t"a":[],\n\t"b":{\n\t\t0:"x"\n\t},\n\t"c":true\n}'
    )
