"""Our mqadmin and Java's with the same words on a Java controller, its broker and a container."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import roquet
from interop_twins import MASKS, NUMBER
from interop_world import has_route, messages, registered, until
from rocketmq_world import RocketmqWorld
from roquet.admin.rocketmq.static_plans import queues_of
from roquet.cli.app import run
from roquet.testing.java import Driver, fetch_jars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.protocol.bodies.rocketmq.static_topics import StaticTopic

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

SAME = (
    ("getControllerMetaData", "-a {controller}"),
    ("getControllerConfig", "-a {controller}"),
    ("updateControllerConfig", "-a {controller} -k enableElectUncleanMaster -v true"),
    ("getSyncStateSet", "-a {controller} -b alone"),
    ("getSyncStateSet", "-a {controller};127.0.0.1:1 -c {cluster}"),
    ("getBrokerEpoch", "-b alone"),
    ("updateColdDataFlowCtrGroupConfig", "-b {alone} -g slow -v 4096"),
    ("updateColdDataFlowCtrGroupConfig", "-c {cluster} -g slower -v 1024"),
    ("getColdDataFlowCtrInfo", "-b {alone}"),
    ("getColdDataFlowCtrInfo", "-c {cluster}"),
    ("removeColdDataFlowCtrGroupConfig", "-b {alone} -g slow"),
    ("removeColdDataFlowCtrGroupConfig", "-c {cluster} -g slower"),
    ("setCommitLogReadAheadMode", "-b {alone} -m 1"),
    ("setCommitLogReadAheadMode", "-c {cluster} -m 0"),
    ("switchTimerEngine", "-c {cluster} -e R"),
    ("switchTimerEngine", "-b {alone} -e F"),
    ("checkRocksdbCqWriteProgress", "-c {cluster}"),
    ("checkRocksdbCqWriteProgress", "-c {cluster} -t Nowhere -cf 0"),
    ("rocksDBConfigToJson", "-c {cluster}"),
    ("rocksDBConfigToJson", "-t topics -c {cluster}"),
)
REFUSED = (
    ("electMaster", "-a {controller} -b 1 -bn alone -c {cluster}"),
    ("electMaster", "-a {controller} -b 1 -bn nobody -c {cluster}"),
    ("cleanBrokerMetadata", "-a {controller} -bn alone -c {cluster}"),
    ("cleanBrokerMetadata", "-a {controller} -bn nobody -c {cluster} -b 1;2"),
    ("updateControllerConfig", "-a {controller} -k configBlackList -v a"),
    ("addBroker", "-c {container} -b {folder}/nothing.conf"),
    ("removeBroker", "-c {container} -b {cluster}:nobody:0"),
    ("getControllerMetaData", "-a {alone}"),
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    built = Driver(fetch_jars(), tmp_path_factory.mktemp("driver"))
    yield built
    built.close()


@pytest.fixture(scope="module")
def foreign(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketmqWorld]:
    world = RocketmqWorld.start(fetch_jars(), tmp_path_factory.mktemp("foreign"))
    try:
        # The first call of a JVM takes long on a busy machine.
        asked = ("getControllerMetaData", "-a {controller}")
        until("an answer", lambda: "#Peer" in javas(driver, world, *asked))
        yield world
    finally:
        world.stop()


def words_of(world: RocketmqWorld, words: str) -> list[str]:
    return [it.format(**world.facts) for it in words.split()]


def shown(text: str, *, numbers: bool = True) -> list[str]:
    """Return the lines of an output without what differs from call to call."""
    for mask, word in MASKS:
        text = mask.sub(word, text)
    # Java prints objects of a class without a text by their address.
    text = re.sub(r"(JraftConfig)@\w+", r"\1", text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return sorted(line if numbers else NUMBER.sub("N", line) for line in lines if line)


def ours(world: RocketmqWorld, name: str, words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(["mqadmin", name, "-n", world.namesrv, *words_of(world, words)])
    return code, out.getvalue(), err.getvalue()


def javas(driver: Driver, world: RocketmqWorld, name: str, words: str) -> str:
    return driver.mqadmin(name, "-n", world.namesrv, *words_of(world, words))


def done(world: RocketmqWorld, name: str, words: str) -> str:
    code, out, err = ours(world, name, words)
    assert code == 0, err
    return out


@pytest.mark.parametrize(("name", "words"), SAME)
def test_command_prints_of_rocketmqs_servers_what_javas_prints(
    foreign: RocketmqWorld, driver: Driver, name: str, words: str
) -> None:
    java = javas(driver, foreign, name, words)
    assert shown(done(foreign, name, words)) == shown(java)


@pytest.mark.parametrize(("name", "words"), REFUSED)
def test_refusal_of_rocketmqs_servers_is_one_line_with_the_code_that_javas_prints(
    foreign: RocketmqWorld, driver: Driver, name: str, words: str
) -> None:
    java = javas(driver, foreign, name, words)
    told = re.search(r"CODE: (\d+)  DESC: (.*)", java)
    assert told is not None, java
    code, out, err = ours(foreign, name, words)
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert f"code {told[1]}: {told[2].strip()}" in err


def test_container_starts_and_stops_a_broker_by_either_tool(
    foreign: RocketmqWorld, driver: Driver
) -> None:
    start, stop = "-c {container} -b {contained_file}", "-c {container} -b {cluster}:contained:0"
    java = [javas(driver, foreign, name, it) for name, it in (("addBroker", start),)]
    mine = [done(foreign, "removeBroker", stop), done(foreign, "addBroker", start)]
    java.append(javas(driver, foreign, "removeBroker", stop))
    assert shown("".join(java)) == shown("".join(mine))
    assert len(shown("".join(mine))) == 2


def test_compaction_log_is_printed_as_javas_tool_prints_it(
    foreign: RocketmqWorld, driver: Driver
) -> None:
    compacted = "-t Compacted -r 1 -w 1 -a +cleanup.policy=COMPACTION"
    done(foreign, "updateTopic", f"-b {{alone}} {compacted}")
    until("the route", lambda: has_route(foreign.namesrv, "Compacted", "alone"))
    driver.send(foreign.namesrv, "Compacted", messages(5, seed=3))
    folder = Path(foreign.facts["folder"]) / "store-alone" / "compaction" / "compactionLog"
    file = folder / "Compacted" / "0" / "00000000000000000000"
    until("all in the log", lambda: file.exists() and file.read_bytes().count(b"key-3-") == 5)
    words = f"-f {file}"
    java = javas(driver, foreign, "dumpCompactionLog", words)
    assert done(foreign, "dumpCompactionLog", words) == java
    assert java.count("MessageExt [brokerName=null, queueId=0,") == 5


def spread(world: RocketmqWorld, topic: str) -> dict[str, int]:
    """Return how many logical queues each broker is written for."""

    async def asked() -> dict[str, StaticTopic]:
        async with roquet.connect(f"rmq://{world.namesrv}") as mq:
            return await mq.admin().static_topics.get(topic)

    queues = queues_of(asyncio.run(asked())).values()
    return dict(Counter(parts[-1].broker_name for parts in queues))


def test_static_topics_are_made_extended_and_moved_by_either_tool(
    foreign: RocketmqWorld, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done(foreign, "addBroker", "-c {container} -b {contained_file}")
    until("registration", lambda: registered(foreign.namesrv, "alone", "contained"))

    def both(name: str, words: str) -> None:
        """Have each tool change what the other one has changed before."""
        java = javas(driver, foreign, name, f"{words} -t Theirs")
        mine = done(foreign, name, f"{words} -t Mine")
        assert plain(mine) == plain(java), java
        java = javas(driver, foreign, name, words.replace("-qn 4", "-qn 6") + " -t Mine")
        mine = done(foreign, name, words.replace("-qn 4", "-qn 6") + " -t Theirs")
        assert plain(mine) == plain(java), java

    def plain(text: str) -> list[str]:
        return re.sub(r"\S+/(Mine|Theirs)-\d+", "FILE", text).splitlines()

    both("updateStaticTopic", "-c {cluster} -qn 4")
    for topic in ("Mine", "Theirs"):
        assert spread(foreign, topic) == {"alone": 3, "contained": 3}
        until("the route", partial(has_route, foreign.namesrv, topic, "contained"))
    given = messages(30, seed=5)
    driver.send(foreign.namesrv, "Mine", given)
    both("remappingStaticTopic", "-b contained")
    for topic in ("Mine", "Theirs"):
        assert spread(foreign, topic) == {"contained": 6}
    more = messages(30, seed=6)
    driver.send(foreign.namesrv, "Mine", more)
    received = driver.consume(foreign.namesrv, "Mine", "movers", 60)
    assert sorted(it["keys"] for it in received) == sorted(it["keys"] for it in given + more)
    code, _, err = ours(foreign, "updateStaticTopic", "-b alone -t Mine -qn 6")
    assert (code, err) == (2, "roquet: Mine has 6 queues, and can only get more than that\n")


def test_master_is_elected_and_its_members_are_shown_which_javas_tool_cannot_read(
    foreign: RocketmqWorld, driver: Driver
) -> None:
    sets = "-a {controller} -b alone"
    done(foreign, "addBroker", "-c {container} -b {second_file}")
    two = "#SyncStateSetNums\t2"
    until("both in sync", lambda: two in done(foreign, "getSyncStateSet", sets), 60.0)
    elect = "-a {controller} -bn alone -c {cluster} -b"
    text = done(foreign, "electMaster", f"{elect} 2")
    second, alone = foreign.facts["second"], foreign.facts["alone"]
    assert f"#BrokerMasterAddr\t{second}\n" in text
    assert f"\t#Broker\t1\t{alone}\n\t#Broker\t2\t{second}\n" in text
    java = javas(driver, foreign, "getSyncStateSet", sets)
    assert shown(done(foreign, "getSyncStateSet", sets)) == shown(java)
    assert "NotInSyncReplica" in java

    def epochs_agree() -> bool:
        # Both change places meanwhile, in the name server's eyes one after the other.
        epochs = javas(driver, foreign, "getBrokerEpoch", "-b alone")
        return shown(done(foreign, "getBrokerEpoch", "-b alone")) == shown(epochs)

    until("the same epochs", epochs_agree, 60.0)

    def javas_elects() -> bool:
        # Who is master already is not elected; an answer that comes late is none.
        told = [javas(driver, foreign, "electMaster", f"{elect} {it}") for it in (1, 2)]
        return any("not support unquoted name" in it for it in told)

    until("an election by Java's tool", javas_elects)
    ours(foreign, "electMaster", f"{elect} 1")
    cleaned = "-a {controller} -bn alone -l -b 2"
    assert done(foreign, "cleanBrokerMetadata", cleaned) == (
        "clear broker alone metadata from controller success!\n"
    )
    assert "brokerId=2" not in done(foreign, "getSyncStateSet", sets)
