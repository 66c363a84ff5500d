"""Reads commit-log files by `roquet-log`, rebuilds a store of them and compares both."""

from __future__ import annotations

import errno
import socket
import sys

from pyspark.sql import SparkSession

from roquet.spark.jobs import audit, rebuild
from roquet.spark.source import register

SMALL = {"mappedFileSizeConsumeQueue": "20000", "maxHashSlotNum": "500", "maxIndexNum": "2000"}


def say(text: str) -> None:
    """Print a line that the test looks for."""
    sys.stdout.write(text + "\n")


def main(folder: str) -> int:
    """Return the first exit code that is not 0; 99 when there is a network."""
    with socket.socket() as probe:
        if probe.connect_ex(("192.0.2.1", 9876)) != errno.ENETUNREACH:
            return 99
    dead, new = f"{folder}/dead", f"{folder}/new"
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    try:
        register(spark)
        log = spark.read.format("roquet-log").option("columns", "queueOffset").load(dead)
        say(f"{log.count()} records")
        for report in (
            rebuild.run(spark, {"store": dead, "out": new, **SMALL}, say),
            audit.run(
                spark,
                {"left": f"store:{dead}", "right": f"store:{new}", "out": f"{folder}/audit"},
                say,
            ),
        ):
            say("\n".join(report.lines))
            if report.exit_code:
                return report.exit_code
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
