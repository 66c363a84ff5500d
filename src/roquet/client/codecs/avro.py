"""Avro without a container: the bare bytes of one value, by fastavro."""

from __future__ import annotations

import importlib
import io
from typing import TYPE_CHECKING, Any

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Avro:
    """Values of one schema. Bodies have no header: both sides know the writer's schema."""

    def __init__(
        self, schema: Mapping[str, object], *, reader: Mapping[str, object] | None = None
    ) -> None:
        """Take the writer's schema, as JSON is read; `reader` is what a consumer makes of it.

        Raises UsageError for a bad schema, and where fastavro is not installed.
        """
        try:
            self._avro: Any = importlib.import_module("fastavro")
        except ImportError as error:
            raise UsageError("the Avro codec needs fastavro: pip install fastavro") from error
        try:
            self._schema = self._avro.parse_schema(dict(schema))
            self._reader = None if reader is None else self._avro.parse_schema(dict(reader))
        except Exception as error:
            raise UsageError(f"the Avro schema cannot be used: {error}") from error

    def encode(self, value: object, /) -> bytes:
        """Return the body of a value that fits the schema."""
        out = io.BytesIO()
        self._avro.schemaless_writer(out, self._schema, value, strict=True)
        return out.getvalue()

    def decode(self, body: bytes, /) -> object:
        """Return the value. Raises ValueError when bytes are left."""
        data = io.BytesIO(body)
        value: object = self._avro.schemaless_reader(data, self._schema, self._reader)
        if data.tell() != len(body):
            raise ValueError(f"{len(body) - data.tell()} bytes too many")
        return value
