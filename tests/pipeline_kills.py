"""A job of the pipeline as the command that people run, killed and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from demo.kills import kill_tree
from tools.spark_kills.world import FALLS_MAX, SHORT_LIVED, WAIT_S, task_workers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MASTER: Final = ("--master", "local[2,4]", "--conf", "spark.ui.enabled=false")
"""A task whose Python is killed is tried again, as on a cluster."""


class Job:
    """A job as a process."""

    def __init__(self, log: Path, name: str, *words: str) -> None:
        self.log = log
        few = ("--conf", "spark.sql.shuffle.partitions=2")
        self._words = ["pipeline", "run", *MASTER, *few, name, *words]
        self._process: subprocess.Popen[bytes] | None = None
        self.falls = 0

    def run(self) -> subprocess.Popen[bytes]:
        """Return the running job, started anew when it was killed or has ended with an error."""
        if self._process is not None and self._process.poll() not in {None, 0}:
            self.falls += 1
            assert self.falls < FALLS_MAX, self.told()
            self._process = None
        if self._process is None:
            with self.log.open("ab") as out:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "roquet", *self._words],
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, **SHORT_LIVED},
                )
        return self._process

    def running(self, end: float) -> subprocess.Popen[bytes]:
        """Return the job that is to be killed, which must not be done yet."""
        process = self.run()
        assert process.poll() != 0, "the job was done before it could be killed"
        assert time.monotonic() < end, self.told()
        return process

    def workers(self) -> list[int]:
        """Return the processes of its tasks."""
        return [] if self._process is None else task_workers(self._process.pid)

    def kill(self, what: str) -> None:
        """Kill the Python of its tasks (`worker`), or all that it is."""
        if what == "worker":
            for pid in self.workers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        elif self._process is not None:
            kill_tree(self._process)
            self._process = None

    def finish(self) -> None:
        """Let it come to its end."""
        end = time.monotonic() + WAIT_S
        while self.run().poll() != 0:
            assert time.monotonic() < end, self.told()
            time.sleep(0.1)

    def told(self) -> str:
        """Return the end of its log."""
        return self.log.read_text()[-4000:]


@contextlib.contextmanager
def started(job: Job) -> Iterator[Job]:
    """Leave nothing of a job behind."""
    try:
        yield job
    finally:
        job.kill("driver")
