"""`roquet pipeline`: lists jobs, checks options, starts Spark, runs a job; packs for a cluster."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import importlib
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roquet.base.errors import UsageError
from roquet.cli.output import line, table
from roquet.spark.jobs.options.tables import JOBS, Job, given, job
from roquet.spark.option_table import Given

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

FOLDER: Final = "environment"
"""What a cluster's workers call the unpacked archive, in the folder that they run in."""

_SHUFFLES: Final = "spark.sql.shuffle.partitions"
_ON_ONE_MACHINE: Final[Mapping[str, str]] = {
    # Nobody else has to reach this Spark, and the machine may have no network at all.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # A busy machine may take long to start a Python worker.
    "spark.python.authenticate.socketTimeout": "120s",
}
_NO_SPARK = (
    "jobs need Spark: install the wheel with its extra,"
    " pip install 'roquet-VERSION.whl[spark]', and a Java 17"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """Where Spark runs: a master's URL, an archive for its workers, settings `name=value`."""

    master: str | None = None
    archive: str | None = None
    settings: tuple[str, ...] = ()

    @property
    def connect(self) -> str | None:
        """The URL of a server of Spark Connect, by $SPARK_REMOTE or `--master`; None without."""
        # PySpark, too, takes the variable before any master.
        given = self.master if self.master and self.master.startswith("sc://") else None
        return os.environ.get("SPARK_REMOTE") or given

    def checked(self) -> dict[str, str]:
        """Return the settings. Raises UsageError."""
        found: dict[str, str] = {}
        for text in self.settings:
            name, separator, value = text.partition("=")
            if not separator or not name.startswith("spark."):
                raise UsageError(f"--conf {text[:80]!r}: must be spark.NAME=VALUE")
            found[name] = value
        if self.connect is not None:
            if self.master not in {None, self.connect}:
                raise UsageError(f"--master {self.master}: SPARK_REMOTE names another, unset one")
            if self.archive is not None:
                raise UsageError("--archive: a server of Spark Connect has workers of its own")
        if self.archive is not None:
            if not Path(self.archive).is_file():
                raise UsageError(f"--archive {self.archive}: there is no such file")
            found["spark.archives"] = f"{Path(self.archive).absolute()}#{FOLDER}"
        return found


def jobs() -> int:
    """Print the jobs."""
    table(["job", "what it does"], [[it.name, it.doc] for it in JOBS])
    return 0


def script() -> int:
    """Print the path of the script that `spark-submit` takes."""
    line(str(Path(__file__).parent.parent / "scripts" / "spark_job.py"))
    return 0


def pack(target: str, python: str | None) -> int:
    """Write an archive for a cluster's workers. Raises UsageError, OSError."""
    from roquet.spark.pack import pack as write  # noqa: PLC0415  (other commands do without)

    # Before a minute is spent on what goes into it.
    path = Path(target)
    if not os.path.isdir(path.parent) or os.path.isdir(path):  # noqa: PTH112  (any text is asked)
        raise UsageError(f"{target}: must be a file in a folder that exists")
    size = write(path, None if python is None else Path(python))
    line(f"{target}: {size / 1e6:,.0f} MB")
    return 0


def run(name: str, words: Sequence[str], cluster: Cluster) -> int:
    """Run a job and return its exit code. Raises UsageError before Spark is started."""
    found = job(name)
    if {"-h", "--help"} & set(words):
        _help(found)
        return 0
    options = _with_environment(given(words, found.options), found)
    dry = Given(options, found.options).flag("dryRun")
    try:
        module = importlib.import_module(f"roquet.spark.jobs.{found.name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "roquet":
            raise
        raise UsageError(f"{error.name} is missing: {_NO_SPARK}") from error
    settings = cluster.checked()
    for text in module.plan(options):
        line(text)
    if dry and not getattr(module, "DRY_RUN_READS", False):
        return 0
    wanted: Mapping[str, str] = getattr(module, "configuration", _nothing)(options)
    session = _session(found.name, cluster, {**wanted, **settings})
    try:
        report = module.run(session, options, _say)
    finally:
        session.stop()
    for text in report.lines:
        line(text)
    return int(report.exit_code)


def _with_environment(options: dict[str, str], found: Job) -> dict[str, str]:
    """Add the name servers of $NAMESRV_ADDR where the job needs some and none are given."""
    servers = os.environ.get("NAMESRV_ADDR")
    known = {option.name for option in found.options}
    elsewhere = {"nameservers", "store", "lake", "input", "archive"} & options.keys()
    if servers and "nameServers" in known and not elsewhere:
        return {**options, "nameservers": servers}
    return options


def _nothing(_: Mapping[str, str]) -> dict[str, str]:
    return {}


def _say(text: str) -> None:
    sys.stderr.write(f"  {text}\n")
    sys.stderr.flush()


def _help(found: Job) -> None:
    line(f"roquet pipeline run {found.name}: {found.doc}\n")
    rows = [[f"--{it.name}", it.default or "-", it.doc] for it in found.options]
    table(["option", "default", "meaning"], rows)
    line(f"\nexit codes: {found.codes}, 2 wrong usage")


def _session(name: str, cluster: Cluster, settings: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession  # noqa: PLC0415  (slow to import)

    if cluster.connect is not None:
        return _connected(cluster.connect, settings)
    builder: Any = SparkSession.builder
    builder = builder.appName(f"roquet {name}")
    if cluster.master is not None:
        builder = builder.master(cluster.master)
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    alone = _ON_ONE_MACHINE if _is_alone(cluster) else {}
    for key, value in {**alone, **settings}.items():
        builder = builder.config(key, value)
    with _started(packed=cluster.archive is not None):
        session = builder.getOrCreate()
    if session.sparkContext.master.startswith("local") and _SHUFFLES not in settings:
        # The default of 200 is for clusters: on one machine each shuffle would pay for 200 tasks.
        session.conf.set(_SHUFFLES, str(2 * (os.cpu_count() or 1)))
    session.sparkContext.setLogLevel("ERROR")
    return session


def _connected(url: str, settings: Mapping[str, str]) -> Any:
    """Return a session over Spark Connect. Raises UsageError for a setting of the server's own."""
    from pyspark.errors import PySparkException  # noqa: PLC0415  (slow to import)
    from pyspark.sql import SparkSession  # noqa: PLC0415

    session = SparkSession.builder.remote(url).getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    for key, value in settings.items():
        try:
            session.conf.set(key, value)
        except PySparkException as error:
            why = str(error).strip().splitlines()[0][:200]
            raise UsageError(f"{key} cannot be set over Spark Connect: {why}") from error
    return session


def _is_alone(cluster: Cluster) -> bool:
    """Tell whether Spark will run in this process only, and nobody else has chosen a master."""
    if cluster.master is None:
        return not {"PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "MASTER"} & set(os.environ)
    return cluster.master.startswith("local")


@contextlib.contextmanager
def _started(*, packed: bool) -> Generator[None]:
    """Choose the Python of drivers and workers while Spark starts.

    Spark calls the Python of a source by one name on the driver and on all workers. With an archive
    that is a path below the folder that each of them runs in, so Spark starts in one that has it.
    """
    if not packed:
        # Workers have to be the same Python as the driver, or they lack our modules.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        yield
        return
    name = f"./{FOLDER}/bin/python"
    os.environ["PYSPARK_PYTHON"] = name
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Needed as long as Spark runs, and that is as long as this process does.
    folder = tempfile.TemporaryDirectory(prefix="roquet-pipeline-")
    atexit.register(folder.cleanup)
    start = Path(folder.name, name)
    start.parent.mkdir(parents=True)
    start.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    start.chmod(0o755)
    with contextlib.chdir(folder.name):
        yield
