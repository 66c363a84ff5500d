"""What brokers acknowledged: one line a message, written when its acknowledgement came."""

from __future__ import annotations

import dataclasses
import zlib
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAD = b"broker,queue,offset,crc,size\n"


class LedgerError(Exception):
    """The ledger is not what the producer writes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One acknowledged message."""

    broker: str
    queue: int
    offset: int
    crc: int
    """CRC-32 of the body that was sent."""
    size: int


class Ledger:
    """Appends entries; each has left the process when `append` returns."""

    def __init__(self, path: Path) -> None:
        """Begin a new file."""
        self._file = path.open("xb", buffering=0)
        self._file.write(HEAD)

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()

    def append(self, broker: str, queue: int, offset: int, body: bytes) -> None:
        """Write that `body` is stored at `offset`."""
        self._file.write(f"{broker},{queue},{offset},{zlib.crc32(body)},{len(body)}\n".encode())


def read(path: Path) -> Iterator[Entry]:
    """Yield the entries. Raises LedgerError."""
    with path.open("rb") as source:
        if source.readline() != HEAD:
            raise LedgerError(f"{path} is no ledger")
        for number, line in enumerate(source, 2):
            parts = line.rstrip(b"\n").split(b",")
            if len(parts) != 5 or not line.endswith(b"\n"):
                raise LedgerError(f"{path}: line {number} is broken")
            queue, offset, crc, size = (int(part) for part in parts[1:])
            yield Entry(parts[0].decode(), queue, offset, crc, size)
