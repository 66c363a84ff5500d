"""TLS on the port of gRPC, by real handshakes: modes, certificates of both sides, changes."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import ssl
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import trustme

import http2_peer as http2
from grpc_calls import fronted, message
from roquet.base.errors import UsageError
from roquet.proxy import messages as pb
from roquet.proxy.rules.limits import ProxyLimits
from roquet.proxy.rules.methods import SERVICE
from roquet.remoting.tls import TlsConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from grpc_calls import Calls

RULES = ProxyLimits(port=0, tls_watch_ms=100)
SEND = f"/{SERVICE}/SendMessage"
ID = ("x-mq-client-id", "c")


class Pki:
    """An authority, and the files of a server's certificate."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        self.issue("127.0.0.1")

    def issue(self, *names: str) -> None:
        """Write a new certificate and key over the files."""
        leaf = self.authority.issue_cert(*names)
        self.key.write_bytes(leaf.private_key_pem.bytes())
        self.cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))

    def server(self, **changes: Any) -> TlsConfig:
        return TlsConfig(server_cert=str(self.cert), server_key=str(self.key), **changes)

    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.set_alpn_protocols(["h2"])
        return context


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


def sends(port: int, tls: ssl.SSLContext | None, body: bytes = b"x") -> ssl.SSLObject | None:
    """Send a message over a connection of its own; return the TLS that it used."""
    request = pb.SendMessageRequest(messages=[message(body=body)]).SerializeToString()
    data = b"\0" + struct.pack(">I", len(request)) + request
    with http2.Peer.connect(port, tls=tls) as peer:
        begin = http2.headers(SEND, ID)
        peer.send(http2.frame(http2.HEADERS, 1, begin, http2.END_HEADERS))
        for at in range(0, len(data), 16_384):
            ends = http2.END_STREAM if at + 16_384 >= len(data) else 0
            peer.send(http2.frame(http2.DATA, 1, data[at : at + 16_384], ends))
        payload = peer.until(http2.DATA)
        assert payload is not None, "the connection was closed"
        assert pb.SendMessageResponse.FromString(payload[5:]).status.code == 20000
        return getattr(peer.link, "_sslobj", None)


def is_closed(port: int, tls: ssl.SSLContext | None) -> bool:
    """Tell whether a connection is closed before anything is answered."""
    try:
        with http2.Peer.connect(port, tls=tls, greets=False) as peer:
            peer.send(http2.PREFACE, http2.frame(http2.SETTINGS, 0))
            return peer.read() is None
    except (ssl.SSLError, ConnectionError):
        return True


def run(
    folder: Path,
    tls: TlsConfig | None,
    story: Callable[[int], None],
    rules: ProxyLimits = RULES,
) -> None:
    async def main() -> None:
        async with fronted(folder / "broker", rules, tls) as calls:
            await asyncio.to_thread(story, calls.front.routes.port)

    asyncio.run(main())


def test_port_takes_tls_and_plain_connections(tmp_path: Path, pki: Pki) -> None:
    def story(port: int) -> None:
        used = sends(port, pki.client(), b"x" * 500_000)
        assert used is not None
        assert (used.version(), used.selected_alpn_protocol()) == ("TLSv1.3", "h2")
        assert sends(port, None) is None

    run(tmp_path, pki.server(), story)


