"""Values as bodies: `send("orders", {"id": 7}, codec=Json())`, and `received.value` of consumers.

A codec is anything with `encode` and `decode`. What these need besides Roquet is imported when one
is made; an error names it where it is missing.
"""

from __future__ import annotations

from roquet.client.codecs.avro import Avro
from roquet.client.codecs.base import Codec, decoded, encoded
from roquet.client.codecs.plain import Json, Msgspec
from roquet.client.codecs.protobuf import Protobuf

__all__ = ["Avro", "Codec", "Json", "Msgspec", "Protobuf", "decoded", "encoded"]
