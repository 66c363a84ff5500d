"""Writing to a socket without the transport's own queue, where nothing waits there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


def write_through(transport: asyncio.WriteTransport, fd: int | None, data: bytes) -> None:
    """Write what the socket takes at once; the transport has the rest.

    `fd` is the socket when what is written to it is what the peer reads, and does not block; None
    leaves everything to the transport, as does data of before that waits there.
    """
    if fd is not None and not transport.get_write_buffer_size():
        try:
            sent = os.write(fd, data)
        except OSError:
            sent = 0  # it is met again by the transport, which ends the connection
        if sent == len(data):
            return
        data = data[sent:]
    transport.write(data)
