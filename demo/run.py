"""The whole demonstration: `python -m demo.run [--kill N]`.

Name server and broker start, the flights are sent, a Spark job brings them into the lake and
counts delays, an audit compares ledger and lake. With `--kill N` the job is killed N times.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo import chart, flights, send
from demo.kills import JobFailed, Runner, plan, replayed, warm
from demo.ledger import Ledger
from demo.servers import servers
from roquet.base.errors import RoquetError

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = "flights"
BATCHES = 6
"""Micro-batches of an undisturbed run; a kill adds two, so that the job is not done before it."""


class Paths:
    """Everything the demo writes."""

    def __init__(self, folder: Path) -> None:
        """Begin with an empty folder."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.servers = folder / "servers"
        self.servers.mkdir()
        self.ledger = folder / "ledger.csv"
        self.lake = folder / "lake"
        self.statistics = folder / "delays.json"
        self.chart = folder / "delays.png"
        self.audit = folder / "audit.json"
        self.progress = folder / "progress.jsonl"


def bar(console: Console) -> Progress:
    """Make a progress bar."""
    return Progress(
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=console,
    )


def send_all(console: Console, name_servers: str, paths: Paths, rows: int | None) -> dict[str, Any]:
    """Read and send the data; return how many and how fast."""
    begin = time.monotonic()
    departures = flights.departures(rows)
    read_s = time.monotonic() - begin
    with bar(console) as shown, Ledger(paths.ledger) as ledger:
        task = shown.add_task("sending", total=len(departures), rate="")
        begin = time.monotonic()

        def sent(count: int) -> None:
            done = shown.tasks[0].completed + count
            rate = f"{done / max(0.001, time.monotonic() - begin):,.0f}/s"
            shown.update(task, advance=count, rate=rate)

        send.send(name_servers, TOPIC, departures, ledger, sent)
    return {"rows": len(departures), "read_s": read_s, "send_s": time.monotonic() - begin}


def audit(paths: Paths) -> tuple[int, str]:
    """Run the audit as a process of its own; return its exit code and words."""
    found = subprocess.run(
        [
            *(sys.executable, "-m", "demo.audit"),
            *("--ledger", str(paths.ledger), "--lake", str(paths.lake)),
            *("--json", str(paths.audit)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.returncode, (found.stdout + found.stderr).strip()


def delay_table(statistics: Sequence[dict[str, Any]]) -> Table:
    """Return mean delays: an hour a row, an airport a column."""
    origins = sorted({row["origin"] for row in statistics})
    table = Table(title="Departure delay in minutes: mean (share later than 15)")
    table.add_column("hour", justify="right")
    for origin in origins:
        table.add_column(origin, justify="right")
    cells = {(row["hour"], row["origin"]): row for row in statistics}
    for hour in sorted({row["hour"] for row in statistics}):
        found = [cells.get((hour, origin)) for origin in origins]
        table.add_row(f"{hour:02}", *(_cell(row) for row in found))
    return table


def _cell(row: dict[str, Any] | None) -> str:
    if row is None or row["mean_delay"] is None:
        return "-"
    return f"{row['mean_delay']:.1f} ({100 * row['late_share']:.0f} %)"


def stage_table(stages: dict[str, tuple[int, float]]) -> Table:
    """Return rows, seconds and rates of the stages."""
    table = Table(title="Stages")
    for name in ("stage", "rows", "seconds", "rows/s"):
        table.add_column(name, justify="left" if name == "stage" else "right")
    for name, (rows, seconds) in stages.items():
        table.add_row(name, f"{rows:,}", f"{seconds:.1f}", f"{rows / max(seconds, 0.001):,.0f}")
    return table


def run(options: argparse.Namespace, console: Console) -> int:
    """Run everything; return the exit code."""
    paths = Paths(options.out)
    kills = plan(options.kill, options.seed)
    if kills:
        console.print(f"seed {options.seed}: " + ", ".join(kill.words for kill in kills))
    with servers(paths.servers) as running:
        console.print(f"name server and broker run: {running.name_servers}")
        sending = send_all(console, running.name_servers, paths, options.rows)
        rows = sending["rows"]
        runner = Runner(
            name_servers=running.name_servers,
            topic=TOPIC,
            paths=paths,
            rows_per_batch=max(1, -(-rows // (BATCHES + 2 * len(kills)))),
        )
        with bar(console) as shown:
            task = shown.add_task("Spark", total=rows, rate="starts")

            def saw(done: int, words: str) -> None:
                shown.update(task, completed=done, rate=words)

            runner.run(kills, saw)
    begin = time.monotonic()
    code, words = audit(paths)
    stages = {
        "read file": (rows, sending["read_s"]),
        "send": (rows, sending["send_s"]),
        "stream to lake": (rows, runner.stream_s),
        "  of it warm": warm(runner.events()),
        "delays": (rows, runner.statistics_s),
        "audit": (rows, time.monotonic() - begin),
    }
    return _report(console, paths, runner, stages, (code, words))


def _report(
    console: Console,
    paths: Paths,
    runner: Runner,
    stages: dict[str, tuple[int, float]],
    audited: tuple[int, str],
) -> int:
    statistics = json.loads(paths.statistics.read_text())
    chart.draw(statistics, paths.chart)
    console.print(delay_table(statistics))
    console.print(stage_table(stages))
    code, words = audited
    if runner.killed:
        again = replayed(runner.events())
        console.print(f"killed {runner.killed} times; written again: {_batches(again)}")
        if not again:
            console.print("no micro-batch was replayed: the kills have shown nothing")
            code = code or 1
    console.print(f"chart: {paths.chart}")
    # Last, and plain: scripts look for it.
    print(words)
    return code


def _batches(again: dict[int, int]) -> str:
    found = [f"micro-batch {batch} ({count} times)" for batch, count in sorted(again.items())]
    return ", ".join(found) or "none"


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m demo.run", description=__doc__)
    parser.add_argument("--kill", type=int, default=0, metavar="N", help="kill the job N times")
    parser.add_argument("--seed", type=int, default=2013, help="of the kills (%(default)s)")
    parser.add_argument("--rows", type=int, help="send only the first so many")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="(%(default)s)")
    options = parser.parse_args(arguments)
    if options.kill < 0 or (options.rows is not None and options.rows < 1):
        parser.error("--kill is 0 or more, --rows 1 or more")
    console = Console()
    begin = time.monotonic()
    try:
        code = run(options, console)
    except ExceptionGroup as errors:
        console.print(f"the demo failed: {errors.exceptions[0]}")
        return 1
    except (JobFailed, RoquetError, LookupError, OSError) as error:
        console.print(f"the demo failed: {error}")
        return 1
    console.print(f"{time.monotonic() - begin:.0f} s in all")
    return code


if __name__ == "__main__":
    sys.exit(main())
