"""A store whose log is gone while files that tell of it are there: refused, or it says so."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play, records
from pop_harness import GROUP, TOPIC, now_ms, pop
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from roquet.testing.cluster import Cluster

SETTINGS = {"mappedFileSizeTimerLog": "65536", "timerPrecisionMs": "100"}
STORE = ("commitlog", "consumequeue", "index", "queueEnds", "checkpoint")
TIMER_FILES = ("timerwheel", "timerlog", "config/timercheck")
NEW = [b"new%d" % number for number in range(5)]
TIMED = b"timed"


async def used(it: Cluster) -> None:
    """Have messages that two groups have read, and a timer that waits."""
    for number in range(20):
        assert (await it.send(TOPIC, b"old%d" % number, properties="KEYS\x01k\x02")).code == 0
    await dispatched(it)
    while (await pop(it)).bodies:
        pass
    await it.pull(TOPIC, 0, consumerGroup="g")
    fields = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0", "commitOffset": "20"}
    answer = await it.call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=fields))
    assert answer.code == 0
    await timer(it, "old", 3_600_000)


async def timer(it: Cluster, key: str, delay_ms: int) -> None:
    text = f"TIMER_DELIVER_MS\x01{now_ms() + delay_ms}\x02UNIQ_KEY\x01{key}\x02"
    assert (await it.send(TOPIC, TIMED, properties=text)).code == 0


def rob(folder: Path, names: Iterable[str]) -> None:
    """Remove files and folders of the store."""
    for name in names:
        path = folder / "broker-a" / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@pytest.mark.parametrize("gone", [(), TIMER_FILES, ("config/consumerOffset.json",)])
def test_store_of_which_only_tables_are_left_begins_at_0_and_says_what_it_set_back(
    tmp_path: Path, gone: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def again(it: Cluster) -> None:
        assert it.broker.metadata.topics.get(TOPIC) is not None
        for body in NEW:
            assert (await it.send(TOPIC, body)).code == 0
        await dispatched(it)
        # None of them is passed over by who has read as many messages of the store before.
        assert (await pop(it)).bodies == NEW
        assert (it.broker.metadata.offsets.committed("g", TOPIC, 0) or 0) == 0
        await timer(it, "new", 300)
        while not (timed := records(await it.pull(TOPIC, len(NEW), suspendTimeoutMillis="1000"))):
            pass
        assert [record.body for record in timed] == [TIMED]

    play(tmp_path, used, **SETTINGS)
    rob(tmp_path, (*STORE, *gone))
    if "config/consumerOffset.json" in gone:
        (tmp_path / "broker-a" / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    caplog.clear()
    play(tmp_path, again, **SETTINGS)
    said = [line for line in caplog.messages if "the log is empty" in line]
    if "config/consumerOffset.json" in gone:
        assert not said
    else:
        assert len(said) == 1
        assert f"g in {TOPIC} queue 0 from 20 to 0" in said[0]
        assert f"{GROUP} in {TOPIC} queue 0 from 20 to 0" in said[0]


def test_store_without_a_log_is_refused_while_anything_else_of_its_messages_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def nobody(it: Cluster) -> None:
        raise AssertionError(it)

    async def begun(it: Cluster) -> None:
        assert (it.broker.metadata.offsets.committed("g", TOPIC, 0) or 0) <= (
            it.broker.store.next_offset(TOPIC, 0)
        )
        for body in NEW:
            assert (await it.send(TOPIC, body)).code == 0
        await dispatched(it)
        assert (await pop(it)).bodies == NEW

    base = tmp_path / "base"
    play(base, used, **SETTINGS)
    others = STORE[1:]
    for count in range(len(others)):
        for gone in itertools.combinations(others, count):
            folder = tmp_path / "-".join(("robbed", *gone))
            shutil.copytree(base / "broker-a", folder / "broker-a", ignore=_wheel)
            rob(folder, ("commitlog", *gone))
            with pytest.raises(StoreFault, match="there is no commit-log file"):
                play(folder, nobody, **SETTINGS)
            caplog.clear()
            play(folder, begun, recoveryTruncateCorrupt="true", **SETTINGS)
            assert any("the log begins anew" in line for line in caplog.messages), gone


def _wheel(_: str, names: list[str]) -> list[str]:
    """Leave out the largest file: it is made anew."""
    return [name for name in names if name == "timerwheel"]
