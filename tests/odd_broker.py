"""Stands where connections for forwarded requests go, and answers none of them as a broker does."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from roquet.protocol.command import reply_to
from roquet.remoting.client import Client
from roquet.remoting.codec import decode, encode

if TYPE_CHECKING:
    import pytest

    from roquet.remoting.connections.connection import Connection
    from roquet.remoting.connections.ingest import Ingest


class OddBroker:
    """Answers with one code, with nothing, or with the end of the connection."""

    def __init__(self, code: int | None) -> None:
        """Answer with a code; None: with nothing, and close where it is asked to."""
        self.code = code
        self.closes = False
        self.asked = 0
        self.served: asyncio.Task[None] | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to its end, however the other side ends it."""
        self.served = asyncio.current_task()
        with contextlib.suppress(ConnectionError):
            await self._serve(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept = bytearray()
        while data := await reader.read(65_536):
            kept += data
            commands, used = decode(bytes(kept))
            del kept[:used]
            self.asked += len(commands)
            if commands and self.closes:
                break
            for command in commands:
                if self.code is not None:
                    # In two writes: an answer may come in pieces.
                    frame = encode(reply_to(command, self.code, remark="odd"))
                    writer.write(frame[:7])
                    await writer.drain()
                    await asyncio.sleep(0.01)
                    writer.write(frame[7:])
        writer.close()
        await writer.wait_closed()

    async def stand_in(self, patch: pytest.MonkeyPatch) -> asyncio.Server:
        """Have connections for forwarded requests come here."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        dial = Client.dial

        async def elsewhere(
            client: Client, address: str, timeout_s: float = 3.0, ingest: Ingest | None = None
        ) -> Connection:
            if ingest is None:
                return await dial(client, address, timeout_s)
            connection = await dial(client, f"127.0.0.1:{port}", timeout_s, ingest)
            connection.address = address
            return connection

        patch.setattr(Client, "dial", elsewhere)
        return server
