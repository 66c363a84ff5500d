"""TLS that the core speaks: cut, broken and hostile bytes, slow peers, and what OpenSSL serves."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme

import remoting_harness
from remoting_harness import ECHO, Raw, ask, calling, on_loop, serving, until
from roquet._native import RemotingTls
from roquet.base.clock import SystemClock
from roquet.protocol.command import Command
from roquet.remoting.connections import native, tls_socket
from roquet.remoting.connections.native_connection import NativeConnection
from roquet.remoting.tls import ClientTls, ServerTls, TlsConfig, TlsOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from remoting_harness import Running


@pytest.fixture(params=[0, 2], ids=["loop", "threads"], autouse=True)
def _io_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with connections that the loop serves, and with those of threads."""
    monkeypatch.setattr(remoting_harness, "IO_THREADS", request.param)


class Files:
    """A certificate and its key, and what clients need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        leaf = self.authority.issue_cert("127.0.0.1")
        self.key.write_bytes(leaf.private_key_pem.bytes())
        self.cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        self.trusted = ssl.create_default_context()
        self.authority.configure_trust(self.trusted)

    async def port(self, **changes: Any) -> ServerTls:
        """Return a port's TLS with these files."""
        rules = TlsConfig(server_cert=str(self.cert), server_key=str(self.key), **changes)
        tls = ServerTls(rules, SystemClock())
        await tls.start()
        return tls


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


class Cut:
    """A peer whose sealed bytes this test carries itself."""

    def __init__(self, running: Running, context: ssl.SSLContext) -> None:
        self._running = running
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def open(self, size: int) -> None:
        """Shake hands, `size` bytes at a time."""
        port = self._running.server.port
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.carry(size)
                self._in.write(await self.reader.read(65536))
            else:
                await self.carry(size)
                return

    async def carry(self, size: int) -> None:
        """Send what is sealed, `size` bytes at a time."""
        sealed = self._out.read()
        for at in range(0, len(sealed), size):
            self.writer.write(sealed[at : at + size])
            await self.writer.drain()
            await asyncio.sleep(0)

    async def answer(self, size: int) -> bytes:
        """Return `size` plain bytes of what the server says."""
        found = b""
        while len(found) < size:
            try:
                found += self.tls.read(65536)
            except ssl.SSLWantReadError:
                read = await self.reader.read(65536)
                assert read, "the server closed the connection"
                self._in.write(read)
        return found


@contextlib.asynccontextmanager
async def open_raw(running: Running, files: Files) -> AsyncIterator[Raw]:
    opened = await asyncio.open_connection("127.0.0.1", running.server.port, ssl=files.trusted)
    raw = Raw(*opened)
    try:
        yield raw
    finally:
        await raw.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@on_loop
async def test_bytes_may_come_one_by_one(files: Files, version: ssl.TLSVersion) -> None:
    files.trusted.maximum_version = version
    async with serving(tls=await files.port()) as running:
        peer = Cut(running, files.trusted)
        await peer.open(1)
        frames = ask(ECHO, body=b"a" * 20_000, opaque=1) + ask(ECHO, body=b"b", opaque=2)
        peer.tls.write(frames)
        await peer.carry(7)
        answers = await peer.answer(len(frames) - 200)
        assert b"a" * 20_000 in answers
        peer.writer.close()
        await until(lambda: running.server.connections == 0)


@on_loop
async def test_large_bodies_go_both_ways(files: Files) -> None:
    body = bytes(range(256)) * 12_000
    options = TlsOptions(verify=False)
    async with (
        serving(tls=await files.port()) as running,
        calling(tls=ClientTls(options, SystemClock())) as client,
    ):
        found = await asyncio.gather(
            *(client.call(running.address, Command(ECHO, body=body), 30.0) for _ in range(8))
        )
        assert all(it.body == body for it in found)


@on_loop
async def test_a_peer_that_says_goodbye_is_closed(files: Files) -> None:
    async with serving(tls=await files.port()) as running:
        peer = Cut(running, files.trusted)
        await peer.open(4096)
        await until(lambda: bool(running.server.peers()))
        with contextlib.suppress(ssl.SSLWantReadError):
            peer.tls.unwrap()
        await peer.carry(4096)
        await until(lambda: running.server.connections == 0)
        while read := await peer.reader.read(4096):
            peer._in.write(read)
        peer._in.write_eof()
        peer.tls.unwrap()  # it has said goodbye, too
        peer.writer.close()


