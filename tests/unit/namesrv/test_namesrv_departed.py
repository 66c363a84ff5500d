"""Who left, for those who ask; whoever does not ask gets what Java's name server says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from namesrv_harness import Asker, looped, serving
from roquet.model.data_version import DataVersion
from roquet.model.topic import TopicConfig
from roquet.namesrv.departures import departed as departed_module
from roquet.namesrv.departures import memory
from roquet.namesrv.departures.departed import DepartedBrokers, Served
from roquet.namesrv.table import RouteTable
from roquet.protocol.bodies.routes import decode_route
from roquet.protocol.bodies.topics import TopicTableBody, decode_topic_list
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.registration import departed
from roquet.protocol.registration.body import RegisterBody
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.protocol.command import Command

ASK = {departed.ASK: "true"}


def who(name: str, **changes: str) -> dict[str, str]:
    number = 1 + "ab".index(name[-1])
    return {
        "brokerName": name,
        "brokerAddr": f"10.0.0.{number}:10911",
        "clusterName": "c1",
        "haServerAddr": f"10.0.0.{number}:10912",
        "brokerId": "0",
        **changes,
    }


async def register(asker: Asker, name: str, *topics: str, **changes: str) -> None:
    table = TopicTableBody(
        topics={it: TopicConfig(name=it, read_queues=4, write_queues=4) for it in topics},
        version=DataVersion(timestamp=7, counter=3),
    )
    body = RegisterBody(table=table).encode()
    answer = await asker.ask(RequestCode.REGISTER_BROKER, who(name, **changes), body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def route(asker: Asker, topic: str, ext: dict[str, str]) -> Command:
    return await asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, **ext})


async def topics(asker: Asker, ext: dict[str, str]) -> list[str]:
    answer = await asker.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, ext)
    return decode_topic_list(answer.body)[0]


@looped
async def test_route_names_who_left_to_those_who_ask_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as found:
        asker = await found.connect()
        await register(asker, "broker-a", "Both", "A")
        await register(asker, "broker-b", "Both", "B")
        assert departed.read((await route(asker, "Both", ASK)).ext) == []
        await asker.ask(RequestCode.UNREGISTER_BROKER, who("broker-b"))
        told = await route(asker, "Both", ASK)
        assert departed.read(told.ext) == ["broker-b"]
        plain = await route(asker, "Both", {})
        assert not plain.ext
        assert plain.body == told.body
        assert [it.broker_name for it in decode_route(plain.body).brokers] == ["broker-a"]
        gone, silent = await route(asker, "B", ASK), await route(asker, "B", {})
        assert gone.code == silent.code == ResponseCode.TOPIC_NOT_EXIST
        assert gone.remark == silent.remark
        assert departed.read(gone.ext) == ["broker-b"]
        assert not silent.ext
        assert await topics(asker, {}) == ["A", "Both"]
        assert await topics(asker, ASK) == ["A", "B", "Both"]
        # A deleted topic is not missed, and a broker that is back says itself what it has.
        await asker.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "B"})
        assert departed.read((await route(asker, "B", ASK)).ext) == []
        await register(asker, "broker-b", "Both", "C", brokerId="1")
        assert departed.read((await route(asker, "Both", ASK)).ext) == ["broker-b"], "a slave alone"
        await register(asker, "broker-b", "Both", "C")
        assert departed.read((await route(asker, "Both", ASK)).ext) == []


@looped
async def test_broker_that_lost_its_connection_is_kept_until_the_limit(tmp_path: Path) -> None:
    clock = FakeClock()
    async with serving(tmp_path, clock=clock, departed_keep_ms=5000) as found:
        asker, other = await found.connect(), await found.connect()
        await register(asker, "broker-a", "T", "U")
        await register(other, "broker-b", "T", "U")
        other.writer.close()
        while len(found.namesrv.table.live) > 1:
            await topics(asker, {})
        assert departed.read((await route(asker, "T", ASK)).ext) == ["broker-b"]
        await clock.advance(6)
        assert departed.read((await route(asker, "T", ASK)).ext) == []


@looped
async def test_name_server_that_keeps_nobody_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path, departed_keep_ms=0) as found:
        asker = await found.connect()
        await register(asker, "broker-a", "T", "U")
        assert departed.read((await route(asker, "T", ASK)).ext) is None


def test_table_of_departed_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departed_module, "NAMES_MAX", 3)
    monkeypatch.setattr(departed_module, "TOPICS_MAX", 4)
    table = DepartedBrokers()
    for number in range(5):
        table.add({f"b{number}": Served("c1", ["T"])}, number)
    assert table.of("T") == ["b2", "b3", "b4"]
    table.add({"b2": Served("c1", ["T", "U", "V"])}, 9)
    assert table.of("T") == ["b2", "b4"]
    assert table.topics() == {"T", "U", "V"}
    table.expire(9)
    assert table.of("T") == ["b2"]


def test_field_of_departed_is_bounded_and_checked() -> None:
    names = [f"b{number:03}" for number in range(200)]
    assert departed.read(departed.told(reversed(names))) == names[:100]
    for wrong in ("", "{}", "[1]", "[" * 100_000):
        assert departed.read({departed.NAMES: wrong}) is None


@looped
async def test_topic_deleted_in_one_cluster_is_still_missed_in_another(tmp_path: Path) -> None:
    async with serving(tmp_path) as found:
        asker = await found.connect()
        await register(asker, "broker-a", "T", "A")
        await register(asker, "broker-b", "T", "B", clusterName="c2")
        for name, cluster in (("broker-a", "c1"), ("broker-b", "c2")):
            await asker.ask(RequestCode.UNREGISTER_BROKER, who(name, clusterName=cluster))
        assert departed.read((await route(asker, "T", ASK)).ext) == ["broker-a", "broker-b"]
        code = RequestCode.DELETE_TOPIC_IN_NAMESRV
        await asker.ask(code, {"topic": "T", "clusterName": "c1"})
        assert departed.read((await route(asker, "T", ASK)).ext) == ["broker-b"]
        await asker.ask(code, {"topic": "T"})
        assert departed.read((await route(asker, "T", ASK)).ext) == []


@looped
async def test_who_left_and_who_was_there_is_known_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as found:
        asker = await found.connect()
        await register(asker, "broker-a", "T", "A")
        await register(asker, "broker-b", "T", "B", clusterName="c2")
        await asker.ask(RequestCode.UNREGISTER_BROKER, who("broker-b", clusterName="c2"))
    async with serving(tmp_path) as found:
        asker = await found.connect()
        assert departed.read((await route(asker, "T", ASK)).ext) == ["broker-a", "broker-b"]
        assert await topics(asker, ASK) == ["A", "B", "T"]
        assert await topics(asker, {}) == []
        await register(asker, "broker-a", "T", "A")
        assert departed.read((await route(asker, "T", ASK)).ext) == ["broker-b"]
        await asker.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "B", "clusterName": "c2"})
        assert departed.read((await route(asker, "B", ASK)).ext) == []


@looped
async def test_who_came_and_who_left_is_in_the_file_after_a_second(tmp_path: Path) -> None:
    clock = FakeClock()
    kept = tmp_path / memory.file_name(0)
    async with serving(tmp_path, clock) as found:
        asker = await found.connect()
        await register(asker, "broker-a", "T", "A")
        await written(clock, kept, ["broker-a"])
        # A kill from here on is a start with this file.
        await register(asker, "broker-b", "T", "B")
        await asker.ask(RequestCode.UNREGISTER_BROKER, who("broker-a"))
        await written(clock, kept, ["broker-a", "broker-b"])
    assert memory.read(kept)["broker-a"][0] < memory.read(kept)["broker-b"][0]


async def written(clock: FakeClock, kept: Path, names: list[str]) -> None:
    """Let a second pass; the write itself is in a thread."""
    await clock.advance(memory.EVERY_S)
    for _ in range(1000):
        if sorted(memory.read(kept)) == names:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{names} are not in {kept}")


@looped
async def test_table_that_is_slow_to_write_is_written_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, writes = FakeClock(), list[int]()
    table = RouteTable()
    kept = memory.Memory(tmp_path / "file", table, lambda: 60_000, clock)

    async def slow() -> None:
        writes.append(clock.steady_ms())
        await clock.advance(0.03)

    monkeypatch.setattr(kept, "write", slow)
    for _ in range(70):
        await kept.look()
        await clock.advance(0.1)
    # Each took 30 ms, so that three seconds lie between two of them.
    assert len(writes) == 3


@looped
async def test_who_left_is_forgotten_in_time_over_a_restart_too(tmp_path: Path) -> None:
    clock = FakeClock()
    async with serving(tmp_path, clock, departed_keep_ms=60_000) as found:
        asker = await found.connect()
        await register(asker, "broker-a", "T", "A")
        await asker.ask(RequestCode.UNREGISTER_BROKER, who("broker-a"))
    await clock.advance(59.0)
    async with serving(tmp_path, clock, departed_keep_ms=60_000) as found:
        assert departed.read((await route(await found.connect(), "T", ASK)).ext) == ["broker-a"]
    await clock.advance(3.0)
    async with serving(tmp_path, clock, departed_keep_ms=60_000) as found:
        assert departed.read((await route(await found.connect(), "T", ASK)).ext) == []


@pytest.mark.parametrize(
    "damage",
    [
        b"{",
        b"[]\n",
        b'{"broker":"b"}\n',
        b"\xff",
        b"[" * 100_000,
        b'{"broker":1,"cluster":"c","leftS":0,"topics":[]}',
        b'{"broker":"b","cluster":"c","leftS":-1,"topics":[]}',
        b'{"broker":"b","cluster":"c","leftS":%d,"topics":[]}' % (2**40 + 1),
        b'{"broker":"%b","cluster":"c","leftS":0,"topics":[]}' % (b"b" * 256),
    ],
)
@looped
async def test_memory_that_is_damaged_is_not_used_and_written_anew(
    tmp_path: Path, damage: bytes
) -> None:
    async with serving(tmp_path) as found:
        await register(await found.connect(), "broker-a", "T", "A")
    kept = tmp_path / memory.file_name(0)
    whole = kept.read_bytes()
    kept.write_bytes(damage)
    async with serving(tmp_path) as found:
        asker = await found.connect()
        assert departed.read((await route(asker, "T", ASK)).ext) == []
        await register(asker, "broker-a", "T", "A")
    assert memory.read(kept).keys() == {"broker-a"}
    assert len(kept.read_bytes()) == len(whole)


def test_memory_of_too_many_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "TOPICS_MAX", 2)
    path = tmp_path / memory.file_name(0)
    path.write_bytes(memory.encode({"b": (0, Served("c", ["T", "U", "V"]))}))
    with pytest.raises(ValueError, match="more than"):
        memory.read(path)
    monkeypatch.setattr(memory, "FILE_MAX", 10)
    with pytest.raises(ValueError, match="longer than"):
        memory.read(path)


def test_name_servers_of_one_host_remember_apart() -> None:
    assert memory.file_name(9876) != memory.file_name(9877)
