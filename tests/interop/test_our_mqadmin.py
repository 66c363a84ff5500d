"""Our mqadmin and Java's with the same words on one cluster of ours: outputs compared."""

from __future__ import annotations

import contextlib
import io
import json
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from cli_harness import environment
from interop_twins import arguments, furnish, make_twins
from roquet.cli.app import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from interop_twins import Twin
    from roquet.testing.java import Driver

SAME = (
    ("topicList", ""),
    ("topicList", "-c"),
    ("topicRoute", "-t {topic}"),
    ("topicRoute", "-t {topic} -l"),
    ("topicClusterList", "-t {topic}"),
    ("queryMsgById", "-t {topic} -i {oid}"),
    ("queryMsgByKey", "-t {topic} -k key-7-5"),
    ("queryMsgByUniqueKey", "-t {topic} -i {uid}"),
    ("queryMsgByOffset", "-t {topic} -b {broker} -i 1 -o 0"),
    ("queryMsgByOffset", "-t {topic} -b {broker} -i 1 -o 0 -f GBK"),
    ("queryMsgById", "-t {topic} -i {oid} -f UTF-8"),
    ("printMsg", "-t {topic} -d false"),
    ("printMsg", "-t {topic} -d false -c GBK"),
    ("updateTopic", "-b {addr} -t Made -r 3 -w 3 -p 6"),
    ("updateTopic", "-c {cluster} -t MadeToo -r 2 -w 2 -o true"),
    ("updateTopic", "-c {cluster} -t MadeThree -r 2 -w 2 -a +message.type=FIFO"),
    ("updateTopicPerm", "-b {addr} -t Made -p 6"),
    ("allocateMQ", "-t {topic} -i 10.0.0.1,10.0.0.2,10.0.0.3"),
    ("updateSubGroup", "-b {addr} -g made_group -r 3 -q 2 -s true -m false"),
    ("updateSubGroup", "-c {cluster} -g made_group -r 5"),
    ("updateSubGroup", "-c {cluster} -g bound_group --attributes +lite.bind.topic=Made"),
    ("consumerProgress", "-g {group}"),
    ("consumerConnection", "-g {online}"),
    ("consumerConnection", "-g {online} -b {addr}"),
    ("producerConnection", "-g {makers} -t {topic}"),
    ("resetOffsetByTime", "-g {group} -t {topic} -s 0 -f true"),
    ("resetOffsetByTime", "-g {group} -t {topic} -s now"),
    ("resetOffsetByTime", "-g {group} -t {topic} -s -1 -b {addr} -q 1 -o 1"),
    ("skipAccumulatedMessage", "-g {group} -t {topic}"),
    ("cloneGroupOffset", "-s {group} -d made_group -t {topic} -o true"),
    ("clusterList", "-m"),
    ("updateBrokerConfig", "-b {addr} -k brokerPermission -v 6"),
    ("updateBrokerConfig", "-c {cluster} -a true -k brokerPermission -v 6"),
    ("updateNamesrvConfig", "-k enableTopicList -v true"),
    ("updateKvConfig", "-s SPACE -k key -v value"),
    ("deleteKvConfig", "-s SPACE -k key"),
    ("wipeWritePerm", "-b {broker}"),
    ("addWritePerm", "-b {broker}"),
    ("cleanExpiredCQ", "-b {addr}"),
    ("deleteExpiredCommitLog", "-b {addr}"),
    ("cleanUnusedTopic", "-b {addr}"),
    ("updateTopicList", "-b {addr} -f {files}/topics.json"),
    ("updateSubGroupList", "-b {addr} -f {files}/groups.json"),
    ("setConsumeMode", "-b {addr} -g {group} -t {topic} -m PULL"),
    ("setConsumeMode", "-c {cluster} -g {group} -t {topic} -m POP -q 2"),
    ("resetMasterFlushOffset", "-b {addr} -o 0"),
    ("printMsgByQueue", "-t {topic} -a {broker} -i 1 -p true -d false -f true"),
    ("printMsgByQueue", "-t {topic} -a {broker} -i 1 -f true -s a"),
    ("consumeMessage", "-t {topic} -b {broker} -i 2 -o 0 -c 2"),
    ("consumeMessage", "-t {topic} -b {broker} -i 2"),
    ("consumeMessage", "-t {topic}"),
    ("brokerConsumeStats", "-b {addr}"),
    ("brokerConsumeStats", "-b {addr} -o true -l 1"),
    ("producer", "-b {addr}"),
    ("updateOrderConf", "-t {topic} -m put -v {broker}:4"),
    ("updateOrderConf", "-t {topic} -m get"),
    ("updateOrderConf", "-t {topic} -m delete"),
    ("getConsumerConfig", "-g {group}"),
    ("queryCq", "-t {topic} -q 2 -i 0 -c 2 -b {addr}"),
    ("queryCq", "-t {topic} -q 2 -i 0 -c 2 -g nobody"),
    ("queryCq", "-t {topic} -q 2 -i 1 -g {online}"),
    ("exportConfigs", "-c {cluster} -f {files}/export"),
    ("exportMetadata", "-c {cluster} -f {files}/export -t"),
    ("exportMetadata", "-c {cluster} -f {files}/export -g"),
    ("exportMetadata", "-c {cluster} -f {files}/export"),
    ("exportMetadata", "-b {addr} -f {files}/export -t"),
    ("exportMetrics", "-c {cluster} -f {files}/export"),
    ("exportPopRecord", "-b {addr} -d true"),
    ("exportPopRecord", "-c {cluster} -d false"),
    ("deleteSubGroup", "-b {addr} -g made_group -r true"),
    ("deleteTopic", "-c {cluster} -t Made"),
)
FIGURES_APART = (
    ("topicStatus", "-t {topic}"),
    ("topicStatus", "-t {topic} -c {cluster}"),
    ("consumerProgress", "-g {online} -t {topic} -s true"),
    ("queryMsgById", "-t {topic} -i {oid} -g {online} -d {client}"),
    ("queryMsgByUniqueKey", "-t {topic} -i {uid} -g {online} -d {client}"),
    ("queryMsgByUniqueKey", "-t {topic} -i {uid} -s 0 -e 9223372036854775807"),
    ("queryMsgById", "-t {topic} -i {oid} -s true"),
    ("clusterList", ""),
    ("consumerProgress", ""),
    ("brokerStatus", "-b {addr}"),
    ("getBrokerConfig", "-b {addr}"),
    ("getNamesrvConfig", ""),
    ("sendMessage", "-t {topic} -p hello -k tk -c tt -b {broker} -i 1"),
    ("sendMsgStatus", "-b {broker} -c 3"),
    ("checkMsgSendRT", "-t {topic} -a 5"),
    ("statsAll", "-t {topic}"),
    ("consumerStatus", "-g {online}"),
    ("consumerStatus", "-g {online} -i {client}"),
    ("haStatus", "-b {addr}"),
    ("haStatus", "-c {cluster}"),
)
BODIES = re.compile(r"BODY: .*?(?=\Z|\n(?:MSGID|Consume ok|MessageQueue|The old|$))", re.DOTALL)
TEXT = re.compile(r"^Message Body: .*?(?=^MessageTrack |^WARN)", re.DOTALL | re.MULTILINE)
EXPORTS = (
    ("exportConfigs", "-c {cluster}", "configs.json"),
    ("exportMetadata", "-c {cluster} -t", "topic.json"),
    ("exportMetadata", "-c {cluster} -g", "subscriptionGroup.json"),
    ("exportMetadata", "-c {cluster}", "metadata.json"),
    ("exportMetrics", "-c {cluster}", "metrics.json"),
)


