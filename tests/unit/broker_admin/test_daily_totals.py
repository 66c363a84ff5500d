"""Totals of the days: over midnight, over a restart, after a pause of days."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from roquet.broker.metrics.daily_totals import DailyTotals
from roquet.store.tables.files import JsonFile
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

DAY_S = 86_400


def test_totals_roll_and_survive(tmp_path: Path) -> None:
    async def main() -> None:
        clock = FakeClock()
        path = tmp_path / "brokerStats.json"
        days = DailyTotals(clock, JsonFile(path))
        await days.start()
        days.put(5, clock.now_ms())
        days.get(2, clock.now_ms())
        await days.stop()
        days = DailyTotals(clock, JsonFile(path))
        await days.start()
        assert (days.puts.now, days.puts.this_morning, days.gets.now) == (5, 0, 2)
        await clock.advance(DAY_S)
        days.put(3, clock.now_ms())
        assert (days.puts.now, days.puts.this_morning, days.puts.yesterday_morning) == (8, 5, 0)
        await days.persist()
        assert (days.gets.now, days.gets.this_morning) == (2, 2)
        await clock.advance(DAY_S)
        days = DailyTotals(clock, JsonFile(path))
        await days.start()
        assert (days.puts.now, days.puts.this_morning, days.puts.yesterday_morning) == (8, 8, 5)
        await clock.advance(3 * DAY_S)
        days.put(1, clock.now_ms())
        assert (days.puts.now, days.puts.this_morning, days.puts.yesterday_morning) == (9, 8, 8)

    asyncio.run(main())


def test_a_broken_file_is_said_and_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        path = tmp_path / "brokerStats.json"
        for text in ('{"day": 0}', '{"day": 99999999}', "[]", '{"day": "x"}'):
            path.write_text(text)
            caplog.clear()
            days = DailyTotals(FakeClock(), JsonFile(path))
            await days.start()
            assert days.puts.now == 0
            assert "begin at zero" in caplog.text
        path.write_text(json.dumps({"day": 738_000}))
        days = DailyTotals(FakeClock(), JsonFile(path))
        await days.start()
        assert days.puts.now == 0

    asyncio.run(main())
