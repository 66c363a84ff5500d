"""Bodies of requests, read so that others have their turn; one that makes no sense is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol.fastjson import JsonError
from roquet.service.slices import read_body, read_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from roquet.protocol.command import Command

T = TypeVar("T")


async def body_of(
    command: Command,
    decode: Callable[[bytes], T],
    reason: Reason = Reason.INVALID_ARGUMENT,
    prefix: str = "body: ",
) -> T:
    """Return what a request's body says. Raises Refusal for `reason` when it makes no sense."""
    try:
        return await read_body(decode, command.body)
    except JsonError as error:
        raise Refusal(reason, f"{prefix}{error}") from error


async def parts_of(
    command: Command,
    read: Callable[[Mapping[str, Any]], Generator[None, None, T]],
    reason: Reason = Reason.INVALID_ARGUMENT,
    prefix: str = "body: ",
) -> T:
    """Return what a request's body says, a long list of it read in slices. Raises Refusal."""
    try:
        return await read_parts(read, command.body)
    except JsonError as error:
        raise Refusal(reason, f"{prefix}{error}") from error