@pytest.fixture(scope="module")
def twin(jars: Path, driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    ours, _ = make_twins(jars, tmp_path_factory.mktemp("twins"))
    try:
        ours.start()
        furnish(driver, ours)
        yield ours
        for client in ("client", "maker"):
            driver.leave(ours.facts[client])
    finally:
        ours.stop()


def ours(twin: Twin, name: str, given: list[str]) -> str:
    out = io.StringIO()
    # Some commands write where they are typed.
    with contextlib.chdir(twin.folder), contextlib.redirect_stdout(out):
        assert run(["mqadmin", name, "-n", twin.namesrv, *given]) == 0
    return out.getvalue()


@pytest.mark.parametrize(("name", "words"), SAME, ids=lambda it: it or "-")
def test_command_prints_what_javas_prints(
    twin: Twin, driver: Driver, name: str, words: str
) -> None:
    given = arguments(words, twin.facts)
    java = driver.mqadmin(name, "-n", twin.namesrv, *given)
    mine = ours(twin, name, given)
    if name in ("consumeMessage", "queryMsgById", "queryMsgByOffset"):
        # Bodies are bytes that a terminal may obey: ours are escaped.
        mine, java = (TEXT.sub("BODY\n", BODIES.sub("BODY", it)) for it in (mine, java))
    assert twin.shown(mine, numbers=True) == twin.shown(java, numbers=True)


@pytest.mark.parametrize(("name", "words", "file"), EXPORTS, ids=lambda it: it)
def test_file_of_an_export_has_what_javas_has(
    twin: Twin, driver: Driver, name: str, words: str, file: str
) -> None:
    found: list[object] = []
    for side in ("java", "ours"):
        folder = twin.folder / f"export-{side}"
        given = [*arguments(words, twin.facts), "-f", str(folder)]
        shown = (
            driver.mqadmin(name, "-n", twin.namesrv, *given)
            if side == "java"
            else ours(twin, name, given)
        )
        assert shown.split() == ["export", str(folder / file), "success"]
        found.append(json.loads((folder / file).read_bytes()))
    assert shape(found[1], "") == shape(found[0], "")


def shape(value: object, name: str) -> object:
    """Return a value of a report without what no two moments have alike: figures and times."""
    if isinstance(value, dict):
        return {key: shape(it, key) for key, it in sorted(value.items())}
    if name == "exportTime" or isinstance(value, float) or re.fullmatch(r"[\d.E-]+", str(value)):
        return type(value).__name__
    return value


@pytest.mark.parametrize(("name", "words"), FIGURES_APART, ids=lambda it: it or "-")
def test_command_has_the_shape_of_javas(twin: Twin, driver: Driver, name: str, words: str) -> None:
    given = arguments(words, twin.facts)
    java = driver.mqadmin(name, "-n", twin.namesrv, *given)
    mine = ours(twin, name, given)
    assert twin.shown(mine, numbers=False) == twin.shown(java, numbers=False)


def test_round_of_latencies_has_the_shape_of_javas(twin: Twin, driver: Driver) -> None:
    for more in ([], ["-p", "true", "-m", "room"]):
        given = ["-n", twin.namesrv, "-a", "3", "-c", twin.facts["cluster"], "-i", "60", *more]
        java = driver.mqadmin_for(5.0, "clusterRT", *given)
        mine = ours_for(5.0, "clusterRT", given, twin.folder)
        assert java.strip()
        assert twin.shown(mine, numbers=False) == twin.shown(java, numbers=False)


def ours_for(limit_s: float, name: str, given: list[str], home: Path) -> str:
    """Run a command that goes on until it is stopped; return what it printed in this time."""
    words = [sys.executable, "-m", "roquet", "mqadmin", name, *given]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env=environment(home)
    ) as running:
        time.sleep(limit_s)
        running.send_signal(signal.SIGINT)
        return running.communicate(timeout=60)[0]
