"""One table over a lake and its live topics: what is archived, and what has come since.

Invariant: rows of the lake and the offsets at which the live part of each queue begins come from
one reading of the catalog, so no message is there twice and none is left out. Queues that the lake
does not know are read from their beginning.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from roquet.base.errors import UsageError
from roquet.spark.jobs.archiving import topics as lake_topics
from roquet.spark.jobs.bodies import column
from roquet.spark.jobs.bodies.column import Bodies
from roquet.spark.jobs.lake import Lake
from roquet.spark.jobs.storage import schemas
from roquet.spark.offsets import QueueKey, to_json
from roquet.spark.options import SourceOptions
from roquet.spark.schema import COLUMNS
from roquet.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from roquet.spark.jobs.storage.summary import Part

_FIXED: Final = (
    "startingoffsets",
    "startingtimestamp",
    "endingtimestamp",
    "endingoffsets",
    "failondataloss",
    "columns",
    "includebody",
    "includeheaders",
    "tags",
    "sql",
    "assign",
)
"""Options of the source that would make the two parts of the table differ."""


def read(
    spark: SparkSession,
    lake: str,
    options: Mapping[str, str],
    *,
    kind: str = "parquet",
    body: str = "raw",
    schema: str = "",
    message: str = "",
    schemas: str = "",
) -> DataFrame:
    """Return each message of some topics once: from the lake, and what came since from the brokers.

    `options` are those of the format `roquet`: `nameServers`, and `subscribe` or
    `subscribePattern`. A lake with parsed bodies needs `body`, `schema` and `message` as `archive`
    has them. `part` is null for live messages. The live end is the moment of the first action.

    Raises UsageError, LakeError when a topic was made anew since; an action raises DataLoss when
    a topic has lost messages that are not archived.
    """
    fixed = [name for name in options if name.lower() in _FIXED]
    if fixed:
        raise UsageError(
            f"{', '.join(sorted(fixed))}: the lake decides where the live part begins, and both"
            " have all columns and messages; choose with select and where"
        )
    wanted = SourceOptions.parse(options, streaming=False)
    register(spark)
    held = Lake(spark, lake, kind)

    def has(part: Part) -> bool:
        return wanted.topics.names_topic(part.topic)

    rows, every = held.snapshot(has)
    ends = {QueueKey(*it): end for it, end in every.items() if wanted.topics.names_topic(it.topic)}
    if ends:
        lake_topics.check(held, ends, options)
    starting = json.dumps(to_json(ends)["q"]) if ends else "earliest"
    reader = spark.read.format("roquet").options(**options)
    reader = reader.option("startingOffsets", starting).option("failOnDataLoss", "true")
    live = _shaped(
        reader.load().select(*COLUMNS), rows, Bodies.parse(body, schema, message, schemas)
    )
    return rows.unionByName(live)


def _shaped(live: DataFrame, rows: DataFrame, bodies: Bodies) -> DataFrame:
    """Return live rows with the columns of the lake's. Raises UsageError."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (slow to import)

    value = None if bodies.inferred else bodies.column()
    if bodies.inferred and schemas.VALUE in rows.columns:
        value = column.json_column(schemas.struct(rows.schema[schemas.VALUE].dataType))
    if value is None and schemas.VALUE in rows.columns:
        raise UsageError("the lake has parsed bodies: give body and schema as archive has them")
    if value is not None:
        live = live.withColumn(schemas.VALUE, value)
    live = live.withColumn("day", f.to_date("storeTimestamp"))
    live = live.withColumn("part", f.lit(None).cast("string"))
    if value is not None and schemas.VALUE not in rows.columns:
        raise UsageError("the lake has no parsed bodies: leave out body and schema")
    wanted = schemas.merged(rows.schema, live.schema)
    if schemas.changes(rows.schema, wanted):
        raise UsageError(
            "the schema has what the lake does not have: "
            + "; ".join(schemas.changes(rows.schema, wanted))[:1000]
        )
    return schemas.as_newest(live, rows.schema)
