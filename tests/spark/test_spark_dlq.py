"""The job `dlq` in a real Spark, over a lake of dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import UsageError
from roquet.spark.jobs import dlq
from roquet.spark.schema import COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark


def test_dead_letters_of_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    columns = (
        "{} as topic, 'b' as brokerName, 0 as queueId, id as queueOffset, id as physicalOffset,"
        " 100 as storeSize, concat('M', id) as msgId, {} as uniqKey, 'k' as keys, 'g' as tags,"
        " {} as properties, timestamp_seconds(1000 + id) as bornTimestamp,"
        " timestamp_seconds(1000 + {} + id) as storeTimestamp, 'h:1' as bornHost,"
        " 'h:2' as storeHost, {} as reconsumeTimes, 0 as sysFlag, {} as bodyCRC,"
        " cast('x' as binary) as body"
    )

    def rows(topic: str, count: int, *expressions: str) -> DataFrame:
        unique, origin, after, tries, crc = expressions
        origins = f"map('RETRY_TOPIC', 'Old', 'ORIGIN_MESSAGE_ID', {origin}, 'why', 'full disk')"
        text = columns.format(f"'{topic}'", unique, origins, after, tries, crc)
        return spark.range(count).selectExpr(*_parts(text))

    # Three letters: one with its original, one whose original is another body, one without a
    # unique key, whose original is known by its id; and the first is dead a second time.
    letter = rows(
        "%DLQ%g", 3, "if(id = 2, '', concat('U', id))", "concat('M', id)", "50", "17", "7"
    )
    twice = rows("%DLQ%g", 1, "'U0'", "'M0'", "60", "17", "7")
    origin = rows("Old", 3, "if(id = 2, '', concat('U', id))", "''", "0", "0", "if(id = 1, 8, 7)")
    retry = rows("%RETRY%g", 1, "'U0'", "'M0'", "20", "1", "7")
    other = rows("%DLQ%other", 1, "'U9'", "'M9'", "50", "1", "7")
    lake = f"{tmp_path}/lake"
    letter.union(twice).union(retry).union(other).write.parquet(lake)
    # As `archive` puts a topic into its lake: with columns that are folders.
    days = origin.selectExpr("*", "to_date(storeTimestamp) as day", "'b1' as part")
    days.write.partitionBy("topic", "day", "part").parquet(f"{tmp_path}/originals")
    given = {"lake": lake, "groups": "g", "out": f"{tmp_path}/out", "causeProperty": "why"}
    report = dlq.run(spark, {**given, "originals": f"{tmp_path}/originals"}, lambda _: None)
    assert report.lines == (
        "g Old: 4 full disk, up to 16 retries, 0 originals gone",
        f"3 messages to send again in {tmp_path}/out/resubmit",
    )
    letters = spark.read.parquet(f"{tmp_path}/out/letters").orderBy("storeTimestamp").collect()
    assert [(row.uniqKey, row.original) for row in letters] == [
        ("U0", "found"),
        ("U1", "changed"),
        ("", "found"),
        ("U0", "found"),
    ]
    (attempt,) = spark.read.parquet(f"{tmp_path}/out/attempts").collect()
    assert (attempt.group, attempt.identity, attempt.attempt) == ("g", "U0", 1)
    list_of = spark.read.parquet(f"{tmp_path}/out/resubmit").collect()
    assert sorted(row.msgId for row in list_of) == ["M0", "M1", "M2"]
    assert {tuple(row.properties.items()) for row in list_of} == {(("why", "full disk"),)}


def test_folders_that_hold_no_messages(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        dlq.run(spark, {"lake": f"{tmp_path}/none", "out": f"{tmp_path}/o"}, lambda _: None)
    spark.range(1).write.parquet(f"{tmp_path}/other")
    with pytest.raises(UsageError, match=f"no column {COLUMNS[0]}"):
        dlq.run(spark, {"lake": f"{tmp_path}/other", "out": f"{tmp_path}/o"}, lambda _: None)


def _parts(text: str) -> list[str]:
    """Split a list of columns at commas that are in no brackets."""
    made, depth = [""], 0
    for sign in text:
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            made.append("")
        else:
            made[-1] += sign
    return made
