"""A standalone Spark cluster: a master and two workers with nothing of the driver's.

A worker has its own mount namespace (that needs root), in which these folders are empty: the
driver's, this project's, and the virtual environment that both run in. Spark is bound to another
path before. Its environment says nothing of this project, and its folder is its own: what tasks
have comes from the archive, over the network.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WORKERS = 2
START_S = 600.0
ROOT = Path(__file__).parents[1]
_SPARK = Path(pyspark.__file__).parent
_URL = re.compile(r"spark://[\w.]+:\d+")


@dataclasses.dataclass(frozen=True)
class Standalone:
    """A running cluster, and a driver's environment for it."""

    master: str
    folder: Path
    driver: Path
    """The driver's folder: workers see an empty one in its place."""

    def run(self, *words: str, timeout_s: float = 1500.0, code: int = 0) -> str:
        """Run `roquet` with these words in the driver's folder; return what it printed."""
        own = {"TMPDIR": str(self.driver), "SPARK_LOCAL_DIRS": str(self.driver / "local")}
        done = subprocess.run(
            [sys.executable, "-m", "roquet", *words],
            cwd=self.driver,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == code, (done.stdout + done.stderr)[-6000:] + self.logs()
        return done.stdout

    def job(self, archive: Path, name: str, *options: str, code: int = 0) -> str:
        """Run a job on the cluster."""
        given = [word for text in _CONF for word in ("--conf", text)]
        where = ["--master", self.master, "--archive", str(archive)]
        return self.run("pipeline", "run", *where, *given, name, *options, code=code)

    def executors(self) -> list[str]:
        """Return what each executor has logged so far."""
        return [path.read_text() for path in sorted(self.folder.glob("worker-*/*/*/*/stderr"))]

    def as_worker(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a line of the shell with the folders and the environment of the first worker."""
        own = self.folder / "worker-0"
        return subprocess.run(
            _apart(own, [self.driver], command),
            cwd=own,
            env=_environment(own),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def logs(self) -> str:
        """Return the last lines of all executors."""
        return "".join(f"\n--- executor\n{text[-3000:]}" for text in self.executors())


_CONF = (
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.driver.memory=512m",
    "spark.executor.memory=480m",
    "spark.executor.cores=1",
    "spark.cores.max=2",
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=2",
    # A busy machine may take long to start a Python worker.
    "spark.python.authenticate.socketTimeout=120s",
    "spark.network.timeout=600s",
)
"""Two small executors."""


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """Run a cluster for the length of a block."""
    driver = folder / "driver"
    driver.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        where = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        log = stack.enter_context(_daemon(folder / "master", [driver], "master.Master", *where))
        master = _until(log, _URL, "Starting Spark master")
        for number in range(WORKERS):
            own = folder / f"worker-{number}"
            words = [*where, "--cores", "1", "--memory", "600m", "--work-dir", str(own / "work")]
            log = stack.enter_context(_daemon(own, [driver], "worker.Worker", *words, master))
            _until(log, _URL, "Successfully registered with master")
        yield Standalone(master, folder, driver)


@contextlib.contextmanager
def _daemon(own: Path, hidden: Sequence[Path], name: str, *words: str) -> Iterator[Path]:
    """Run one of Spark's servers in a folder of its own, and give its log."""
    own.mkdir()
    command = shlex.join([str(own / "spark/bin/spark-class"), f"org.apache.spark.deploy.{name}"])
    log = own / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            _apart(own, hidden, f"exec {command} {shlex.join(words)}"),
            cwd=own,
            env=_environment(own),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _apart(own: Path, hidden: Sequence[Path], command: str) -> list[str]:
    """Return a command that sees Spark in `own/spark`, and nothing of the driver's."""
    spark = own / "spark"
    spark.mkdir(exist_ok=True)
    assert sys.prefix != sys.base_prefix, "hiding an interpreter needs a virtual environment"
    bound = f"mount --bind {shlex.quote(str(_SPARK))} {shlex.quote(str(spark))}"
    # The virtual environment first: it may be inside of the project.
    paths = (*map(str, hidden), sys.prefix, str(ROOT))
    emptied = (f"mount -t tmpfs none {shlex.quote(path)}" for path in paths)
    inner = " && ".join([bound, *emptied, command])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", inner]


def _environment(own: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ}
    return {
        **kept,
        "HOME": str(own),
        "SPARK_HOME": str(own / "spark"),
        "SPARK_LOCAL_DIRS": str(own / "local"),
        "SPARK_DAEMON_MEMORY": "160m",
        "SPARK_NO_DAEMONIZE": "1",
    }


def _until(log: Path, wanted: re.Pattern[str], line: str) -> str:
    end = time.monotonic() + START_S
    while True:
        for text in log.read_text().splitlines():
            if line in text and (found := wanted.search(text)):
                return found[0]
        assert time.monotonic() < end, log.read_text()[-4000:]
        time.sleep(0.1)
