"""The console with 1,000 topics and 2,000 groups: first paint of its pages in Chromium.

`python -m bench.features.console_pages [--topics n] [--groups n] [--rounds n]`. Name server, broker
and console run in one process as `roquet dev` runs them, the browser in others. A group has
committed offsets in two topics of 8 queues. Each page is opened `--rounds` times with an empty
cache of pages; `paint` is the browser's first contentful paint since the navigation began, median
and worst, and `size` the page itself. The last line is the one request for the lag of all groups.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.async_api import async_playwright

from roquet.base.clock import SystemClock
from roquet.client import connect
from roquet.console import table
from roquet.console.app import build
from roquet.console.config import ConsoleConfig
from roquet.console.roles import Role
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.async_api import Page

    from roquet.admin import Admin
    from roquet.console.app import Console
    from roquet.testing.cluster import Cluster

QUEUES = 8
QUERIES = {
    "/topic": "?name=topic-0000",
    "/publish": "?topic=topic-0000",
    "/group": "?name=group-0000",
    "/group/seek": "?group=group-0000&topic=topic-0000&to=earliest",
    "/messages": "?topic=topic-0000",
    "/dead/group": "?group=group-0000",
}
LEFT_OUT = {"/group/member", "/message"}
"""They show one member and one message, whatever the cluster's size."""
PAINT = """() => new Promise((done) => {
  const found = performance.getEntriesByName('first-contentful-paint')[0];
  if (found) { done(found.startTime); return; }
  new PerformanceObserver((list) => {
    for (const it of list.getEntries())
      if (it.name === 'first-contentful-paint') done(it.startTime);
  }).observe({type: 'paint', buffered: true});
})"""


async def fill(world: Cluster, admin: Admin, topics: int, groups: int) -> None:
    """Make topics and groups, with offsets."""
    await admin.topics.put_all(
        TopicConfig(name=f"topic-{number:04}", read_queues=QUEUES, write_queues=QUEUES)
        for number in range(topics)
    )
    await admin.groups.put_all(
        SubscriptionGroupConfig(name=f"group-{number:04}") for number in range(groups)
    )
    offsets = world.broker.metadata.offsets
    for number in range(groups):
        for topic in {number % topics, number * 7 % topics}:
            for queue in range(QUEUES):
                offsets.commit(f"group-{number:04}", f"topic-{topic:04}", queue, 0)
    for _ in range(20):
        await world.send("topic-0000", b"x" * 100)


async def measure(world: Cluster, admin: Admin, console: Console, rounds: int) -> None:
    """Print a line for each page."""
    now_s = SystemClock().steady_ms() / 1000
    key = console.sessions.begin("bench", Role.ADMINISTRATOR, now_s)
    address = f"http://127.0.0.1:{console.server.port}"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        context = await browser.new_context()
        cookie: Any = {"name": "roquet_console", "value": key, "url": address}
        await context.add_cookies([cookie])
        page = await context.new_page()
        for view in table.VIEWS:
            if view.path not in LEFT_OUT:
                query = QUERIES.get(view.path, "")
                if view.path == "/broker":
                    query = f"?address={world.address}&all=true"
                await _one(page, address, view.path + query, rounds)
        await browser.close()
    begin_s, begin_cpu_s = time.monotonic(), time.process_time()
    lags = await admin.brokers.group_lags(world.address)
    took_ms = (time.monotonic() - begin_s) * 1000
    cpu_ms = (time.process_time() - begin_cpu_s) * 1000
    count = 0 if lags is None else len(lags)
    print(f"lags of {count} groups: {took_ms:.0f} ms, {cpu_ms:.0f} ms of CPU of both sides")


async def _one(page: Page, address: str, path: str, rounds: int) -> None:
    paints: list[float] = []
    size = 0
    for _ in range(rounds):
        answer = await page.goto(address + path)
        assert answer is not None
        assert answer.status == 200, (path, answer.status)
        size = len(await answer.body())
        paints.append(await page.evaluate(PAINT))
    name = path.partition("?")[0]
    print(
        f"{name:14} paint {statistics.median(paints):5.0f} ms, at most {max(paints):5.0f} ms,"
        f" size {size / 1024:6.1f} KiB"
    )


async def run(options: argparse.Namespace) -> None:
    """Make the cluster and measure it."""
    with tempfile.TemporaryDirectory(prefix="roquet-console-bench-") as folder:
        async with cluster(Path(folder)) as world:
            config = ConsoleConfig(port=0, cluster=world.name_servers)
            mq = connect(f"rmq://{world.name_servers}")
            console = build(config, mq, SystemClock(), lambda _: None)
            async with console.app:
                await fill(world, mq.admin(), options.topics, options.groups)
                await measure(world, mq.admin(), console, options.rounds)


def main(words: Sequence[str]) -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    asyncio.run(run(parser.parse_args(words)))


if __name__ == "__main__":
    main(sys.argv[1:])
