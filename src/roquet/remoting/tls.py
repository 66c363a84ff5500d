"""TLS on both sides of a connection: settings, contexts, and certificates that change.

The settings have the names of RocketMQ's system properties and of its `tls.properties`. Where the
defaults differ, ours is the careful one: a server never makes a certificate of its own, and a
client looks at the server's.
"""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import hashlib
import logging
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from roquet._native import RemotingTls
from roquet.base.config import env_name, flag_name, how_to_set, load, setting, settings
from roquet.base.errors import Unreachable, UsageError
from roquet.base.overriding import override
from roquet.base.properties_file import read_properties
from roquet.protocol.hosts import split_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.base.clock import Clock

log = logging.getLogger(__name__)

_Context = TypeVar("_Context")

CLIENT_HELLO = 0x16
"""The first byte of a TLS connection; that of a frame is 0."""
HANDSHAKE_S = 10.0
SHUTDOWN_S = 2.0
RELOAD_S = 0.5
FILE_SIZE_MAX = 1024 * 1024

_NO_TLS = "leave out ROQUET_TLS_ENABLE, or tls=...; of a server -s tls.enable=false"

FILE_KEY = "tls.config.file"
TLS_ENABLE = "tls.enable"
_FILE_DEFAULT = "/etc/rocketmq/tls.properties"
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}


def _protocols_fault(text: str) -> str | None:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if all(name in _VERSIONS for name in names):
        return None
    return f"must be a comma-separated list of {', '.join(_VERSIONS)}; older ones are not offered"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS of a server process: of its ports, and of the connections it opens itself."""

    file: str = setting(FILE_KEY, _FILE_DEFAULT, "Property file with the settings below, if there.")
    mode: str = setting(
        "tls.server.mode",
        "permissive",
        "TLS on our ports: never, both (once there is a certificate), or nothing else.",
        choices=("disabled", "permissive", "enforcing"),
    )
    client_auth: str = setting(
        "tls.server.need.client.auth",
        "none",
        "Whether clients have to show a certificate.",
        choices=tuple(_CLIENT_AUTH),
    )
    server_cert: str = setting("tls.server.certPath", "", "Our certificate chain, PEM.")
    server_key: str = setting("tls.server.keyPath", "", "Its private key, PEM.")
    server_password: str = setting("tls.server.keyPassword", "", "Opens that key.", secret=True)
    server_trust: str = setting("tls.server.trustCertPath", "", "Who signs clients' certificates.")
    enable: bool | None = setting(
        TLS_ENABLE,
        None,
        "Whether the connections that we open use TLS; unset: they do when our ports take nothing"
        " else.",
    )
    test_mode: bool = setting(
        "tls.test.mode.enable",
        False,
        "Connections that we open trust any server; our ports need a certificate all the same.",
    )
    client_cert: str = setting("tls.client.certPath", "", "Certificate shown to servers, PEM.")
    client_key: str = setting("tls.client.keyPath", "", "Its private key, PEM.")
    client_password: str = setting("tls.client.keyPassword", "", "Opens that key.", secret=True)
    client_trust: str = setting(
        "tls.client.trustCertPath",
        "",
        "Who signs servers' certificates; the system's list if empty.",
    )
    auth_server: bool = setting(
        "tls.client.authServer", True, "Whether the server's certificate is checked."
    )
    check_hostname: bool = setting(
        "tls.client.checkHostname", True, "Whether it has to name the host we connected to."
    )
    protocols: str = setting(
        "tls.protocols", "", "Versions to offer; 1.2 and 1.3 if empty.", check=_protocols_fault
    )

    def options(self) -> TlsOptions | None:
        """Return how connections of our own use TLS; None when they do not.

        As in Java, a server whose port takes nothing else speaks TLS itself, too, unless
        `tls.enable` says otherwise: its name servers may be plain ones.
        """
        speaks_tls = self.mode == "enforcing" if self.enable is None else self.enable
        if not speaks_tls:
            return None
        return TlsOptions(
            ca=self.client_trust,
            cert=self.client_cert,
            key=self.client_key,
            key_password=self.client_password,
            verify=self.auth_server and not self.test_mode,
            check_hostname=self.check_hostname,
            protocols=self.protocols,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """How a client uses TLS. Paths are of PEM files; an empty one means there is none."""

    ca: str = ""
    """Who signs servers' certificates; the system's list when empty."""
    cert: str = ""
    """Certificate chain to show to servers that ask for one."""
    key: str = ""
    """Its private key; empty when it is in the same file."""
    key_password: str = dataclasses.field(default="", repr=False)
    verify: bool = True
    """Whether the server's certificate is checked at all: leave it on outside of tests."""
    check_hostname: bool = True
    """Whether the certificate has to name the host; a private CA may do without."""
    protocols: str = ""


