"""Users and policies as slaves take them from their master: pieces of one compressed whole.

A snapshot is the content of the users' file, with its length and checksum, so that a slave can tell
a whole one from half of one; its digest names it. A slave says which digest it has and is given the
first piece of what is in force, or nothing where that is the same. The further pieces are of the
snapshot that it began with, for as long as that one is kept: one at a time is.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Protocol

from roquet.auth.keeping.store import SIZE_MAX, decode, encode
from roquet.base.limits import MIB
from roquet.service.slices import write_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.auth.directory import Directory

PIECE_SIZE = 2 * MIB
HAVE = "have"
"""Field of a request: the digest of what the slave has."""
DIGEST, OFFSET, SIZE = "digest", "offset", "size"
"""Fields: whose piece it is, where it begins, and how many bytes all pieces have together."""


class Source(Protocol):
    """Has the users in force."""

    @property
    def now(self) -> Directory:
        """The users and policies as they are now."""
        ...


class Snapshots:
    """The snapshot of what is in force: made when it is asked for, kept until another one is."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._of: Directory | None = None
        self._digest = ""
        self._data = b""

    async def digest(self) -> str:
        """Return the digest of what is in force."""
        while self._of is not (directory := self._source.now):
            items = len(directory.users) + len(directory.acls)
            # Many bytes are written in a thread; what is in force may change meanwhile.
            made = await write_body(lambda it=directory: _packed(it), items)  # type: ignore[misc]
            self._of, self._digest, self._data = directory, made[:64].decode(), made[64:]
        return self._digest

    async def answer(self, ext: Mapping[str, str]) -> tuple[dict[str, str], bytes]:
        """Return the fields and the body for a slave that says what it has, or which piece.

        Raises ValueError for an offset that is no number. A piece of a snapshot that is kept no
        more is answered by the first one of what is in force.
        """
        wanted, offset = ext.get(DIGEST, ""), int(ext.get(OFFSET, "0"))
        if not wanted or wanted != self._digest or not 0 <= offset <= len(self._data):
            offset = 0
            if await self.digest() == ext.get(HAVE):
                return {DIGEST: self._digest, OFFSET: "0", SIZE: "0"}, b""
        fields = {DIGEST: self._digest, OFFSET: str(offset), SIZE: str(len(self._data))}
        return fields, self._data[offset : offset + PIECE_SIZE]


def unpacked(digest: str, data: bytes) -> Directory:
    """Return the users and policies of a snapshot. Raises ValueError unless it is whole."""
    reader = zlib.decompressobj()
    try:
        content = reader.decompress(data, SIZE_MAX + 1)
    except zlib.error as error:
        raise ValueError(f"a snapshot of users cannot be unpacked: {error}") from None
    if not reader.eof or hashlib.sha256(content).hexdigest() != digest:
        raise ValueError("a snapshot of users is not whole")
    return decode(content)


def _packed(directory: Directory) -> bytes:
    """Return the digest in hex (64 bytes) and the compressed content."""
    content = encode(directory)
    return hashlib.sha256(content).hexdigest().encode() + zlib.compress(content, 1)
