"""What name servers tell the members of a pair: who leads it now (905)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pair_harness import caught_up, pair_world
from roquet.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from pathlib import Path

    from pair_harness import PairWorld


def test_a_slave_without_name_servers_follows_the_master_that_a_notice_names(
    tmp_path: Path,
) -> None:
    async def tell(world: PairWorld) -> None:
        async with world.master() as master, world.slave(namesrvAddr="") as slave:
            await world.send(master)
            assert not slave.pair.slave.address
            right = {
                "minBrokerId": "0",
                "brokerName": master.identity.name,
                "minBrokerAddr": master.identity.address,
                "haBrokerAddr": master.identity.ha_address,
            }
            code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
            wrong = await world.ask(slave, code, **{**right, "haBrokerAddr": "nowhere"})
            assert wrong.code == ResponseCode.INVALID_PARAMETER
            other = await world.ask(slave, code, **{**right, "brokerName": "somebody-else"})
            acting = await world.ask(slave, code, **{**right, "minBrokerId": "1"})
            assert (other.code, acting.code) == (0, 0)
            assert not slave.pair.slave.address
            # A master has nobody to follow, whatever it hears.
            assert (await world.ask(master, code, **right)).code == 0
            assert (await world.ask(slave, code, **right)).code == 0
            await caught_up(master, slave)
            assert slave.pair.slave.address == master.identity.ha_address

    async def run() -> None:
        async with pair_world(tmp_path) as world:
            await tell(world)

    asyncio.run(run())
