"""What asks the cluster has a bounded number of places, and waits for one a bounded time."""

from __future__ import annotations

import asyncio

import pytest

from roquet.console.denied import Denied
from roquet.console.web.answers import ConcurrencyLimit


def test_one_more_than_may_wait_is_turned_away_and_who_waits_gets_the_next_place() -> None:
    async def story() -> None:
        limit = ConcurrencyLimit("sign-ins", 1, 1, 60.0)
        begun: list[int] = []

        async def work(number: int, until: asyncio.Event) -> None:
            async with limit.place():
                begun.append(number)
                await until.wait()

        first, last = asyncio.Event(), asyncio.Event()
        tasks = [asyncio.ensure_future(work(1, first)), asyncio.ensure_future(work(2, last))]
        await asyncio.sleep(0)
        with pytest.raises(Denied, match="too many sign-ins at the same time; try again") as denied:
            await work(3, last)
        assert (denied.value.status, begun) == (503, [1])
        first.set()
        last.set()
        await asyncio.gather(*tasks)
        await work(4, last)
        assert begun == [1, 2, 4]

    asyncio.run(story())


def test_place_that_is_not_had_in_time_is_said_to_be_late() -> None:
    async def story() -> None:
        limit = ConcurrencyLimit("requests", 1, 1, 0.01)
        with pytest.raises(Denied, match="the cluster did not answer within 0 s") as denied:
            async with limit.place(), limit.place():
                raise AssertionError("there is one place")
        assert denied.value.status == 504

    asyncio.run(story())
