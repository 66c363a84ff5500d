"""Bodies in Avro whose schemas change, from a registry, in `archive` and `cdc` in a real Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from avro_registry import answer, body, registry
from lake_harness import World
from pyspark_roquet import whole_topic
from roquet.client import Message
from roquet.spark.jobs import cdc
from roquet.spark.jobs.archiving import quarantine

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]


def record(*fields: tuple[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


FIRST = record(("id", "int"), ("who", "string"))
SECOND = record(("id", "long"), ("customer", "string"), ("total", "double"))
"""What a producer writes later: a wider number, another name, a field more."""
THIRD = record(("id", "string"), ("who", "string"))
"""What does not fit any more."""


def test_archive_follows_schemas_of_a_registry_and_keeps_what_does_not_fit(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path)

    def send(*bodies: bytes) -> None:
        world.running.send(world.topic, [Message(world.topic, it) for it in bodies], 0)

    reader = record(("id", "long"), ("customer", "string"))
    reader["fields"][1]["aliases"] = ["who"]
    reader["fields"].append({"name": "total", "type": "double", "default": -1.0})
    pages = {"/schemas/ids/1": answer(FIRST), "/schemas/ids/3": answer(THIRD)}
    with registry(pages) as (url, _):
        given = {"body": "avro", "schema": json.dumps(reader), "schemas": url}
        send(body(1, FIRST, {"id": 1, "who": "a"}), body(3, THIRD, {"id": "x", "who": "b"}))
        send(body(4, SECOND, {"id": 2**40, "customer": "c", "total": 0.5}))
        assert world.archive(**given).lines[1].startswith("2 bad bodies")
        pages["/schemas/ids/2"] = (503, b"")
        send(body(2, SECOND, {"id": 5, "customer": "d", "total": 1.5}))
        with pytest.raises(PySparkException, match=r"does not answer as one \(status 503\)"):
            world.archive(**given)
        pages["/schemas/ids/2"] = answer(SECOND)
        assert world.archive(**given).lines == ("1 messages archived in 1 micro-batches",)
        topic = {"nameServers": running.name_servers, "subscribe": world.topic}
        send(body(1, FIRST, {"id": 6, "who": "e"}))
        rows = whole_topic(spark, str(world.out), topic, **given).orderBy("queueOffset").collect()
    assert [row.value and tuple(row.value) for row in rows] == [
        (1, "a", -1.0),
        None,
        None,
        (5, "d", 1.5),
        (6, "e", -1.0),
    ]
    bad = quarantine.read(world.lake).orderBy("queueOffset").collect()
    assert [it.queueOffset for it in bad] == [1, 2]
    assert "string is not long" in bad[0].error
    assert "the registry has no schema 4" in bad[1].error


def test_cdc_follows_schemas_of_a_folder_and_keeps_what_does_not_fit(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    def of(row: dict[str, Any]) -> dict[str, Any]:
        fields = [("before", ["null", row]), ("after", ["null", row["name"]]), ("op", "string")]
        return record(*fields, name="Envelope")

    world = World(spark, running, tmp_path)
    folder = tmp_path / "schemas"
    folder.mkdir()
    first, third = of(FIRST), of(THIRD)
    wide = record(("id", "long"), ("who", "string"))
    wide["fields"].append({"name": "total", "type": ["null", "double"], "default": None})
    for number, schema in ((1, first), (2, of(wide)), (3, third)):
        (folder / f"{number}.avsc").write_text(json.dumps(schema))
    rows: list[tuple[int, Any, dict[str, Any]]] = [
        (1, first, {"id": 1, "who": "a"}),
        (2, of(wide), {"id": 1, "who": "b", "total": 2.5}),
        (1, first, {"id": 2, "who": "c"}),
        (3, third, {"id": "x", "who": "d"}),
        (4, first, {"id": 3, "who": "e"}),
    ]
    bodies = [body(n, it, {"before": None, "after": row, "op": "c"}) for n, it, row in rows]
    running.send(world.topic, [Message(world.topic, it) for it in bodies], 0)
    given = {"nameServers": running.name_servers, "subscribe": world.topic, "key": "id"}
    given |= {"body": "avro", "schema": json.dumps(of(wide)), "schemas": str(folder)}
    said: list[str] = []
    report = cdc.run(spark, {**given, "out": str(tmp_path / "table")}, said.append)
    assert report.exit_code == 1
    found = {tuple(it)[:3] for it in cdc.table(spark, str(tmp_path / "table")).collect()}
    assert found == {(1, "b", 2.5), (2, "c", None)}
    assert [it.rpartition(" is no change: ")[2][:40] for it in said if "is no change" in it] == [
        "SchemaResolutionError: Schema mismatch: ",
        "ValueError: schema 4 is not in the folde",
    ]
