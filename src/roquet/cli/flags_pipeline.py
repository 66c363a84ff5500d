"""Flags of `roquet pipeline`: the jobs and their options come from the jobs' own tables."""

from __future__ import annotations

import argparse
from typing import Any

_ABOUT = """\
Run a job over messages on Spark. It runs on this machine unless --master, in
front of the job, names a cluster.

'roquet pipeline jobs' lists the jobs, 'roquet pipeline run JOB --help' the
options of one."""


def add(commands: Any) -> None:
    """Add the command."""
    pipeline = commands.add_parser("pipeline", help="jobs over messages, on Spark")
    verbs = pipeline.add_subparsers(title="commands", metavar="COMMAND", required=True)
    jobs = verbs.add_parser("jobs", help="list the jobs", description="List the jobs.")
    jobs.set_defaults(run=_run_jobs)
    run = verbs.add_parser("run", help="run a job", description=_ABOUT)
    run.add_argument("--master", metavar="URL", help="a Spark cluster (local[*])")
    run.add_argument("job", metavar="JOB")
    run.add_argument("words", metavar="--option value", nargs=argparse.REMAINDER)
    run.set_defaults(run=_run_job)


def _run_jobs(_: argparse.Namespace) -> int:
    from roquet.cli.pipeline import jobs  # noqa: PLC0415

    return jobs()


def _run_job(options: argparse.Namespace) -> int:
    from roquet.cli.pipeline import run  # noqa: PLC0415

    return run(options.job, options.words, options.master)
