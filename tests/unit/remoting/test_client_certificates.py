"""Certificates of clients: the core takes those that OpenSSL takes, which is asked about each."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import ipaddress
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from roquet._native import RemotingTls
from roquet.base.clock import SystemClock
from roquet.remoting.tls import ServerTls, TlsConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ECDSA_WITH_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")
IS_HANDSHAKING = 2
ROUNDS = 20
KEY_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclasses.dataclass
class Made:
    """A certificate and its key."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    der: bytes

    @property
    def pem(self) -> bytes:
        return ssl.DER_cert_to_PEM_cert(self.der).encode()


def made(
    name: str,
    by: Made | None = None,
    *,
    ca: bool | None = None,
    path: int | None = None,
    usage: tuple[str, ...] = (),
    purposes: tuple[ObjectIdentifier, ...] = (),
    days: tuple[int, int] = (-10, 10),
    more: tuple[tuple[x509.ExtensionType, bool], ...] = (),
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
) -> Made:
    """Return a certificate of the third version; without `by` it has signed itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    key = key or ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by.name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + dt.timedelta(days=days[0]))
        .not_valid_after(now + dt.timedelta(days=days[1]))
    )
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca, path), critical=True)
    if usage:
        bits = {one: one in usage for one in KEY_USAGES}
        builder = builder.add_extension(x509.KeyUsage(**bits), critical=True)
    if purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    for extension, critical in more:
        builder = builder.add_extension(extension, critical=critical)
    cert = builder.sign(key if by is None else by.key, hashes.SHA256())
    return Made(subject, key, cert.public_bytes(serialization.Encoding.DER))


def sequence(*parts: bytes, tag: bytes = b"\x30") -> bytes:
    body = b"".join(parts)
    assert 0x80 <= len(body) < 0x10000
    size = b"\x81" + bytes([len(body)]) if len(body) < 0x100 else b"\x82" + len(body).to_bytes(2)
    return tag + size + body


def of_first_version(name: str, by: Made | None = None, **changes: Any) -> Made:
    """Return a certificate without version and extensions, as `openssl x509 -req` makes them."""
    third = made(name, by, **changes)
    body = x509.load_der_x509_certificate(third.der).tbs_certificate_bytes
    at = body.index(b"\xa0\x03\x02\x01\x02")
    assert at <= 4
    body = sequence(body[at + 5 :])
    signer = (by or third).key
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    signature = b"\0" + signer.sign(body, ec.ECDSA(hashes.SHA256()))
    signature = bytes([3, len(signature)]) + signature
    return Made(third.name, third.key, sequence(body, ECDSA_WITH_SHA256, signature))


UNKNOWN = (x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4.5"), b"\x05\x00"), True)
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
AUTHORITY = made("authority", ca=True, usage=("key_cert_sign", "crl_sign"))
SAME_NAME = made("authority", ca=True)
BETWEEN = made("between", AUTHORITY, ca=True)


def named(*names: str) -> tuple[x509.ExtensionType, bool]:
    return x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), False


def below(name: str) -> tuple[x509.ExtensionType, bool]:
    return x509.NameConstraints([x509.DNSName(name)], None), True


def beside(name: str) -> tuple[x509.ExtensionType, bool]:
    return x509.NameConstraints(None, [x509.DNSName(name)]), True


Case = tuple[list[Made], list[Made], bool]
"""The chain that is shown, what is trusted, whether it is taken."""


def cases() -> dict[str, Case]:  # noqa: PLR0915 # one line a case
    """Return the cases by their names."""
    found: dict[str, Case] = {}

    def case(what: str, shown: Made | list[Made], trusted: Made | list[Made], taken: bool) -> None:
        shown = [shown] if isinstance(shown, Made) else shown
        found[what] = (shown, [trusted] if isinstance(trusted, Made) else trusted, taken)

    def itself(what: str, shown: Made, taken: bool) -> None:
        case(what, shown, shown, taken)

    case("signed", made("c", AUTHORITY), AUTHORITY, True)
    case("signed, CA false", made("c", AUTHORITY, ca=False), AUTHORITY, True)
    case("signed, for clients", made("c", AUTHORITY, purposes=(CLIENT,)), AUTHORITY, True)
    case("signed, to sign", made("c", AUTHORITY, usage=("digital_signature",)), AUTHORITY, True)
    rsa_key = rsa.generate_private_key(65537, 2048)
    case("signed, RSA", made("c", AUTHORITY, key=rsa_key), AUTHORITY, True)
    case("expired", made("c", AUTHORITY, days=(-10, -1)), AUTHORITY, False)
    case("not yet valid", made("c", AUTHORITY, days=(1, 10)), AUTHORITY, False)
    case("of another authority", made("c", made("other", ca=True)), AUTHORITY, False)
    case("of another of the same name", made("c", SAME_NAME), AUTHORITY, False)
    case("for servers", made("c", AUTHORITY, purposes=(SERVER,)), AUTHORITY, False)
    case("for both", made("c", AUTHORITY, purposes=(SERVER, CLIENT)), AUTHORITY, True)
    case("to encipher", made("c", AUTHORITY, usage=("key_encipherment",)), AUTHORITY, False)
    case("to sign others", made("c", AUTHORITY, usage=("key_cert_sign",)), AUTHORITY, False)
    case("unknown extension", made("c", AUTHORITY, more=(UNKNOWN,)), AUTHORITY, False)

    itself("itself, authority", made("c", ca=True), True)
    itself("itself, no authority", made("c", ca=False), True)
    itself("itself, plain", made("c"), True)
    itself("itself, expired", made("c", ca=True, days=(-10, -1)), False)
    itself("itself, not yet valid", made("c", ca=True, days=(1, 10)), False)
    itself("itself, for servers", made("c", ca=True, purposes=(SERVER,)), False)
    itself("itself, to sign others", AUTHORITY, False)
    itself("itself, unknown extension", made("c", ca=True, more=(UNKNOWN,)), False)
    itself("itself, issued by another", made("c", AUTHORITY), False)
    case("self-signed, not trusted", made("c", ca=True), AUTHORITY, False)
    case("self-signed, name of a trusted one", made("authority", ca=True), AUTHORITY, False)

    case("authority, signed", made("c", AUTHORITY, ca=True), AUTHORITY, True)
    case("authority, expired", made("c", AUTHORITY, ca=True, days=(-10, -1)), AUTHORITY, False)
    case("authority, of another", made("c", SAME_NAME, ca=True), AUTHORITY, False)
    case("authority, unknown", made("c", AUTHORITY, ca=True, more=(UNKNOWN,)), AUTHORITY, False)

    case("behind another", [made("c", BETWEEN), BETWEEN], AUTHORITY, True)
    case("behind one that is not shown", made("c", BETWEEN), AUTHORITY, False)
    case("behind one that is trusted", made("c", BETWEEN), [BETWEEN, AUTHORITY], True)
    case("behind one that alone is trusted", made("c", BETWEEN), BETWEEN, False)
    others: dict[str, dict[str, Any]] = {
        "no authority": {"ca": False},
        "one that may not sign": {"ca": True, "usage": ("crl_sign",)},
        "one for servers": {"ca": True, "purposes": (SERVER,)},
        "an expired one": {"ca": True, "days": (-10, -1)},
        "one of another": {"ca": True, "by": SAME_NAME},
    }
    for what, changes in others.items():
        between = made("b", **(dict[str, Any](by=AUTHORITY) | changes))
        case(f"behind {what}", [made("c", between), between], AUTHORITY, False)
    roots: tuple[tuple[str, dict[str, Any], bool], ...] = (
        ("without constraints", {}, False),
        ("no authority", {"ca": False}, False),
        ("expired", {"ca": True, "days": (-10, -1)}, False),
        ("that may not sign", {"ca": True, "usage": ("crl_sign",)}, False),
        ("for servers", {"ca": True, "purposes": (SERVER,)}, False),
        ("with an unknown extension", {"ca": True, "more": (UNKNOWN,)}, False),
        ("of no path", {"ca": True, "path": 0}, True),
        ("for names of the client", {"ca": True, "more": (below("a.org"),)}, True),
        ("for other names", {"ca": True, "more": (below("b.org"),)}, False),
    )
    for what, changes, taken in roots:
        root = made("root", **changes)
        case(f"of a root {what}", made("c", root, more=(named("a.org"),)), root, taken)
    # A common name that looks like a host's is one, unless an extension names hosts.
    hosts: tuple[tuple[str, tuple[x509.ExtensionType, bool], bool], ...] = (
        ("x.a.org", below("a.org"), True),
        ("X.A.ORG", below("a.Org"), True),
        ("a.org", below("a.org"), True),
        ("x.b.org", below("a.org"), False),
        ("xa.org", below("a.org"), False),
        ("x.b_b.org", below("a.org"), False),
        ("a.org.b", below("a.org"), False),
        ("plain", below("a.org"), True),
        ("two words.b.org", below("a.org"), True),
        ("x.-b.org", below("a.org"), True),
        ("x..b.org", below("a.org"), True),
        ("x.b.org.", below("a.org"), True),
        ("x.a.org", below(".a.org"), True),
        ("a.org", below(".a.org"), False),
        ("x.b.org", beside("a.org"), True),
        ("x.a.org", beside("a.org"), False),
        ("a.org", beside("a.org"), False),
        ("xa.org", beside("a.org"), True),
    )
    for name, limit, taken in hosts:
        title = f"host {name!r} of a root for {limit[0]!r}"
        root = made("root", ca=True, more=(limit,))
        case(title, made(name, root), root, taken)
        between = made("b", AUTHORITY, ca=True, more=(limit,))
        case(f"behind one: {title}", [made(name, between), between], AUTHORITY, taken)
    only = made("root", ca=True, more=(below("a.org"),))
    other = named("x.a.org")
    case("host in subject and in its place", made("x.b.org", only, more=(other,)), only, True)
    # Of what is shown beside, enough is looked at for chains with needless ones.
    upper = made("upper", AUTHORITY, ca=True)
    lower = made("lower", upper, ca=True)
    noise = [made(f"noise {it}", ca=True) for it in range(9)]
    twins = [made("lower", AUTHORITY, ca=True) for _ in range(2)]
    shown = [made("c", lower), *noise, lower, *twins, upper]
    case("behind two among others and of one name", shown, AUTHORITY, True)
    flat = made("root", ca=True, path=0)
    between = made("b", flat, ca=True)
    case("behind one more than its root allows", [made("c", between), between], flat, False)

    case("first version", of_first_version("c", AUTHORITY), AUTHORITY, True)
    case(
        "first version, expired", of_first_version("c", AUTHORITY, days=(-10, -1)), AUTHORITY, False
    )
    case("first version, of another", of_first_version("c", SAME_NAME), AUTHORITY, False)
    old = of_first_version("root")
    itself("first version, itself", old, True)
    case("first version, not trusted", old, AUTHORITY, False)
    case("of a root of the first version", made("c", old), old, True)
    case("both of the first version", of_first_version("c", old), old, True)
    return found


CASES = cases()


class Port:
    """A port's TLS by OpenSSL and by the core."""

    def __init__(self, folder: Path, trusted: list[Made], client_auth: str = "require") -> None:
        leaf = trustme.CA().issue_cert("127.0.0.1")
        cert, trust = folder / "cert.pem", folder / "trust.pem"
        leaf.private_key_and_cert_chain_pem.write_to_path(str(cert))
        trust.write_bytes(b"".join(one.pem for one in trusted))
        rules = TlsConfig(server_cert=str(cert), client_auth=client_auth, server_trust=str(trust))
        tls = ServerTls(rules, SystemClock())
        self.openssl = tls._openssl()
        core = tls._make()
        assert isinstance(core, RemotingTls)
        self.core = core


