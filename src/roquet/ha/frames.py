"""The bytes between a master and its slave (spec: ha §1.1): no names, no versions, two shapes.

A slave writes where its log ends, 8 bytes. A master writes the offset of a piece of its log, the
piece's length, and the piece; a length of 0 is a heartbeat. All numbers are big-endian.
"""

from __future__ import annotations

import struct

from roquet.base.errors import RoquetError

REPORT = struct.Struct(">q")
"""Where the slave's log ends."""
HEADER = struct.Struct(">qi")
"""Offset and length of the bytes that follow."""


class PeerFault(RoquetError):  # noqa: N818
    """The other side broke the protocol, or has another log: the connection has to be closed."""
