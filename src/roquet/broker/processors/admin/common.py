"""What the administration processors share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from roquet.base.errors import Refused
from roquet.protocol.bodies.topics import decode_data_version
from roquet.protocol.codes import ResponseCode
from roquet.protocol.fastjson import JsonError
from roquet.service.slices import read_body, read_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from roquet.model.data_version import DataVersion
    from roquet.protocol.command import Command

T = TypeVar("T")

NOT_SET = "not set any response code"
"""The remark with which 5.5.0 says yes to codes 17, 18, 223 and 321."""
QUEUES_AT_ONCE = 100
"""Queues that are looked at, on disk as well, before others have their turn."""
PAGE_MAX = 2000
"""Entries of one page of a table (splitMetadataSize)."""


async def body_of(command: Command, decode: Callable[[bytes], T]) -> T:
    """Return what a request's body says. Raises Refused when it makes no sense."""
    try:
        return await read_body(decode, command.body)
    except JsonError as error:
        raise Refused(ResponseCode.INVALID_PARAMETER, f"body: {error}") from error


async def parts_of(
    command: Command, read: Callable[[Mapping[str, Any]], Generator[None, None, T]]
) -> T:
    """Return what a request's body says, a long list of it read in slices. Raises Refused."""
    try:
        return await read_parts(read, command.body)
    except JsonError as error:
        raise Refused(ResponseCode.INVALID_PARAMETER, f"body: {error}") from error


def page_of(
    ext: Mapping[str, str] | None, start_name: str, count_name: str, version: DataVersion
) -> tuple[int, int] | None:
    """Return the bounds of the page that is asked for; None: everything at once.

    A reader that began with another version of the table begins anew.
    """
    given = ext or {}
    if not any(given.get(name) for name in ("dataVersion", start_name, count_name)):
        return None
    start = _count(given, start_name, 0)
    count = min(_count(given, count_name, PAGE_MAX), PAGE_MAX)
    known = given.get("dataVersion")
    if known:
        try:
            same = decode_data_version(known.encode()) == version
        except JsonError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"dataVersion: {error}") from error
        start = start if same else 0
    return start, start + count


def _count(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Refused(ResponseCode.INVALID_PARAMETER, f"{name}: {text[:40]!r} is not a count")
    return int(text)
