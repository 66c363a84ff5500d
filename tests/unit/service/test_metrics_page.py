"""The page of Prometheus: as the library writes it, and written in turns."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math

from prometheus_client import CollectorRegistry, core, generate_latest

from roquet.service.families import Family, PageWriter, Row
from roquet.service.metrics import Metrics

NUMBERS = (0.0, 3.0, -1.5, 1e-9, 1234567.0, 123456789.25, 1e300, math.inf, -math.inf, math.nan)
NAMES = ("plain", 'a "quoted"\\path\nline', "", "grün", "%s {x}")


def by_library(metric: core.Metric) -> bytes:
    class One:
        def collect(self) -> list[core.Metric]:
            return [metric]

    registry = CollectorRegistry()
    registry.register(One())
    return generate_latest(registry)


def written(family: Family) -> bytes:
    page = PageWriter()
    write = page.begin(family)
    for row in family.rows:
        write(row)
    return bytes(page.finish())


def test_page_numbers_are_written_as_the_library_writes_them() -> None:
    labels = ["topic", "group", "rack-no", "7th"]
    text = "First line\nand a \\ back slash"
    for kind, made in (("gauge", core.GaugeMetricFamily), ("counter", core.CounterMetricFamily)):
        wanted = made("rocketmq_x", text, labels=labels)
        rows: list[Row] = []
        for name, number in itertools.product(NAMES, NUMBERS):
            values = (name, "g", "r", "s")
            wanted.add_metric(values, number)
            rows.append(Row(values, (number,), 0.0))
        family = Family("rocketmq_x", text, kind, labels, (), rows)
        assert written(family) == by_library(wanted)
    bare = core.GaugeMetricFamily("rocketmq_y", "one", value=4.0)
    assert written(
        Family("rocketmq_y", "one", "gauge", [], (), [Row((), (4.0,), 0.0)])
    ) == by_library(bare)


def test_page_histograms_are_written_as_the_library_writes_them() -> None:
    labels, bounds = ["zone", "code"], (1.0, 10.0, 3000.0)
    wanted = core.HistogramMetricFamily("rocketmq_l", "classes", labels=labels)
    rows: list[Row] = []
    for at, name in enumerate(NAMES):
        counts = (1.0, at, 0.0, 2.0)
        buckets = list(zip([*map(repr, bounds), "+Inf"], itertools.accumulate(counts), strict=True))
        wanted.add_metric((name, "10"), buckets, 99.5)
        rows.append(Row((name, "10"), counts, 99.5))
    family = Family("rocketmq_l", "classes", "histogram", labels, bounds, rows)
    assert written(family) == by_library(wanted)


def test_page_of_many_rows_gives_others_turns_and_has_each_row_once() -> None:
    metrics = Metrics({"node_id": "a"})
    rows = [((f"g{at}",), float(at)) for at in range(30_000)]
    metrics.standard("lag", "text", ("group",), lambda: rows)

    async def story() -> tuple[bytes, int]:
        turns = itertools.count()

        async def other() -> None:
            while True:
                next(turns)
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        page = await metrics.page()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return bytes(page), next(turns)

    page, turns = asyncio.run(story())
    lines = page.decode().splitlines()[2:]
    assert lines == [
        f'rocketmq_lag{{group="g{at}",node_id="a"}} {text(at)}' for at in range(30_000)
    ]
    assert turns > 5


def text(at: int) -> str:
    return f"{float(at)}"
