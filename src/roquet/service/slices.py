"""Long work in slices or beside the loop, so that no request costs the others more than its share.

A request may keep the event loop for some 20 ms. What can take longer, because a client chooses how
many items or bytes there are, goes over the items in slices, between which everybody else has a
turn, or reads and writes its body in a thread. One body at a time is worked on there: threads share
the interpreter with the loop, and the pool with the files that are written.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import weakref
from typing import TYPE_CHECKING, Any, TypeVar, cast

from roquet.protocol import fastjson
from roquet.service.background import give_way
from roquet.service.process.collector import long_work

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping

T = TypeVar("T")

BYTES_ON_LOOP = 4 * 1024
"""Bytes of a body that are read on the loop: 20 ms at the most, in the slowest form of JSON."""
ITEMS_ON_LOOP = 200
"""Items of an answer that are written on the loop."""

_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
    weakref.WeakKeyDictionary()
)


async def in_slices(items: Iterable[T], size: int) -> AsyncIterator[T]:
    """Yield the items; after each slice of `size` everybody else has a turn."""
    left = size
    for item in items:
        if left == 0:
            await give_way()
            left = size
        left -= 1
        yield item


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Return what `steps` returns; wherever it yields, everybody else has a turn."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)
        await give_way()


async def read_parts(
    read: Callable[[Mapping[str, Any]], Generator[None, None, T]], body: bytes
) -> T:
    """Return what `read` makes of the object in a body, in turns. Raises JsonError.

    Only a body that is not strict JSON, which is short, is read in a thread.
    """
    found = fastjson.parts(body) if len(body) > BYTES_ON_LOOP else None
    if found is None:
        loose = functools.partial(
            fastjson.read_object, body, tolerant_size_max=fastjson.REQUEST_SIZE_MAX
        )
        found = loose() if len(body) <= BYTES_ON_LOOP else await _beside(loose)
    return await in_turns(read(found))


async def read_body(decode: Callable[[bytes], T], body: bytes) -> T:
    """Return what `decode` makes of a body, a long one in a thread. Raises what it raises."""
    if len(body) <= BYTES_ON_LOOP:
        return decode(body)
    return await _beside(lambda: decode(body))


async def write_body(encode: Callable[[], bytes], items: int) -> bytes:
    """Return what `encode` writes of so many items that nobody changes, many in a thread."""
    if items <= ITEMS_ON_LOOP:
        return encode()
    return await _beside(encode)


async def write_rows(rows: Iterable[str], size: int) -> bytes:
    """Return the rows, separated by commas; `size` of them are made before others have a turn."""
    left, parts = iter(rows), list[bytes]()
    while part := list(itertools.islice(left, size)):
        parts.append(",".join(part).encode())
        if len(part) < size:
            break
        await give_way()
    return b",".join(parts)


async def write_pieces(pieces: Iterator[bytes]) -> list[bytes]:
    """Return the pieces of a long text; after each one everybody else has a turn."""
    made: list[bytes] = []
    for piece in pieces:
        made.append(piece)
        await give_way()
    return made


async def _beside(work: Callable[[], T]) -> T:
    loop = asyncio.get_running_loop()
    turn = _turns.setdefault(loop, asyncio.Semaphore(1))
    async with turn:
        with long_work():
            return await asyncio.to_thread(work)
