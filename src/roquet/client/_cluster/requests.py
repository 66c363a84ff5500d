"""One request to one peer, its answer checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.refusals import refused

if TYPE_CHECKING:
    from roquet.protocol.codes import RequestCode
    from roquet.protocol.header import Header
    from roquet.remoting.client import Client

DEFAULT_TIMEOUT_S = 3.0


def request(
    code: RequestCode,
    header: Header | None = None,
    body: bytes = b"",
    *,
    short: bool = False,
    broker: str = "",
) -> Command:
    """Make a request; `broker` names the one it is for, which a proxy has to know (`bname`)."""
    ext = None if header is None else header.encode(short=short)
    if broker:
        ext = {**(ext or {}), "bname": broker}
    return Command(code=int(code), ext=ext, body=body)


async def ask(
    client: Client,
    address: str,
    command: Command,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Command:
    """Send a request and return its answer if it is a success.

    Raises Refused for any other code, Unreachable and OutcomeUnknown as the transport does.
    """
    answer = await client.call(address, command, timeout_s)
    if answer.code != ResponseCode.SUCCESS:
        raise refused(answer.code, answer.remark, answer.ext)
    return answer
