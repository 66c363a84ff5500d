"""TLS on real sockets: the three modes, certificates of both sides, changes, clear refusals."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import ssl
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import trustme

import remoting_harness
from remoting_harness import ECHO, Raw, ask, calling, on_loop, serving, until
from roquet.base.clock import SystemClock
from roquet.base.config import as_properties, env_name, load
from roquet.base.errors import OutcomeUnknown, Unreachable, UsageError
from roquet.broker.config import load_config
from roquet.namesrv.config import load_config as load_namesrv
from roquet.protocol.bodies.routes import ClusterInfo
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.blocking import BlockingConnection
from roquet.remoting.tls import (
    ClientTls,
    ServerTls,
    TlsConfig,
    TlsMismatch,
    TlsOptions,
    environment_options,
    with_tls_file,
)
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import running_broker, running_name_server

if TYPE_CHECKING:
    from pathlib import Path

    from remoting_harness import Running
    from roquet.remoting.client import Client

BIG = b"x" * 3_000_000


@pytest.fixture(params=[0, 2], ids=["loop", "threads"], autouse=True)
def _io_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with connections that the loop serves, and with those of threads."""
    monkeypatch.setattr(remoting_harness, "IO_THREADS", request.param)


class Pki:
    """A certificate authority and files of its certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        self.issue()

    def issue(self, name: str = "127.0.0.1") -> trustme.LeafCert:
        """Write a new certificate and key over the files."""
        leaf = self.authority.issue_cert(name)
        self.key.write_bytes(leaf.private_key_pem.bytes())
        self.cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        return leaf

    def rules(self, **changes: Any) -> TlsConfig:
        """Return a server's settings with this certificate."""
        return TlsConfig(server_cert=str(self.cert), server_key=str(self.key), **changes)

    def client(self, **changes: Any) -> ClientTls:
        """Return a client that trusts this authority."""
        return ClientTls(TlsOptions(ca=str(self.ca), **changes), SystemClock())


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


async def started(rules: TlsConfig, clock: Any = None) -> ServerTls:
    tls = ServerTls(rules, clock or SystemClock())
    await tls.start()
    return tls


async def echo(client: Client, running: Running, body: bytes = b"hello") -> bytes:
    return (await client.call(running.address, Command(ECHO, body=body), 20.0)).body


@on_loop
async def test_permissive_serves_tls_and_plain_on_one_port(pki: Pki) -> None:
    async with (
        serving(tls=await started(pki.rules())) as running,
        calling(tls=pki.client()) as secure,
        calling() as plain,
    ):
        assert await echo(secure, running, BIG) == BIG
        assert await echo(plain, running) == b"hello"
        with BlockingConnection(running.address) as one:
            reply = await asyncio.to_thread(one.call, Command(ECHO, body=b"blocking"))
            assert reply.body == b"blocking"


@on_loop
async def test_a_blocking_connection_speaks_tls(pki: Pki) -> None:
    def exchange(address: str) -> bytes:
        with BlockingConnection(address, tls=pki.client()) as connection:
            return connection.call(Command(ECHO, body=BIG), 20.0).body

    async with serving(tls=await started(pki.rules(mode="enforcing"))) as running:
        assert await asyncio.to_thread(exchange, running.address) == BIG


@on_loop
async def test_enforcing_broker_registers_in_plain_when_tls_enable_is_false(
    pki: Pki, tmp_path: Path
) -> None:
    tls = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(pki.cert),
        "tls.server.keyPath": str(pki.key),
        "tls.enable": "false",
    }
    async with (
        running_name_server(tmp_path) as names,
        running_broker(tmp_path / "b", f"127.0.0.1:{names.server.port}", changes=tls),
        calling() as client,
    ):
        address = f"127.0.0.1:{names.server.port}"
        ask_for_brokers = Command(RequestCode.GET_BROKER_CLUSTER_INFO)

        async def registered() -> bool:
            answer = await client.call(address, ask_for_brokers, 20.0)
            return "broker-a" in ClusterInfo.decode(answer.body).brokers

        async with asyncio.timeout(60):
            while not await registered():  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@on_loop
async def test_own_calls_that_meet_no_tls_name_the_servers_setting(pki: Pki) -> None:
    options = pki.rules(mode="enforcing").options()
    assert options is not None
    async with (
        serving() as running,
        calling(tls=ClientTls(options, SystemClock())) as client,
    ):
        with pytest.raises(Unreachable, match=r"-s tls\.enable=false"):
            await echo(client, running)


