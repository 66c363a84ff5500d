"""Strangers on the port for slaves: they take nobody's place, and not for long."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from pair_harness import caught_up, connect, pair_world, until
from roquet.ha.frames import REPORT
from roquet.ha.places import PER_ADDRESS_MAX, SLAVES_MAX, STRANGERS_MAX, Places
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from pathlib import Path

SECRET = {"haSharedSecret": "sixteen bytes or more"}


@pytest.mark.parametrize("more", [{}, SECRET], ids=["open", "secret"])
def test_64_silent_strangers_keep_no_slave_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, more: dict[str, str]
) -> None:
    """From the slave's own address; others come again and again from another one."""

    async def knock(address: tuple[str, int]) -> None:
        while True:
            there = await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0))
            try:
                with contextlib.suppress(OSError):
                    while await there[0].read(100):
                        pass
            finally:
                there[1].close()

    async def run() -> None:
        changes = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "60000", **more}
        async with pair_world(tmp_path) as world, world.master(**changes) as master:
            host, _, port = master.identity.ha_address.rpartition(":")
            silent = [await connect(master) for _ in range(64)]
            busy = [asyncio.create_task(knock((host, int(port)))) for _ in range(16)]
            async with world.slave(of=master, **more) as slave:
                await until(lambda: not master.state.lacks_slave, "the slave follows", 10)
                assert (await world.send(master)).code == ResponseCode.SUCCESS
                await caught_up(master, slave)
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)
            for _, writer in silent:
                writer.close()
        assert sum("is dropped" in line for line in caplog.messages) <= 4, "the log is rated"

    asyncio.run(run())


def test_a_stranger_who_says_nothing_goes_soon(tmp_path: Path) -> None:
    async def run() -> None:
        changes = {"haSendHeartbeatInterval": "10", "haSharedSecret": SECRET["haSharedSecret"]}
        async with pair_world(tmp_path) as world, world.master(**changes) as master:
            begun = asyncio.get_running_loop().time()
            reader, writer = await connect(master)
            assert len(await reader.read()) == 40, "the challenge and the end"
            assert asyncio.get_running_loop().time() - begun < 20, "haHousekeepingInterval"
            writer.close()

    asyncio.run(run())


def test_reports_without_proof_from_one_address_take_few_places(tmp_path: Path) -> None:
    async def run() -> None:
        async with pair_world(tmp_path) as world, world.master() as master:
            there = [await connect(master) for _ in range(PER_ADDRESS_MAX)]
            for _, writer in there:
                writer.write(REPORT.pack(0))
            await until(lambda: len(master.pair.master.slaves) >= PER_ADDRESS_MAX, "they are fed")
            for _ in range(5):
                reader, writer = await connect(master)
                writer.write(REPORT.pack(0))
                assert await reader.read() == b"", "there is no place"
                writer.close()
            assert len(master.pair.master.slaves) == PER_ADDRESS_MAX
            for _, writer in there:
                writer.close()

    asyncio.run(run())


def test_places_the_oldest_stranger_goes_first_of_its_own_address() -> None:
    places: Places[int] = Places()
    for number in range(PER_ADDRESS_MAX):
        assert places.knock(number, "a") is None
    assert places.knock(100, "a") == 0
    others = range(200, 200 + STRANGERS_MAX - PER_ADDRESS_MAX)
    assert [places.knock(number, str(number)) for number in others] == [None] * len(others)
    assert places.knock(300, "b") == 1, "the oldest of all"
    assert len(places.all()) == STRANGERS_MAX
    places.leave(300)
    assert places.knock(301, "c") is None


def test_places_of_those_who_left_are_free_and_nobody_goes_for_the_next() -> None:
    places: Places[int] = Places()
    for _ in range(3):
        for number in range(PER_ADDRESS_MAX):
            assert places.knock(number, "a") is None
        for number in range(PER_ADDRESS_MAX):
            places.leave(number)
        assert places.all() == []
        assert places.join(7, "a", proven=False) == (True, None)
        places.leave(7)
        assert places.slaves == []


def test_places_of_slaves_that_have_proven_nothing_are_few_for_each_address() -> None:
    places: Places[int] = Places()
    for number in range(PER_ADDRESS_MAX):
        assert places.join(number, "a", proven=False) == (True, None)
    assert places.join(100, "a", proven=False) == (False, None)
    assert places.join(101, "b", proven=False) == (True, None)
    assert places.join(102, "a", proven=True) == (True, None)
    assert places.join(103, "a", proven=False) == (False, None)
    places.leave(0)
    assert places.join(104, "a", proven=False) == (True, None)


def test_places_a_slave_that_reports_is_no_stranger_any_more() -> None:
    places: Places[int] = Places()
    for number in range(PER_ADDRESS_MAX):
        assert places.knock(number, "a") is None
    assert places.join(0, "a", proven=False) == (True, None)
    assert places.all() == [*range(1, PER_ADDRESS_MAX), 0]
    # Its place among the strangers is free.
    assert places.knock(100, "a") is None
    places.leave(0)
    assert 0 not in places.all()


def test_places_a_proven_slave_takes_the_place_of_one_that_is_not() -> None:
    places: Places[int] = Places()
    for number in range(SLAVES_MAX):
        assert places.join(number, str(number), proven=False) == (True, None)
    assert places.join(900, "z", proven=False) == (False, None)
    for number in range(SLAVES_MAX):
        assert places.join(1_000 + number, "a", proven=True) == (True, number)
    assert places.join(2_000, "a", proven=True) == (False, None)
    assert len(places.slaves) == SLAVES_MAX
