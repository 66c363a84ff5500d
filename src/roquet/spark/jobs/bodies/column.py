"""Bodies of messages parsed into a column, by a given schema."""

from __future__ import annotations

import base64
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from roquet.base.errors import UsageError
from roquet.spark.jobs.bodies import avro, avro_writers, json_reasons, shapes
from roquet.spark.jobs.bodies.avro import AvroReader
from roquet.spark.jobs.bodies.protobuf import ProtobufReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from roquet.spark.jobs.bodies.shapes import Reader

SCHEMA_MAX: Final = 1 << 20
_BAD: Final = "_roquet_unreadable"
"""The field in which Spark's parser keeps a text that it could not parse as a whole."""
_OBJECT: Final = r"^\s*\{"


class Bodies(NamedTuple):
    """What bodies are: the kind, and by what they are read.

    `schema` is Spark DDL for json, a schema in JSON for avro, a set of descriptors in base64 for
    protobuf; `message` is the full name of protobuf's message. Bodies of avro that name their own
    schema have it in `writers`, by its id, or in `registry`, an address.
    """

    kind: str
    schema: str = ""
    message: str = ""
    writers: tuple[tuple[int, str], ...] = ()
    registry: str = ""

    @classmethod
    def parse(
        cls, kind: str, schema: str | None, message: str | None, schemas: str | None = None
    ) -> Bodies:
        """Check what was given; a schema is a text or the path of a file.

        `schemas` is a folder of the schemas that bodies name, or the address of a registry. Raises
        UsageError.
        """
        if schemas and kind != "avro":
            raise UsageError("schemas is for body avro")
        if kind == "raw" and schema:
            raise UsageError("schema is for body json, avro or protobuf")
        if kind != "protobuf" and message:
            raise UsageError("message is for body protobuf")
        if kind == "raw":
            return cls(kind)
        if kind == "json" and not schema:
            return cls(kind)
        if not schema:
            raise UsageError(f"body {kind} needs a schema")
        if kind != "protobuf":
            found = cls(kind, _text(schema), "", *_writers(schemas))
        elif not message:
            raise UsageError("body protobuf needs a message: the full name of its type")
        else:
            found = cls(kind, base64.b64encode(_bytes(schema)).decode(), message)
        if kind != "json":
            _reader(found)
        return found

    @property
    def inferred(self) -> bool:
        """Whether bodies themselves say which fields there are: `found` looks for them."""
        return self.kind == "json" and not self.schema

    def column(self) -> Column | None:
        """Return the column `value` of the column `body`; None for raw bodies.

        Where a body is not as the schema says, it is null: `reason` says why. Raises UsageError,
        and Spark's ParseException for the schema of json.
        """
        from pyspark.sql import functions as f  # noqa: PLC0415  (slow to import)

        if self.kind == "raw":
            return None
        if self.kind == "json":
            return _json(self.schema)
        from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415

        def values(column: Any) -> Any:
            return shapes.values(_reader(self), column.to_pylist())

        made = _arrow(values, from_arrow_type(_reader(self).shape.type))
        return cast("Column", made(f.col("body")))

    def reason(self, value: DataType) -> Column:
        """Return why the column `body` is none, a text; `value` is the type of what it should be.

        For bodies that `column` has made null.
        """
        import pyarrow as pa  # noqa: PLC0415  (slow to import)
        from pyspark.sql import functions as f  # noqa: PLC0415
        from pyspark.sql.types import StringType  # noqa: PLC0415

        def texts(column: Any) -> Any:
            bodies = column.to_pylist()
            if self.kind == "json":
                return pa.array([json_reasons.why(it, value) for it in bodies], pa.string())
            return pa.array([shapes.why(_reader(self), it) for it in bodies], pa.string())

        return cast("Column", _arrow(texts, StringType())(f.col("body")))


def found(rows: DataFrame) -> StructType:
    """Return the fields that the objects in JSON bodies have, and what holds all their values.

    A field whose values are null alone is none; one with values of several kinds is a string.
    """
    from pyspark.sql.types import StructType  # noqa: PLC0415  (slow to import)

    texts = rows.select(_text_of_body().alias("text"))
    texts = texts.where(texts.text.rlike(_OBJECT))
    read = rows.sparkSession.read.json(
        texts, columnNameOfCorruptRecord=_BAD, dropFieldIfAllNull=True
    )
    return StructType([it for it in read.schema.fields if it.name != _BAD])


