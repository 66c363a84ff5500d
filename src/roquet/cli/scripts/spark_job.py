"""A job as a script: `spark-submit [Spark's options] spark_job.py JOB [options]`.

In a folder of its own: Python looks for modules beside a script first.
"""

from __future__ import annotations

import sys

from roquet.cli.app import run

if __name__ == "__main__":
    sys.exit(run(["pipeline", "run", *sys.argv[1:]]))