class Certificates(Generic[_Context]):
    """A context made of files, made anew when their contents change.

    A change that cannot be used (half-written files, a key of another certificate) is logged once
    and the context in force stays.
    """

    def __init__(
        self,
        what: str,
        files: tuple[str, ...],
        make: Callable[[], _Context],
        clock: Clock,
    ) -> None:
        """Load nothing yet."""
        self._what = what
        self._files = tuple(Path(name).expanduser() for name in files if name)
        self._make = make
        self._clock = clock
        self._digest = b""
        self._context: _Context | None = None
        self._looked_ms = 0

    def load(self) -> _Context:
        """Return the context in force, made when there is none yet. Raises UsageError."""
        if self._context is None:
            self._digest = self._hash()
            self._context = self._make()
            self._looked_ms = self._clock.steady_ms()
        return self._context

    def look(self) -> bool:
        """Make the context anew if a file has changed; return whether it was replaced."""
        self._looked_ms = self._clock.steady_ms()
        try:
            digest = self._hash()
            if digest == self._digest:
                return False
            self._digest = digest
            self._context = self._make()
        except UsageError as error:
            log.warning("%s stays as it was: %s", self._what, error)
            return False
        log.info("%s was read again: its files have changed", self._what)
        return True

    def fresh(self) -> _Context:
        """Return the context for a new connection, looking at the files at most each 500 ms."""
        context = self.load()
        if self._clock.steady_ms() - self._looked_ms >= RELOAD_S * 1000:
            self.look()
            context = self.load()
        return context

    def _hash(self) -> bytes:
        digest = hashlib.sha256()
        for path in self._files:
            try:
                with path.open("rb") as file:
                    data = file.read(FILE_SIZE_MAX)
            except OSError:
                data = b"missing"
            digest.update(len(data).to_bytes(4, "big") + data)
        return digest.digest()


class PortTls(abc.ABC, Generic[_Context]):
    """What a port does with TLS. A service; `reload` keeps the certificate current."""

    def __init__(
        self, rules: TlsConfig, clock: Clock, what: str = "the server certificate"
    ) -> None:
        """Check what can be checked without reading. Raises UsageError."""
        self._rules = rules
        self.required = rules.mode == "enforcing"
        """Whether plain connections are refused."""
        self.why_not = ""
        """Why a TLS connection is refused."""
        self.context: _Context | None = None
        """For the next connection; None: TLS is refused."""
        self._certificates: Certificates[_Context] | None = None
        if rules.mode == "disabled":
            self.why_not = "tls.server.mode is disabled"
        elif not rules.server_cert:
            self.why_not = "there is no certificate: tls.server.certPath is not set"
            if self.required:
                raise UsageError(
                    "tls.server.mode = 'enforcing' needs tls.server.certPath and"
                    " tls.server.keyPath, PEM files of a certificate and its key; give each"
                    f" {how_to_set('tls.server.certPath')}"
                )
        else:
            if rules.client_auth != "none" and not rules.server_trust:
                raise UsageError(
                    f"tls.server.need.client.auth = {rules.client_auth!r} needs"
                    " tls.server.trustCertPath, a PEM file of who signs clients' certificates,"
                    f" {how_to_set('tls.server.trustCertPath')}"
                )
            files = (rules.server_cert, rules.server_key, rules.server_trust)
            self._certificates = Certificates(what, files, self._make, clock)

    @property
    def is_on(self) -> bool:
        """Whether TLS connections are taken."""
        return self._certificates is not None

    async def start(self) -> None:
        """Read the certificate. Raises UsageError."""
        if self._certificates is not None:
            self.context = await asyncio.to_thread(self._certificates.load)

    async def stop(self) -> None:
        """Nothing to do: connections keep the context that they began with."""

    async def reload(self) -> None:
        """Look at the files: the action of a timer."""
        if self._certificates is not None and await asyncio.to_thread(self._certificates.look):
            self.context = self._certificates.load()

    @abc.abstractmethod
    def _make(self) -> _Context:
        """Read the files. Raises UsageError."""


