"""Running the Spark job, and killing it -9 at seeded times.

Two kinds of kill: `written` strikes when a micro-batch is in the lake and Spark has not yet noted
that it is done, so that the next run has to write it again; `any` strikes at a random moment after
a micro-batch has begun. At least a third are of the first kind, and a run in which no micro-batch
was written twice has shown nothing and fails.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

LINGER_S = 1.0
"""How long a job that is to be killed after a write waits there."""
ANY_MAX_S = 1.5
SKIP_MAX = 1
JOB_MAX_S = 600.0
POLL_S = 0.02


class JobFailed(Exception):  # noqa: N818
    """The job ended by itself with an error, or did not end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kill:
    """One kill: `written` or `any`, after how many such events of its run, and how long after."""

    kind: str
    skip: int
    after_s: float

    @property
    def words(self) -> str:
        """The kill for people."""
        event = "write" if self.kind == "written" else "begin"
        return f"{self.after_s:.2f} s after {event} {self.skip + 1}"


def plan(count: int, seed: int) -> list[Kill]:
    """Return kills drawn by a seed, the first third or more between write and commit."""
    rng = random.Random(seed)
    kinds = ["written"] * -(-count // 2) + ["any"] * (count // 2)
    rng.shuffle(kinds)
    longest = {"written": LINGER_S / 2, "any": ANY_MAX_S}
    return [Kill(kind, rng.randint(0, SKIP_MAX), rng.uniform(0, longest[kind])) for kind in kinds]


def replayed(events: Iterable[dict[str, Any]]) -> dict[int, int]:
    """Return the micro-batches that were written more than once, and how often.

    Raises JobFailed when a repeated one had other rows than before.
    """
    written: dict[int, list[int]] = collections.defaultdict(list)
    for event in events:
        if event["event"] == "written":
            written[event["batch"]].append(event["rows"])
    for batch, rows in written.items():
        if len(set(rows)) > 1:
            raise JobFailed(f"micro-batch {batch} had {rows} rows in its tries")
    return {batch: len(rows) for batch, rows in written.items() if len(rows) > 1}


class Folders(Protocol):
    """Where the job writes."""

    folder: Path
    lake: Path
    statistics: Path
    progress: Path


class Runner:
    """Runs the job to its end, through kills."""

    def __init__(
        self, *, name_servers: str, topic: str, paths: Folders, rows_per_batch: int
    ) -> None:
        """Start nothing yet."""
        self._paths = paths
        self._command = [
            *(sys.executable, "-m", "demo.job"),
            *("--name-servers", name_servers),
            *("--topic", topic),
            *("--lake", str(paths.lake)),
            *("--checkpoint", str(paths.folder / "checkpoint")),
            *("--progress", str(paths.progress)),
            *("--statistics", str(paths.statistics)),
            *("--rows-per-batch", str(rows_per_batch)),
        ]
        self.killed = 0
        self.stream_s = 0.0
        """From the query's start to its end, in all runs."""
        self.statistics_s = 0.0

    def run(self, kills: Sequence[Kill], saw: Callable[[int, str], None]) -> None:
        """Kill as planned, then let the job finish. Raises JobFailed."""
        for kill in kills:
            self._run_once(kill, saw)
        self._run_once(None, saw)
        done = [event for event in self.events() if event["event"] == "done"]
        if len(done) != 1:
            raise JobFailed(f"the job has finished {len(done)} times")
        self.statistics_s = float(done[0]["statistics_s"])
        self.stream_s = _stream_seconds(self.events())
        # Asked here, too, since rows that differ between tries are an error in any case.
        replayed(self.events())

    def events(self) -> list[dict[str, Any]]:
        """Return what the job has told so far."""
        if not self._paths.progress.exists():
            return []
        lines = self._paths.progress.read_bytes().split(b"\n")
        return [json.loads(line) for line in lines[:-1]]

    def _run_once(self, kill: Kill | None, saw: Callable[[int, str], None]) -> None:
        linger = ["--linger-s", str(LINGER_S)] if kill and kill.kind == "written" else []
        log = self._paths.folder / "job.log"
        before = len(self.events())
        with log.open("ab") as out:
            process = subprocess.Popen(
                [*self._command, *linger],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            struck = self._watch(process, kill, before, saw)
        finally:
            kill_tree(process)
        if struck:
            self.killed += 1
        elif process.returncode != 0:
            raise JobFailed(f"the job ended with {process.returncode}; see {log}")
        elif kill is not None:
            raise JobFailed("the job was done before it could be killed")

    def _watch(
        self,
        process: subprocess.Popen[bytes],
        kill: Kill | None,
        before: int,
        saw: Callable[[int, str], None],
    ) -> bool:
        """Wait for the end or for the moment to kill; tell whether it came to that."""
        end = time.monotonic() + JOB_MAX_S
        event = "" if kill is None else {"written": "written", "any": "begin"}[kill.kind]
        while process.poll() is None:
            if time.monotonic() > end:
                raise JobFailed(f"the job did not end within {JOB_MAX_S:.0f} s")
            events = self.events()
            self._tell(events, saw)
            seen = sum(it["event"] == event for it in events[before:])
            if kill is not None and seen > kill.skip:
                time.sleep(kill.after_s)
                return process.poll() is None
            time.sleep(POLL_S)
        self._tell(self.events(), saw)
        return False

    def _tell(self, events: Sequence[dict[str, Any]], saw: Callable[[int, str], None]) -> None:
        rows = {it["batch"]: it["rows"] for it in events if it["event"] == "written"}
        words = f"batch {max(rows)}" if rows else "starts"
        saw(sum(rows.values()), f"{words}, killed {self.killed}" if self.killed else words)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with everything it has started, at once and for good."""
    pids = [process.pid, *descendants(process.pid)] if process.poll() is None else []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def descendants(root: int) -> list[int]:
    """Return the processes below one, from /proc."""
    children: dict[int, list[int]] = collections.defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name in parentheses may hold anything; the parent is the second field behind it.
            parent = path.read_text().rsplit(")", 1)[1].split()[1]
            children[int(parent)].append(int(path.parent.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children[waiting.pop()]
        found += below
        waiting += below
    return found


def warm(events: Iterable[dict[str, Any]]) -> tuple[int, float]:
    """Return rows and seconds of the stream behind the first micro-batch of each run.

    The first one waits for Spark's planning and for its Python to begin.
    """
    spans: dict[int, list[tuple[float, int]]] = collections.defaultdict(list)
    for event in events:
        if event["event"] == "written":
            spans[event["pid"]].append((event["at"], event["rows"]))
    rows = sum(count for times in spans.values() for _, count in times[1:])
    return rows, sum(times[-1][0] - times[0][0] for times in spans.values())


def _stream_seconds(events: Iterable[dict[str, Any]]) -> float:
    """Add up the time from `started` to the last event of the stream, run by run."""
    spans: dict[int, list[float]] = collections.defaultdict(list)
    for event in events:
        if event["event"] != "done":
            spans[event["pid"]].append(event["at"])
    return sum(max(times) - min(times) for times in spans.values())