def test_enforced_tls_closes_plain_connections(
    tmp_path: Path, pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    def story(port: int) -> None:
        assert sends(port, pki.client()) is not None
        assert is_closed(port, None)

    with caplog.at_level(logging.WARNING, "roquet.proxy"):
        run(tmp_path, pki.server(mode="enforcing"), story)
    assert "is closed: it does not speak TLS, and the port takes nothing else" in caplog.text


@pytest.mark.parametrize("mode", ["permissive", "disabled"])
def test_port_without_a_certificate_closes_tls_connections(
    tmp_path: Path, pki: Pki, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    config = TlsConfig() if mode == "permissive" else pki.server(mode=mode)

    def story(port: int) -> None:
        assert is_closed(port, pki.client())
        sends(port, None)

    with caplog.at_level(logging.WARNING, "roquet.proxy"):
        run(tmp_path, config, story)
    assert "is closed: it wants TLS, and the port has none" in caplog.text


def test_version_that_is_not_offered_is_refused(tmp_path: Path, pki: Pki) -> None:
    old, new = pki.client(), pki.client()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    new.minimum_version = ssl.TLSVersion.TLSv1_3

    def both(port: int) -> None:
        for context, version in ((old, "TLSv1.2"), (new, "TLSv1.3")):
            used = sends(port, context)
            assert used is not None
            assert used.version() == version

    def newer_alone(port: int) -> None:
        assert is_closed(port, old)
        sends(port, new)

    run(tmp_path / "both", pki.server(), both)
    run(tmp_path / "new", pki.server(protocols="TLSv1.3"), newer_alone)


def test_client_certificate_is_asked_for(tmp_path: Path, pki: Pki) -> None:
    known, stranger = pki.client(), pki.client()
    pki.authority.issue_cert("client@example.org").configure_cert(known)
    trustme.CA().issue_cert("client@example.org").configure_cert(stranger)
    asks = pki.server(client_auth="require", server_trust=str(pki.ca))

    def demanded(port: int) -> None:
        sends(port, known)
        assert is_closed(port, stranger)
        assert is_closed(port, pki.client())

    def optional(port: int) -> None:
        sends(port, known)
        sends(port, pki.client())
        assert is_closed(port, stranger)

    run(tmp_path / "demanded", asks, demanded)
    run(tmp_path / "optional", dataclasses.replace(asks, client_auth="optional"), optional)


def test_changed_certificate_is_used_and_a_broken_one_is_not(tmp_path: Path, pki: Pki) -> None:
    def shown(port: int) -> bytes:
        with http2.Peer.connect(port, tls=pki.client()) as peer:
            assert isinstance(peer.link, ssl.SSLSocket)
            found = peer.link.getpeercert(binary_form=True)
            assert found is not None
            return found

    async def main() -> None:
        async with fronted(tmp_path / "broker", RULES, pki.server()) as calls:
            port = calls.front.routes.port
            first = await asyncio.to_thread(shown, port)
            pki.issue("127.0.0.1", "another.example.org")
            while await asyncio.to_thread(shown, port) == first:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            second = await asyncio.to_thread(shown, port)
            pki.key.write_text("no key")
            await calls.port.reload_tls()
            assert await asyncio.to_thread(shown, port) == second

    asyncio.run(main())


def test_key_with_a_password_is_opened(tmp_path: Path, pki: Pki) -> None:
    sealed = tmp_path / "sealed.pem"
    command = ["openssl", "pkcs8", "-topk8", "-in", str(pki.key), "-out", str(sealed)]
    subprocess.run([*command, "-passout", "pass:open sesame"], check=True, capture_output=True)
    assert "ENCRYPTED" in sealed.read_text()
    own = dataclasses.replace(
        RULES, tls_cert=str(pki.cert), tls_key=str(sealed), tls_password="open sesame"
    )

    def story(port: int) -> None:
        assert sends(port, pki.client()) is not None

    # The port's own certificate goes before the broker's, which there is none of.
    run(tmp_path / "good", None, story, own)
    wrong = dataclasses.replace(own, tls_password="open barley")
    with pytest.raises(UsageError, match="the password does not open it"):
        run(tmp_path / "wrong", None, story, wrong)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mode": "enforcing", "server_cert": ""}, "needs tls.server.certPath"),
        ({"client_auth": "require"}, "needs tls.server.trustCertPath"),
        ({"server_cert": "/nowhere/cert.pem"}, "No such file"),
    ],
)
def test_tls_that_cannot_be_ends_the_start(
    tmp_path: Path, pki: Pki, changes: dict[str, Any], text: str
) -> None:
    config = dataclasses.replace(pki.server(), **changes)
    with pytest.raises(UsageError, match=text):
        run(tmp_path, config, lambda _: None)


def test_key_of_another_certificate_ends_the_start(tmp_path: Path, pki: Pki) -> None:
    before = pki.cert.read_bytes()
    pki.issue("127.0.0.1")
    pki.cert.write_bytes(before)
    with pytest.raises(UsageError, match="the key is not the certificate's"):
        run(tmp_path, pki.server(), lambda _: None)


def test_client_that_speaks_no_tls_behind_its_first_byte_is_closed(
    tmp_path: Path, pki: Pki
) -> None:
    def story(port: int) -> None:
        with http2.Peer.connect(port, greets=False, first=b"\x16" + bytes(200)) as peer:
            # An alert may come first.
            while peer.link.recv(1 << 16):
                pass
        sends(port, pki.client())

    async def main() -> None:
        async with fronted(tmp_path / "broker", RULES, pki.server()) as calls:
            await asyncio.to_thread(story, calls.front.routes.port)
            await nobody(calls)

    asyncio.run(main())


async def nobody(calls: Calls) -> None:
    while calls.port.counts != (0, 0):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