class ServerTls(PortTls["RemotingTls | ssl.SSLContext"]):
    """What a port of the remoting protocol does with TLS."""

    @override
    def _make(self) -> RemotingTls | ssl.SSLContext:
        """Let OpenSSL judge the files; where it may, the core does the work with them.

        The core takes neither keys under a password outside of PKCS#8 nor certificates of X.509's
        first version for our own.
        """
        rules = self._rules
        context = self._openssl()
        asks = rules.client_auth != "none"
        try:
            cert = pem_of(rules.server_cert)
            assert cert is not None, "without a certificate nothing is made"
            return RemotingTls(
                cert=cert,
                key=pem_of(rules.server_key),
                password=rules.server_password,
                versions=versions_of(rules.protocols),
                trust=pem_of(rules.server_trust) if asks else None,
                demands=rules.client_auth == "require",
            )
        except (OSError, ValueError) as error:
            log.info("OpenSSL serves TLS here, the core cannot use its files: %s", error)
            return context

    def _openssl(self) -> ssl.SSLContext:
        rules = self._rules
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _limit(context, rules.protocols)
        pair = ("tls.server.certPath", rules.server_cert, rules.server_key)
        _load_pair(context, pair, rules.server_password)
        context.verify_mode = _CLIENT_AUTH[rules.client_auth]
        if rules.client_auth != "none":
            _load_trust(context, "tls.server.trustCertPath", rules.server_trust)
            without_tickets(context)
        return context


def without_tickets(context: ssl.SSLContext) -> None:
    """Have the certificates of a server's clients judged at each connection.

    Who resumes a session by a ticket gets the next one, and would stay when the certificate has
    expired.
    """
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET


def pem_of(name: str) -> bytes | None:
    """Return what a file holds, None for no name. Raises OSError and ValueError."""
    if not name:
        return None
    with Path(name).expanduser().open("rb") as file:
        data = file.read(FILE_SIZE_MAX + 1)
    if len(data) > FILE_SIZE_MAX:
        raise ValueError(f"{name[:200]} has more than {FILE_SIZE_MAX} bytes")
    return data


class TlsMismatch(Unreachable):
    """One side speaks TLS and the other does not, or does not trust it: trying again is in vain."""


def why_not_plain(address: str, within_s: float = 1.0) -> TlsMismatch | None:
    """Look why `host:port` closed a connection without TLS; None when TLS is not the reason."""
    host, port = split_address(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is said over this connection: the question is only whether the peer speaks TLS.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), within_s) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            pass
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):
            return None
    except OSError:
        return None
    return TlsMismatch(
        f"{address} speaks only TLS: set ROQUET_TLS_ENABLE=true and, for certificates of your own,"
        " ROQUET_TLS_CLIENT_TRUST_CERT_PATH; in Python connect(..., tls=True); of a server"
        " tls.enable=true and tls.client.trustCertPath"
    )


