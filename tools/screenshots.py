"""Pictures of the jobs' pages for the guides: docs/images/stats.png and docs/images/lag.png.

`python -m tools.screenshots [--only stats]`. It runs the jobs over data made for it (a store
that is filled with flights for a minute, snapshots of three groups) and opens their pages in the
browser that `make browser` needs.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from demo.flights import departures
from demo.job import session

from roquet import roquet_native as native
from roquet.spark.jobs import lag, stats

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

IMAGES: Final = Path(__file__).parent.parent / "docs" / "images"
SIZE: Final = (1100, 1500)
SECONDS: Final = 60
FLIGHTS: Final = 40_000
HOSTS: Final = (21, 22, 23)
_SNAPSHOTS: Final = (
    "at timestamp, `group` string, topic string, brokerName string, queueId int, offset bigint,"
    " minOffset bigint, maxOffset bigint, `lag` bigint, clientId string"
)
# Messages a second of each queue that a group consumes; 50 come.
_GROUPS: Final = {"billing": (50, 50, 50, 50), "search": (50, 50, 12, 50), "mail": (60, 60, 60, 0)}
_STEPS: Final = 90


def fill(folder: Path) -> None:
    """Write a store of flights by carrier, more and fewer of them as time goes by."""
    chance = random.Random(7)
    store = native.Store.open({"storePathRootDir": str(folder), "mappedFileSizeCommitLog": 1 << 28})
    store.start()
    flights = departures(FLIGHTS)
    sent, begin = 0, time.monotonic()
    while (gone := time.monotonic() - begin) < SECONDS:
        wave = gone / SECONDS - 0.04 * math.sin(gone / 3)
        while sent < min(len(flights), int(len(flights) * max(0.0, wave))):
            it = flights[sent]
            key = "" if it.key is None else f"KEYS\x01{it.key}\x02"
            late = int(chance.lognormvariate(1.2, 0.7))
            store.put(
                "departures",
                ord(it.tag[0]) % 8,
                it.body,
                f"{key}TAGS\x01{it.tag}\x02UNIQ_KEY\x01{sent:032X}\x02".encode(),
                born_timestamp=int(datetime.now(UTC).timestamp() * 1000) - late,
                born_host=bytes([10, 0, 0, chance.choice(HOSTS), 0, 0, 156, 64]),
            )
            sent += 1
        time.sleep(0.01)
    store.close()


def stats_page(spark: SparkSession, folder: Path) -> Path:
    """Run `stats` over the store and return its page."""
    fill(folder / "store")
    out = folder / "stats"
    stats.run(spark, {"store": str(folder / "store"), "out": str(out)}, print)
    return out / "report.html"


def lag_page(spark: SparkSession, folder: Path) -> Path:
    """Run `lag` over snapshots and return its page."""
    begin = datetime(2026, 5, 1, 12, tzinfo=UTC)
    rows: list[tuple[object, ...]] = []
    for group, rates in _GROUPS.items():
        for queue, rate in enumerate(rates):
            offset = 1000 * (queue + 1)
            end = offset + 2000
            for step in range(_STEPS):
                at = begin + timedelta(seconds=10 * step)
                client = f"{group}-{queue % 2}"
                place = (at, group, "orders", "broker-a", queue)
                rows.append((*place, offset, 0, end, end - offset, client))
                end += 500
                # A deploy stops everything for a while.
                halted = 30 <= step < 38
                offset = min(end, offset + (0 if halted else 10 * rate * 13 // 10))
    table, out = f"{folder}/snapshots", folder / "lag"
    spark.createDataFrame(rows, _SNAPSHOTS).write.parquet(table)
    lag.run(spark, {"snapshots": table, "out": str(out)}, print)
    return out / "report.html"


PAGES: Final[dict[str, Callable[[SparkSession, Path], Path]]] = {
    "stats": stats_page,
    "lag": lag_page,
}


def shoot(pages: dict[str, Path]) -> None:
    """Open pages and write what is seen of them."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (`--help` does without)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"),
            args=["--no-sandbox", "--disable-gpu", "--no-first-run"],
        )
        width, height = SIZE
        page = browser.new_page(viewport={"width": width, "height": height})
        for name, path in pages.items():
            page.goto(path.as_uri())
            page.screenshot(path=str(IMAGES / f"{name}.png"))
            print(f"written {IMAGES / name}.png")
        browser.close()


def main() -> int:
    """Make the pages and their pictures."""
    parser = argparse.ArgumentParser(prog="tools.screenshots", description=__doc__)
    parser.add_argument("--only", choices=list(PAGES), help="one page instead of all")
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory(prefix="roquet-screenshots-") as name:
        folder = Path(name)
        spark = session(folder)
        try:
            wanted = [only] if only else list(PAGES)
            pages = {it: PAGES[it](spark, folder) for it in wanted}
        finally:
            spark.stop()
        shoot(pages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
