"""Users and policies taken from a server that has them, in pieces (`snapshots`). Pure.

Invariant: what is returned is whole, as its digest says, or there is an error; nothing of half a
snapshot is ever seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from roquet.auth.keeping.snapshots import DIGEST, HAVE, OFFSET, SIZE, unpacked
from roquet.auth.keeping.store import SIZE_MAX
from roquet.service.slices import read_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from roquet.auth.directory import Directory
    from roquet.protocol.command import Command

    Ask = Callable[[dict[str, str]], Awaitable[Command | None]]

RESTARTS_MAX = 3
"""How often a copy begins anew in one go because the server's users changed meanwhile."""


class Fetched(NamedTuple):
    """What a server has."""

    digest: str
    directory: Directory | None
    """None: what the caller has already."""


async def fetch(ask: Ask, have: str) -> Fetched | None:
    """Return a server's users and policies; None from a server that keeps none.

    `have` is the digest of what the caller has. `ask` puts a request for users (7003) with these
    fields and returns the answer, None for "keeps none". Raises what `ask` raises, and ValueError.
    """
    data, digest, size = bytearray(), "", 0
    restarts = 0
    while not digest or len(data) < size:
        ext = {HAVE: have, **({DIGEST: digest, OFFSET: str(len(data))} if digest else {})}
        answer = await ask(ext)
        if answer is None:
            return None
        said = answer.ext or {}
        if have and said.get(DIGEST) == have:
            return Fetched(have, None)
        if said.get(DIGEST, "") != digest or int(said.get(OFFSET, "0")) != len(data):
            restarts += 1
            if restarts > RESTARTS_MAX:
                raise ValueError("they change all the time")
            data.clear()
            digest, size = said.get(DIGEST, ""), int(said.get(SIZE, "0"))
            if not digest or int(said.get(OFFSET, "0")) != 0 or not 0 < size <= SIZE_MAX:
                raise ValueError("the answer has no snapshot")
        if not answer.body:
            raise ValueError("a piece of the snapshot is empty")
        data += answer.body
    if len(data) != size:
        raise ValueError(f"a snapshot has {len(data)} bytes instead of {size}")
    found = await read_body(lambda whole: unpacked(digest, whole), bytes(data))
    if not found.users:
        # Somebody let this request pass, so there are users.
        raise ValueError("the snapshot has no users")
    return Fetched(digest, found)