@pytest.mark.parametrize(
    "forged",
    [
        b"\x17\x03\x03\x00\x40" + b"\x00" * 64,
        b"\x17\x03\x03\xff\xff" + b"\x00" * 64,
        b"\x16\x03\x03\x00\x04\x01\xff\xff\xff",
        b"\x14\x03\x03\x00\x01\x01" * 100,
        bytes(200),
        b"\x15\x03\x03\x00\x02\x02\x28" * 3,
    ],
)
@on_loop
async def test_forged_records_close_one_connection_and_say_so(
    files: Files, forged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tls=await files.port()) as running, open_raw(running, files) as other:
        peer = Cut(running, files.trusted)
        await peer.open(4096)
        await until(lambda: len(tuple(running.server.peers())) == 2)
        peer.writer.write(forged)
        await until(lambda: running.server.connections == 1)
        assert any("broken TLS" in it.getMessage() for it in caplog.records)
        peer.writer.close()
        other.write(ask(ECHO, body=b"still here"))
        assert (await other.read()).body == b"still here"


@on_loop
async def test_who_never_ends_the_handshake_is_closed(
    files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (native, tls_socket):
        monkeypatch.setattr(module, "HANDSHAKE_S", 0.2)
    async with serving(tls=await files.port()) as running:
        _, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
        writer.write(b"\x16\x03\x01\x02\x00")
        await until(lambda: running.server.connections == 1)
        await until(lambda: running.server.connections == 0)
        writer.close()
    assert any("not within 0.2 s" in it.getMessage() for it in caplog.records)


@on_loop
async def test_a_peer_that_reads_nothing_is_read_no_more(files: Files) -> None:
    async with serving(tls=await files.port()) as running:
        peer = Cut(running, files.trusted)
        await peer.open(4096)
        frame = ask(ECHO, body=b"x" * 100_000)

        async def flood() -> None:
            while True:
                peer.tls.write(frame)
                await peer.carry(65536)

        sending = asyncio.create_task(flood())
        await until(lambda: any(link.is_stuck for link in running.server._connections.values()))
        done, _ = await asyncio.wait([sending], timeout=0.5)
        assert not done
        assert running.server.bytes_kept < 64 * 1024 * 1024
        sending.cancel()
        peer.writer.transport.abort()
        await until(lambda: running.server.connections == 0)
        assert running.server.bytes_kept == 0


@on_loop
async def test_openssl_serves_what_the_core_cannot(files: Files) -> None:
    plain = await files.port()
    assert isinstance(plain.context, RemotingTls)
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.BestAvailableEncryption(b"canary-secret"),
        )
    )
    tls = await files.port(server_password="canary-secret")
    assert isinstance(tls.context, ssl.SSLContext)
    async with serving(tls=tls) as running, open_raw(running, files) as raw:
        raw.write(ask(ECHO, body=b"hello"))
        assert (await raw.read()).body == b"hello"


@pytest.mark.parametrize("_io_threads", [2], ids=["threads"], indirect=True)
@on_loop
async def test_client_that_is_not_trusted_is_told_so_while_it_sends(files: Files) -> None:
    trust, mine = files.folder / "trust.pem", files.folder / "mine.pem"
    files.authority.cert_pem.write_to_path(str(trust))
    leaf = trustme.CA().issue_cert("a-client@example.org")
    leaf.private_key_and_cert_chain_pem.write_to_path(str(mine))
    files.trusted.load_cert_chain(mine)
    files.trusted.minimum_version = ssl.TLSVersion.TLSv1_3  # in which a client need not wait

    def talk(port: int) -> None:
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            files.trusted.wrap_socket(plain, server_hostname="127.0.0.1") as peer,
        ):
            peer.sendall(ask(ECHO, body=bytes(1 << 20)))
            peer.recv(1)

    tls = await files.port(client_auth="require", server_trust=str(trust))
    async with serving(tls=tls) as running:
        with pytest.raises(ssl.SSLError, match="ALERT_UNKNOWN_CA"):
            await asyncio.to_thread(talk, running.server.port)
        await until(lambda: running.server.connections == 0)
        assert not running.handlers.seen


@pytest.mark.parametrize("_io_threads", [2], ids=["threads"], indirect=True)
@on_loop
async def test_connections_over_tls_are_served_by_threads(files: Files) -> None:
    async with serving(tls=await files.port()) as running, open_raw(running, files) as raw:
        raw.write(ask(ECHO, body=b"hello"))
        assert (await raw.read()).body == b"hello"
        (one,) = running.server._connections.values()
        assert isinstance(one, NativeConnection)
        await until(lambda: running.server.bytes_kept == 0)


@on_loop
async def test_peer_that_leaves_in_the_handshake_leaves_nothing(files: Files) -> None:
    async with serving(tls=await files.port()) as running:
        for said in (
            b"\x16",
            b"\x16\x03\x01\x02\x00\x01\x00\x01",
            b"\x16\x03\x01\x00\x04" + bytes(4),
        ):
            _, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
            writer.write(said)
            await until(lambda: running.server.connections == 1)
            writer.close()
            await until(lambda: running.server.connections == 0)
        assert running.server.bytes_kept == 0
