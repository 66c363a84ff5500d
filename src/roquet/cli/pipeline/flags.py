"""Flags of `roquet pipeline`: the jobs and their options come from the jobs' own tables."""

from __future__ import annotations

import argparse
from typing import Any

_ABOUT = """\
Run a job over messages on Spark. It runs on this machine unless --master, in
front of the job, names a cluster.

'roquet pipeline jobs' lists the jobs, 'roquet pipeline run JOB --help' the
options of one."""

_PACK = """\
Write an archive for a Spark cluster's workers: this package with its compiled
module, and what it needs besides Spark. Workers need a Python of this version."""


def add(commands: Any) -> None:
    """Add the command."""
    pipeline = commands.add_parser("pipeline", help="jobs over messages, on Spark")
    verbs = pipeline.add_subparsers(title="commands", metavar="COMMAND", required=True)
    jobs = verbs.add_parser("jobs", help="list the jobs", description="List the jobs.")
    jobs.set_defaults(run=_run_jobs)
    run = verbs.add_parser("run", help="run a job", description=_ABOUT)
    run.add_argument(
        "--master",
        metavar="URL",
        help="a Spark cluster (local[*]), or sc://HOST:PORT for Spark Connect",
    )
    run.add_argument(
        "--archive", metavar="FILE", help="what `pack` wrote, for workers of a cluster"
    )
    run.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting of Spark, may be given several times",
    )
    run.add_argument("job", metavar="JOB")
    run.add_argument("words", metavar="--option value", nargs=argparse.REMAINDER)
    run.set_defaults(run=_run_job)
    script = verbs.add_parser("script", help="where the script for spark-submit is")
    script.set_defaults(run=_run_script)
    pack = verbs.add_parser("pack", help="write an archive for a cluster", description=_PACK)
    pack.add_argument("archive", metavar="FILE.tar.gz")
    pack.add_argument("--python", metavar="PATH", help="the interpreter on the workers (this one)")
    pack.set_defaults(run=_run_pack)


def _run_jobs(_: argparse.Namespace) -> int:
    from roquet.cli.pipeline.jobs import jobs  # noqa: PLC0415

    return jobs()


def _run_job(options: argparse.Namespace) -> int:
    from roquet.cli.pipeline.jobs import Cluster, run  # noqa: PLC0415

    cluster = Cluster(options.master, options.archive, tuple(options.conf))
    return run(options.job, options.words, cluster)


def _run_script(_: argparse.Namespace) -> int:
    from roquet.cli.pipeline.jobs import script  # noqa: PLC0415

    return script()


def _run_pack(options: argparse.Namespace) -> int:
    from roquet.cli.pipeline.jobs import pack  # noqa: PLC0415

    return pack(options.archive, options.python)
