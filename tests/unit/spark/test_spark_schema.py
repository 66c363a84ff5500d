"""The native decoder's batches have exactly the schema that Spark is told."""

from __future__ import annotations

from typing import Any

import pytest

from roquet import roquet_native as native
from roquet.spark.schema import COLUMNS, ddl

pa: Any = pytest.importorskip("pyarrow")

_ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


@pytest.mark.parametrize("columns", [COLUMNS, ("queueId", "body"), ("properties",)])
def test_native_batches_have_this_schema(columns: tuple[str, ...]) -> None:
    batch = pa.record_batch(native.records_to_arrow([], "broker-a", columns=columns))
    told = [item.strip().split(" ", 1) for item in ddl(columns).split(", ")]
    assert batch.schema.names == [name.strip("`") for name, _ in told]
    assert batch.schema.types == [_ARROW[kind] for _, kind in told]
