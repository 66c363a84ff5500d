"""Offsets that groups committed at a master before its slave had the messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pair_harness import caught_up, pair_world
from roquet.base.properties_file import write_properties
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.broker.app import Broker


TOPIC = "Pair"


def ahead(broker: Broker) -> None:
    """Have what a slave copies of a master that has more messages than the slave."""
    assert broker.store.max_offset(TOPIC, 0) == 3
    broker.metadata.offsets.commit("g", TOPIC, 0, 9)
    broker.metadata.offsets.commit("behind", TOPIC, 0, 2)


def judge(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    offsets = broker.metadata.offsets
    assert (offsets.committed("g", TOPIC, 0), offsets.committed("behind", TOPIC, 0)) == (3, 2)
    assert broker.pair.lost_ends.set_back == {"empty_log": 0, "lost_tail": 0, "copy": 1}
    said = [line for line in caplog.messages if "lacks what groups had read" in line]
    assert len(said) == 1
    assert f"g in {TOPIC} queue 0 from 9 to 3" in said[0]


@pytest.mark.parametrize("restarts", [False, True])
def test_groups_ahead_of_a_copy_get_what_its_new_master_takes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, restarts: bool
) -> None:
    async def main() -> None:
        async with pair_world(tmp_path) as world:
            async with world.slave() as slave:
                async with world.master() as master:
                    for _ in range(3):
                        assert (await world.send(master)).code == 0
                    await caught_up(master, slave)
                ahead(slave)
                if not restarts:
                    body = write_properties({"brokerRole": "ASYNC_MASTER"})
                    command = Command(RequestCode.UPDATE_BROKER_CONFIG, body=body)
                    answer = await world.client.call(slave.identity.address, command, 30.0)
                    assert answer.code == 0, answer.remark
                    judge(slave, caplog)
            caplog.clear()
            leads = world.slave(None, brokerRole="ASYNC_MASTER", brokerId="0")
            async with leads as again:
                if restarts:
                    judge(again, caplog)
                else:
                    assert again.pair.lost_ends.set_back["copy"] == 0
                assert (await world.send(again)).code == 0
                assert again.metadata.offsets.committed("g", TOPIC, 0) == 3

    asyncio.run(main())
