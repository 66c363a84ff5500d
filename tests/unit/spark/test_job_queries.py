"""Values of SQL texts become literals that nothing can break out of."""

from __future__ import annotations

import types
from typing import Any, cast

import pytest
from pyspark.errors import PySparkAttributeError

from roquet.base.errors import UsageError
from roquet.spark.jobs.shared.connect import need_context
from roquet.spark.jobs.shared.queries import CORES_UNKNOWN, bound, cores


def test_values_stand_where_their_names_were() -> None:
    text = "select :at, a[:key], b::string, ':most', x:y from {rows} where :begin < 0 limit :most"
    given = {"at": 1_763_000_000_000, "key": "a'b", "begin": -1, "most": 3, "y": 1}
    assert bound(text, given) == (
        "select 1763000000000, a[cast(X'612762' as string)], b::string, '3', x:y"
        " from {rows} where -1 < 0 limit 3"
    )
    assert bound(":key :keys", {"key": "", "keys": None}) == "'' null"
    assert bound("select :other", {}) == "select :other"


def test_no_string_is_read_as_sql() -> None:
    for text in ("'; drop table x; --", "\\' or 1=1", "{rows}", ":key", "é\n\0"):
        (made,) = [bound(":key", {"key": text})]
        assert set(made) <= set("cast(X' string)0123456789abcdef")
        assert bytes.fromhex(made.split("'")[1]).decode() == text


def test_other_values_are_refused() -> None:
    for value in (True, 1.5, b"x", ["a"]):
        with pytest.raises(TypeError, match="no literal for"):
            bound(":key", {"key": value})


class Connected:
    """What a session over Spark Connect says of its context."""

    @property
    def sparkContext(self) -> Any:  # noqa: N802  (its name in PySpark)
        raise PySparkAttributeError(
            errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "x"}
        )


def test_jobs_that_need_a_jvm_are_refused_over_spark_connect() -> None:
    need_context(cast("Any", types.SimpleNamespace(sparkContext=object())), "replay")
    with pytest.raises(UsageError, match="the job replay cannot run over Spark Connect"):
        need_context(cast("Any", Connected()), "replay")


def test_a_session_of_spark_connect_is_taken_for_a_few_cores() -> None:
    classic = types.SimpleNamespace(sparkContext=types.SimpleNamespace(defaultParallelism=6))
    assert cores(cast("Any", classic)) == 6
    assert cores(cast("Any", Connected())) == CORES_UNKNOWN