class Client:
    """A client whose bytes the test carries."""

    def __init__(self, folder: Path, shown: list[Made], version: ssl.TLSVersion) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.minimum_version = context.maximum_version = version
        if shown:
            file = folder / "client.pem"
            key = shown[0].key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            file.write_bytes(key + b"".join(one.pem for one in shown))
            context.load_cert_chain(file)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out)

    @property
    def may_resume(self) -> bool:
        """Whether the server has given what a session is resumed with."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.read(1)
        session = self._tls.session
        return session is not None and session.has_ticket

    def say(self, heard: bytes) -> bytes:
        self._in.write(heard)
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._out.read()


def openssl_takes(context: ssl.SSLContext, client: Client) -> bool:
    """Tell whether OpenSSL agrees with a client."""
    came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(came, goes, server_side=True)
    for _ in range(ROUNDS):
        came.write(client.say(goes.read()))
        try:
            server.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            return False
        client.say(goes.read())
        return True
    raise AssertionError("the handshake does not end")


def core_takes(
    tls: RemotingTls, client: Client, change: Callable[[bytes], bytes] = lambda said: said
) -> bool:
    """Tell whether the core agrees with a client, whose bytes may be changed on the way."""
    server = tls.session()
    for _ in range(ROUNDS):
        try:
            _, flags = server.take(change(client.say(server.output())))
        except ValueError:
            return False
        if not flags & IS_HANDSHAKING:
            client.say(server.output())
            return True
    raise AssertionError("the handshake does not end")


@pytest.mark.parametrize("what", CASES)
def test_core_takes_the_certificates_of_clients_that_openssl_takes(
    what: str, tmp_path: Path
) -> None:
    shown, trusted, taken = CASES[what]
    port = Port(tmp_path, trusted)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        by_openssl = openssl_takes(port.openssl, Client(tmp_path, shown, version))
        by_core = core_takes(port.core, Client(tmp_path, shown, version))
        assert (by_openssl, by_core) == (taken, taken), version


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("client_auth", "what", "taken"),
    [
        ("require", "", False),
        ("optional", "", True),
        ("optional", "signed", True),
        ("optional", "self-signed, not trusted", False),
    ],
)
def test_client_may_show_no_certificate_only_where_it_is_optional(
    client_auth: str, what: str, taken: bool, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    port = Port(tmp_path, [AUTHORITY], client_auth)
    shown = CASES[what][0] if what else []
    assert openssl_takes(port.openssl, Client(tmp_path, shown, version)) == taken
    assert core_takes(port.core, Client(tmp_path, shown, version)) == taken


@pytest.mark.parametrize("make", [made, of_first_version])
@pytest.mark.parametrize("is_itself", [False, True])
def test_certificate_of_another_is_refused_without_its_key(
    make: Callable[..., Made], is_itself: bool, tmp_path: Path
) -> None:
    by = None if is_itself else AUTHORITY
    other = make("c", by)
    mine = make("c", by)
    while len(mine.der) != len(other.der):
        mine = make("c", by)
    port = Port(tmp_path, [other if is_itself else AUTHORITY])
    changed: list[bool] = []

    def change(said: bytes) -> bytes:
        changed.append(mine.der in said)
        return said.replace(mine.der, other.der)

    # Its certificate is not sealed in this version.
    client = Client(tmp_path, [mine], ssl.TLSVersion.TLSv1_2)
    assert not core_takes(port.core, client, change)
    assert any(changed)
    assert core_takes(port.core, Client(tmp_path, [other], ssl.TLSVersion.TLSv1_2))


def test_authority_behind_another_is_no_client_of_the_core_as_it_is_of_openssl(
    tmp_path: Path,
) -> None:
    """No chain is built for what webpki does not take."""
    shown = [made("c", BETWEEN, ca=True), BETWEEN]
    port = Port(tmp_path, [AUTHORITY])
    version = ssl.TLSVersion.TLSv1_3
    assert openssl_takes(port.openssl, Client(tmp_path, shown, version))
    assert not core_takes(port.core, Client(tmp_path, shown, version))


def test_addresses_in_a_certificate_are_no_hindrance(tmp_path: Path) -> None:
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    shown = [made("c", AUTHORITY, more=((x509.SubjectAlternativeName([address]), True),))]
    port = Port(tmp_path, [AUTHORITY])
    assert core_takes(port.core, Client(tmp_path, shown, ssl.TLSVersion.TLSv1_3))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("client_auth", ["none", "optional", "require"])
def test_where_certificates_are_asked_for_no_session_is_resumed(
    client_auth: str, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    port = Port(tmp_path, [AUTHORITY], client_auth)
    by_openssl, by_core = (Client(tmp_path, [made("c", AUTHORITY)], version) for _ in range(2))
    assert openssl_takes(port.openssl, by_openssl)
    assert core_takes(port.core, by_core)
    may = client_auth == "none"
    assert (by_openssl.may_resume, by_core.may_resume) == (may, may)
