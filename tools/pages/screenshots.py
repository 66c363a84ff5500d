"""Pictures of the jobs' pages for the guides: stats, lag, dlq and trace in docs/images.

`python -m tools.pages.screenshots [--only stats]`. It runs the jobs over data made for it (a store
that is filled with flights for a minute, snapshots of three groups, dead letters, traces) and
opens their pages in the browser that `make browser` needs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from demo.job import session

from roquet.spark.jobs import dlq, lag, stats, trace
from tools.pages import screenshot_worlds

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
SIZE: Final = (1100, 1500)


def stats_page(spark: SparkSession, folder: Path) -> Path:
    """Run `stats` over the store and return its page."""
    screenshot_worlds.flights(folder / "store")
    out = folder / "stats"
    stats.run(spark, {"store": str(folder / "store"), "out": str(out)}, print)
    return out / "report.html"


def lag_page(spark: SparkSession, folder: Path) -> Path:
    """Run `lag` over snapshots and return its page."""
    table, out = f"{folder}/snapshots", folder / "lag"
    rows = screenshot_worlds.snapshots()
    spark.createDataFrame(rows, screenshot_worlds.SNAPSHOTS).write.parquet(table)
    lag.run(spark, {"snapshots": table, "out": str(out)}, print)
    return out / "report.html"


def dlq_page(spark: SparkSession, folder: Path) -> Path:
    """Run `dlq` over dead letters in a lake and return its page."""
    lake, originals = screenshot_worlds.dead_letters(spark, folder)
    out = folder / "dlq"
    given = {"lake": lake, "originals": originals, "causeProperty": "error", "out": str(out)}
    dlq.run(spark, given, print)
    return out / "report.html"


def trace_page(spark: SparkSession, folder: Path) -> Path:
    """Run `trace` over a store, with the story of one key, and return its page."""
    screenshot_worlds.traces(folder / "traced")
    out, store = folder / "trace", str(folder / "traced")
    trace.run(spark, {"store": store, "key": screenshot_worlds.STORY_KEY, "out": str(out)}, print)
    return out / "report.html"


PAGES: Final[dict[str, Callable[[SparkSession, Path], Path]]] = {
    "stats": stats_page,
    "lag": lag_page,
    "dlq": dlq_page,
    "trace": trace_page,
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
    parser = argparse.ArgumentParser(prog="tools.pages.screenshots", description=__doc__)
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
