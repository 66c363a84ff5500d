"""Our mqadmin and Java's with the same words on one cluster of ours: outputs compared."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING

import pytest

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
    ("printMsg", "-t {topic} -d false"),
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
    ("producerConnection", "-g {makers} -t {topic}"),
    ("resetOffsetByTime", "-g {group} -t {topic} -s 0 -f true"),
    ("resetOffsetByTime", "-g {group} -t {topic} -s now"),
    ("resetOffsetByTime", "-g {group} -t {topic} -s -1 -b {addr} -q 1 -o 1"),
    ("skipAccumulatedMessage", "-g {group} -t {topic}"),
    ("cloneGroupOffset", "-s {group} -d made_group -t {topic} -o true"),
    ("clusterList", "-m"),
    ("updateBrokerConfig", "-b {addr} -k brokerPermission -v 6"),
    ("updateNamesrvConfig", "-k enableTopicList -v true"),
    ("updateKvConfig", "-s SPACE -k key -v value"),
    ("deleteKvConfig", "-s SPACE -k key"),
    ("wipeWritePerm", "-b {broker}"),
    ("addWritePerm", "-b {broker}"),
    ("cleanExpiredCQ", "-b {addr}"),
    ("deleteExpiredCommitLog", "-b {addr}"),
    ("cleanUnusedTopic", "-b {addr}"),
    ("deleteSubGroup", "-b {addr} -g made_group -r true"),
    ("deleteTopic", "-c {cluster} -t Made"),
)
FIGURES_APART = (
    ("topicStatus", "-t {topic}"),
    ("clusterList", ""),
    ("consumerProgress", ""),
    ("brokerStatus", "-b {addr}"),
    ("getBrokerConfig", "-b {addr}"),
    ("getNamesrvConfig", ""),
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
    with contextlib.redirect_stdout(out):
        assert run(["mqadmin", name, "-n", twin.namesrv, *given]) == 0
    return out.getvalue()


@pytest.mark.parametrize(("name", "words"), SAME, ids=lambda it: it or "-")
def test_command_prints_what_javas_prints(
    twin: Twin, driver: Driver, name: str, words: str
) -> None:
    given = arguments(words, twin.facts)
    java = driver.mqadmin(name, "-n", twin.namesrv, *given)
    assert twin.shown(ours(twin, name, given), numbers=True) == twin.shown(java, numbers=True)


@pytest.mark.parametrize(("name", "words"), FIGURES_APART, ids=lambda it: it or "-")
def test_command_has_the_shape_of_javas(twin: Twin, driver: Driver, name: str, words: str) -> None:
    given = arguments(words, twin.facts)
    java = driver.mqadmin(name, "-n", twin.namesrv, *given)
    mine = ours(twin, name, given)
    assert twin.shown(mine, numbers=False) == twin.shown(java, numbers=False)