def test_missing_settings_name_flag_and_variable() -> None:
    for rules, key in (
        (TlsConfig(mode="enforcing"), "tls.server.certPath"),
        (TlsConfig(server_cert="c", client_auth="require"), "tls.server.trustCertPath"),
    ):
        with pytest.raises(UsageError) as caught:
            ServerTls(rules, SystemClock())
        assert f"-s {key}=VALUE" in str(caught.value)
        assert f"variable {env_name(key)}" in str(caught.value)


@on_loop
async def test_many_calls_at_once_over_tls(pki: Pki) -> None:
    async with (
        serving(tls=await started(pki.rules())) as running,
        calling(tls=pki.client()) as client,
    ):
        bodies = [b"%d" % number * (number * 50) for number in range(200)]
        answers = await asyncio.gather(*(echo(client, running, body) for body in bodies))
        assert answers == bodies


@on_loop
async def test_enforcing_closes_a_plain_connection_with_one_line(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tls=await started(pki.rules(mode="enforcing"))) as running:
        for _ in range(3):
            raw = await running.raw()
            raw.write(ask(ECHO))
            assert await raw.is_closed()
            await raw.close()
        async with calling(tls=pki.client()) as client:
            assert await echo(client, running) == b"hello"
    lines = [r.getMessage() for r in caplog.records if "does not speak TLS" in r.getMessage()]
    assert len(lines) == 1
    assert "enforcing" in lines[0]


@pytest.mark.parametrize("rules", [TlsConfig(mode="disabled"), TlsConfig(), None])
@on_loop
async def test_a_port_without_tls_closes_a_client_hello(
    rules: TlsConfig | None, caplog: pytest.LogCaptureFixture
) -> None:
    tls = None if rules is None else await started(rules)
    async with serving(tls=tls) as running:
        for _ in range(2):
            async with calling(tls=ClientTls(TlsOptions(verify=False), SystemClock())) as client:
                with pytest.raises(Unreachable):
                    await echo(client, running)
    assert len([r for r in caplog.records if "wants TLS" in r.getMessage()]) == 1


@on_loop
async def test_client_without_tls_of_enforcing_port_is_told_to_use_tls(pki: Pki) -> None:
    async with (
        serving(tls=await started(pki.rules(mode="enforcing"))) as running,
        calling(explain_tls=True) as client,
    ):
        with pytest.raises(TlsMismatch, match="ROQUET_TLS_ENABLE=true"):
            await echo(client, running)


@on_loop
async def test_client_with_tls_of_plain_port_is_told_to_leave_it_out() -> None:
    async with (
        serving() as running,
        calling(tls=ClientTls(TlsOptions(verify=False), SystemClock())) as client,
    ):
        with pytest.raises(Unreachable, match="does not speak TLS, leave"):
            await echo(client, running)


@on_loop
async def test_a_client_refuses_an_unknown_authority_and_another_host(pki: Pki) -> None:
    pki.issue("broker.example.org")
    async with serving(tls=await started(pki.rules())) as running:
        stranger = ClientTls(TlsOptions(), SystemClock())
        for tls in (stranger, pki.client()):
            async with calling(tls=tls) as client:
                with pytest.raises(Unreachable, match=r"ROQUET_TLS_CLIENT_TRUST_CERT_PATH"):
                    await echo(client, running)
        for tls in (
            pki.client(check_hostname=False),
            ClientTls(TlsOptions(verify=False), SystemClock()),
        ):
            async with calling(tls=tls) as client:
                assert await echo(client, running) == b"hello"


