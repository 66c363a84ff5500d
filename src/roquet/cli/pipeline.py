"""`roquet pipeline`: lists jobs, checks their options, starts Spark, runs one."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from roquet.base.errors import UsageError
from roquet.cli.output import line, table
from roquet.spark.jobs.tables import JOBS, Job, given, job
from roquet.spark.option_table import Given

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NO_SPARK = "jobs need Spark: pip install 'roquet[spark]', and a Java 17"


def jobs() -> int:
    """Print the jobs."""
    table(["job", "what it does"], [[it.name, it.doc] for it in JOBS])
    return 0


def run(name: str, words: Sequence[str], master: str | None) -> int:
    """Run a job and return its exit code. Raises UsageError before Spark is started."""
    found = job(name)
    if {"-h", "--help"} & set(words):
        _help(found)
        return 0
    options = given(words, found.options)
    dry = Given(options, found.options).flag("dryRun")
    try:
        module = importlib.import_module(f"roquet.spark.jobs.{found.name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "roquet":
            raise
        raise UsageError(f"{error.name} is missing: {_NO_SPARK}") from error
    for text in module.plan(options):
        line(text)
    if dry and not getattr(module, "DRY_RUN_READS", False):
        return 0
    configuration: Mapping[str, str] = getattr(module, "configuration", _nothing)(options)
    session = _session(found.name, master, configuration)
    try:
        report = module.run(session, options, _say)
    finally:
        session.stop()
    for text in report.lines:
        line(text)
    return int(report.exit_code)


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


def _session(name: str, master: str | None, configuration: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession  # noqa: PLC0415  (slow to import)

    # Workers have to be the same Python as the driver, or they lack our modules.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    builder = builder.appName(f"roquet {name}")
    if master is not None:
        builder = builder.master(master)
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if master is None or master.startswith("local"):
        # The default of 200 is for clusters: on one machine each shuffle would pay for 200 tasks.
        tasks = str(2 * (os.cpu_count() or 1))
        builder = builder.config("spark.sql.shuffle.partitions", tasks)
        # Nobody else has to reach this Spark, and the machine may have no network at all.
        builder = builder.config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        builder = builder.config("spark.ui.enabled", "false")
        # A busy machine may take long to start a Python worker.
        builder = builder.config("spark.python.authenticate.socketTimeout", "120s")
    for key, value in configuration.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