def why_not_connected(address: str, error: OSError, *, uses_tls: bool) -> Unreachable:
    """Return the error for a connection that could not be made."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsMismatch(
            f"{address}: its certificate is not trusted ({error.verify_message}): name the CA's"
            " certificate by ROQUET_TLS_CLIENT_TRUST_CERT_PATH; in Python TlsOptions(ca=...); of a"
            " server tls.client.trustCertPath"
        )
    if isinstance(error, ssl.SSLError) and error.reason in (
        "WRONG_VERSION_NUMBER",
        "RECORD_LAYER_FAILURE",
        "UNEXPECTED_EOF_WHILE_READING",
    ):
        return TlsMismatch(f"{address} does not speak TLS: {_NO_TLS}")
    if uses_tls and isinstance(error, ConnectionResetError):
        # Or it is stopping: this may heal.
        return Unreachable(
            f"{address} closed the connection in the TLS handshake: if it does not speak TLS,"
            f" {_NO_TLS}"
        )
    return Unreachable(f"{address}: {error}")


class ClientTls:
    """The calling side's TLS: the context for each new connection."""

    def __init__(self, options: TlsOptions, clock: Clock) -> None:
        """Read nothing yet."""
        self._options = options
        files = (options.ca, options.cert, options.key)
        self._certificates = Certificates("the client's TLS", files, self._make, clock)

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection. Raises UsageError."""
        return self._certificates.fresh()

    def _make(self) -> ssl.SSLContext:
        options = self._options
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _limit(context, options.protocols)
        context.check_hostname = options.verify and options.check_hostname
        context.verify_mode = ssl.CERT_REQUIRED if options.verify else ssl.CERT_NONE
        if options.verify and options.ca:
            _load_trust(context, "tls.client.trustCertPath", options.ca)
        elif options.verify:
            context.load_default_certs()
        if options.cert:
            pair = ("tls.client.certPath", options.cert, options.key)
            _load_pair(context, pair, options.key_password)
        return context


def client_tls(options: TlsOptions | None, clock: Clock) -> ClientTls | None:
    """Return what connections of a client need to use TLS; None when they do not."""
    return None if options is None else ClientTls(options, clock)


def with_tls_file(
    given: Mapping[str, str], env: Mapping[str, str], flags: Mapping[str, str | int | bool | None]
) -> dict[str, str]:
    """Return a property file's contents with those of `tls.properties` below them.

    The file is the one that `tls.config.file` names, wherever that was set; only its `tls.` keys
    count. Raises UsageError when a file was named that cannot be read.
    """
    named = next(
        (str(flags[key]) for key in (FILE_KEY, flag_name(FILE_KEY)) if flags.get(key) is not None),
        env.get(env_name(FILE_KEY), given.get(FILE_KEY)),
    )
    path = Path(named or _FILE_DEFAULT).expanduser()
    try:
        found = read_properties(path.read_bytes())
    except OSError as error:
        if named:
            raise UsageError(f"{FILE_KEY} = {named[:80]!r}: {error.strerror}") from error
        return dict(given)
    below = {key: value for key, value in found.items() if key.startswith("tls.")}
    return {**below, **given}


def environment_options(env: Mapping[str, str]) -> TlsOptions | None:
    """Return what ROQUET_TLS_* variables and the file they name say; None: no TLS.

    Raises UsageError.
    """
    names = {env_name(about.java) for _, about, _ in settings(TlsConfig)}
    ours = {name: value for name, value in env.items() if name in names}
    rules, _ = load(TlsConfig, with_tls_file({}, ours, {}), ours)
    return rules.options() if rules.enable else None


def versions_of(protocols: str) -> tuple[bool, bool]:
    """Return whether TLS 1.2 is spoken, and 1.3, by the text of `tls.protocols`."""
    chosen = {_VERSIONS[name.strip()] for name in protocols.split(",") if name.strip()}
    return (
        not chosen or ssl.TLSVersion.TLSv1_2 in chosen,
        not chosen or ssl.TLSVersion.TLSv1_3 in chosen,
    )


def _limit(context: ssl.SSLContext, protocols: str) -> None:
    chosen = [_VERSIONS[name.strip()] for name in protocols.split(",") if name.strip()]
    context.minimum_version = min(chosen, default=ssl.TLSVersion.TLSv1_2)
    if chosen:
        context.maximum_version = max(chosen)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION


def _load_pair(context: ssl.SSLContext, pair: tuple[str, str, str], password: str) -> None:
    setting_name, cert, key = pair
    try:
        # A function and not a string: without a password OpenSSL would ask on the terminal.
        context.load_cert_chain(
            Path(cert).expanduser(), Path(key).expanduser() if key else None, lambda: password
        )
    except (OSError, ValueError) as error:
        raise UsageError(f"{setting_name} = {cert[:200]!r}: {_why(error)}") from error


def _load_trust(context: ssl.SSLContext, setting_name: str, path: str) -> None:
    try:
        context.load_verify_locations(Path(path).expanduser())
    except (OSError, ValueError) as error:
        raise UsageError(f"{setting_name} = {path[:200]!r}: {_why(error)}") from error


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "not PEM").lower().replace("_", " ")
        return f"cannot be used with its key ({reason})"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