@on_loop
async def test_a_client_certificate_is_asked_for(
    pki: Pki, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = pki.rules(client_auth="require", server_trust=str(pki.ca))
    (tmp_path / "mine").mkdir()
    mine = Pki(tmp_path / "mine")
    leaf = pki.authority.issue_cert("client@example.org")
    known = tmp_path / "client.pem"
    leaf.private_key_and_cert_chain_pem.write_to_path(str(known))
    async with serving(tls=await started(rules)) as running:
        async with calling(tls=pki.client(cert=str(known))) as client:
            assert await echo(client, running) == b"hello"
        for tls in (pki.client(), pki.client(cert=str(mine.cert), key=str(mine.key))):
            async with calling(tls=tls) as client:
                # TLS 1.3 lets a client begin before the server has looked at its certificate.
                with pytest.raises((Unreachable, OutcomeUnknown)):
                    await echo(client, running)
        await until(lambda: running.server.connections == 0)
        assert len(running.handlers.seen) == 1
    assert any("no TLS could be agreed on" in r.getMessage() for r in caplog.records)


@on_loop
async def test_connections_that_a_server_opens_use_tls_as_its_settings_say(
    pki: Pki, tmp_path: Path
) -> None:
    leaf = pki.authority.issue_cert("a-server@example.org")
    cert, key = tmp_path / "own.pem", tmp_path / "own.key"
    cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    key.write_bytes(encrypted(leaf.private_key_pem.bytes()))
    shown: dict[str, Any] = {"client_cert": str(cert), "client_key": str(key)}
    shown["client_password"] = "canary-secret"
    asks = pki.rules(client_auth="require", server_trust=str(pki.ca))
    trusting: dict[str, Any] = {"enable": True, "client_trust": str(pki.ca)}
    await exchanged(asks, TlsConfig(**trusting, **shown))
    assert TlsConfig(client_trust=str(pki.ca)).options() is None
    pki.issue("broker.example.org")
    with pytest.raises(Unreachable):
        await exchanged(pki.rules(), TlsConfig(**trusting))
    for trusts_more in (
        TlsConfig(**trusting, check_hostname=False),
        TlsConfig(enable=True, auth_server=False),
        TlsConfig(enable=True, test_mode=True),
    ):
        await exchanged(pki.rules(), trusts_more)


async def exchanged(rules: TlsConfig, own: TlsConfig) -> None:
    """Have a server with settings of its own ask one with `rules`."""
    options = own.options()
    assert options is not None
    async with (
        serving(tls=await started(rules)) as running,
        calling(tls=ClientTls(options, SystemClock())) as client,
    ):
        assert await echo(client, running) == b"hello"


def encrypted(key: bytes) -> bytes:
    """Return a private key that `canary-secret` opens."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"canary-secret"),
    )


@pytest.mark.parametrize("auth", ["none", "optional"])
@on_loop
async def test_old_versions_are_refused(pki: Pki, auth: str) -> None:
    """Whether certificates of clients are asked for or not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    asking = {"client_auth": auth, "server_trust": str(pki.ca)}
    async with serving(tls=await started(pki.rules(protocols="TLSv1.3", **asking))) as running:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", running.server.port, ssl=context)
        context.maximum_version = ssl.TLSVersion.TLSv1_3
        raw = Raw(*await asyncio.open_connection("127.0.0.1", running.server.port, ssl=context))
        raw.write(ask(ECHO, body=b"13"))
        assert (await raw.read()).body == b"13"
        await raw.close()
    async with serving(tls=await started(pki.rules(**asking))) as running:
        context.set_ciphers("ALL:@SECLEVEL=0")
        for version, is_served in (("TLSv1_1", False), ("TLSv1_2", True)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = ssl.TLSVersion.TLSv1
                context.maximum_version = ssl.TLSVersion[version]
            if is_served:
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", running.server.port, ssl=context
                )
                writer.close()
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await asyncio.open_connection("127.0.0.1", running.server.port, ssl=context)


@on_loop
async def test_rubbish_after_a_client_hello_closes_the_connection(pki: Pki) -> None:
    async with serving(tls=await started(pki.rules())) as running:
        raw = await running.raw()
        raw.write(b"\x16\x03\x01" + b"\xff" * 400)
        async with asyncio.timeout(10):
            while await raw._reader.read(4096):
                pass
        await raw.close()
        await until(lambda: running.server.connections == 0)


@on_loop
async def test_a_changed_certificate_is_used_and_a_broken_one_is_not(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tls = await started(pki.rules())
    first = tls.context

    async def serial(running: Running) -> int:
        context = ssl.create_default_context(cafile=str(pki.ca))
        _, writer = await asyncio.open_connection("127.0.0.1", running.server.port, ssl=context)
        shown = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
        writer.close()
        return int(shown, 16)

    async with serving(tls=tls) as running:
        await tls.reload()
        assert tls.context is first  # nothing has changed
        before = await serial(running)
        other = pki.authority.issue_cert("127.0.0.1")
        pki.cert.write_bytes(other.cert_chain_pems[0].bytes())  # the key does not fit yet
        await tls.reload()
        await tls.reload()
        assert tls.context is first
        assert await serial(running) == before
        warned = [r for r in caplog.records if "stays as it was" in r.getMessage()]
        assert len(warned) == 1
        pki.key.write_bytes(other.private_key_pem.bytes())
        await tls.reload()
        assert tls.context is not first
        assert await serial(running) != before
        pki.cert.unlink()
        await tls.reload()
        assert await serial(running) != before


@on_loop
async def test_the_calling_side_looks_at_its_files_at_most_each_half_second(pki: Pki) -> None:
    clock = FakeClock()
    tls = ClientTls(TlsOptions(ca=str(pki.ca)), clock)
    first = tls.context()
    trustme.CA().cert_pem.write_to_path(str(pki.ca))
    assert tls.context() is first
    await clock.advance(0.6)
    assert tls.context() is not first


@on_loop
async def test_what_is_missing_is_said_at_start(pki: Pki, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"enforcing.*needs tls\.server\.certPath"):
        ServerTls(TlsConfig(mode="enforcing"), SystemClock())
    with pytest.raises(UsageError, match=r"require.*needs tls\.server\.trustCertPath"):
        ServerTls(pki.rules(client_auth="require"), SystemClock())
    for rules in (
        pki.rules(client_auth="require", server_trust=str(tmp_path / "nowhere")),
        dataclasses.replace(pki.rules(), server_key=str(pki.ca)),
        dataclasses.replace(pki.rules(), server_cert=str(tmp_path / "nowhere")),
    ):
        with pytest.raises(UsageError, match=r"tls\.server\."):
            await started(rules)


@on_loop
async def test_an_encrypted_key_needs_its_password(pki: Pki) -> None:
    pki.key.write_bytes(encrypted(pki.key.read_bytes()))
    for password in ("", "wrong"):
        with pytest.raises(UsageError) as caught:
            await started(pki.rules(server_password=password))
        assert "canary" not in str(caught.value)
    assert (await started(pki.rules(server_password="canary-secret"))).context is not None


def test_settings_of_the_file_are_below_all_others(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(
        "tls.server.mode=enforcing\ntls.server.certPath=/from/tls\nlistenPort=1\n"
        "tls.server.keyPassword=canary-secret\ntls.server.authClient=true\n"
    )
    conf = tmp_path / "broker.conf"
    conf.write_text(f"tls.config.file={file}\ntls.server.certPath=/from/conf\n")
    env = {"ROQUET_TLS_SERVER_MODE": "permissive"}
    config, report = load_config(conf, env, {})
    assert (config.tls.mode, config.tls.server_cert) == ("permissive", "/from/conf")
    assert config.server.port == 10911
    assert report.unimplemented == ("tls.server.authClient",)
    assert "canary" not in repr(config)
    assert as_properties(config)["tls.server.keyPassword"] == "******"
    named, _ = load_namesrv(None, {"ROQUET_TLS_CONFIG_FILE": str(file)}, {})
    assert (named.tls.mode, named.listen_port) == ("enforcing", 9876)
    with pytest.raises(UsageError, match=r"tls\.config\.file"):
        with_tls_file({}, {}, {"tls.config.file": str(tmp_path / "nowhere")})
    with pytest.raises(UsageError, match="older ones are not offered"):
        load(TlsConfig, {"tls.protocols": "TLSv1.1"})


def test_a_client_is_told_by_the_environment() -> None:
    assert environment_options({}) is None
    given = {
        "ROQUET_TLS_ENABLE": "true",
        "ROQUET_TLS_CLIENT_TRUST_CERT_PATH": "/ca.pem",
        "ROQUET_TLS_CLIENT_KEY_PASSWORD": "canary-secret",
        "ROQUET_LISTEN_PORT": "9",
    }
    options = environment_options(given)
    assert options == TlsOptions(ca="/ca.pem", key_password="canary-secret")
    assert "canary" not in repr(options)
    with pytest.raises(UsageError, match=r"tls\.enable"):
        environment_options({"ROQUET_TLS_ENABLE": "maybe"})
    rules = TlsConfig(mode="enforcing", test_mode=True)
    options = rules.options()
    assert options is not None
    assert not options.verify