def json_column(wanted: StructType) -> Column:
    """Return the column `body` as JSON; one that is no object, or has another type, is null."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (slow to import)

    # Spark takes the first item of a list of objects for one.
    return f.when(_text_of_body().rlike(_OBJECT), _whole(wanted))


# --- inside --------------------------------------------------------------------------------------


def _json(schema: str) -> Column:
    from pyspark.sql.types import DataType, StructType  # noqa: PLC0415  (slow to import)

    wanted = DataType.fromDDL(schema)
    if isinstance(wanted, StructType):
        return json_column(wanted)
    return _whole(wanted)


def _whole(wanted: DataType) -> Column:
    """Return the column `body` as JSON of a type; null if it is not that, or more than one value.

    Spark reads the first value of a text and passes over what follows it, be it another value: so
    the body is read within an object whose last field has to be reached, with no other between.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  (slow to import)
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType  # noqa: PLC0415

    marked = StructType(
        [
            StructField("value", wanted),
            StructField("end", IntegerType()),
            StructField(_BAD, StringType()),
        ]
    )
    text = f.concat(f.lit('{"value":'), _text_of_body(), f.lit(',"end":0}'))
    found = f.from_json(text, marked, {"columnNameOfCorruptRecord": _BAD})
    right = (found.getField("end") == 0) & found.getField(_BAD).isNull()
    # Not `1,"more":2`. It knows no NaN, which is a number here, and has no keys of such a text.
    keys = f.size(f.json_object_keys(text))
    right &= keys.isNull() | (keys < len(marked.fields))
    return f.when(right, found.getField("value"))


def _text_of_body() -> Column:
    """Return a body as text; null where it is no UTF-8, and so no JSON."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.try_validate_utf8(f.col("body").cast("string"))


def _arrow(function: Callable[[Any], Any], kind: DataType) -> Any:
    """Return a function of Spark that takes and gives an Arrow array."""
    import pyarrow as pa  # noqa: PLC0415
    from pyspark.sql.pandas import functions  # noqa: PLC0415

    # Spark tells by the hints what kind of function it is, and has no use for their names.
    function.__annotations__ = {"column": pa.Array, "return": pa.Array}
    hinted: Any = functions
    return hinted.arrow_udf(function, kind)


@functools.lru_cache(maxsize=8)
def _reader(bodies: Bodies) -> Reader:
    """Return what reads bodies; a task makes it once. Raises UsageError."""
    if bodies.kind == "avro":
        return AvroReader(bodies.schema, _find(bodies))
    return ProtobufReader(base64.b64decode(bodies.schema), bodies.message)


def _find(bodies: Bodies) -> Callable[[int], str] | None:
    if bodies.registry:
        return avro_writers.Registry(bodies.registry)
    return avro_writers.Known(dict(bodies.writers)) if bodies.writers else None


def _writers(given: str | None) -> tuple[tuple[tuple[int, str], ...], str]:
    """Return the schemas of a folder, and the address of a registry. Raises UsageError."""
    if not given:
        return (), ""
    if "://" in given:
        return (), avro_writers.registry_url(given)
    found = avro_writers.from_folder(given)
    for number, text in found:
        try:
            avro.parsed(text)
        except UsageError as error:
            raise UsageError(f"schemas: that of the id {number}: {error}") from error
    return found, ""


def _text(given: str) -> str:
    if "/" not in given or not Path(given).is_file():
        return given
    try:
        return _bytes(given).decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise UsageError(f"schema: {given[:200]} is no text in UTF-8") from error


def _bytes(given: str) -> bytes:
    path = Path(given)
    try:
        if path.stat().st_size > SCHEMA_MAX:
            raise UsageError(f"schema: {given[:200]} is larger than {SCHEMA_MAX} bytes")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"schema: {given[:200]} cannot be read: {error.strerror}") from error
