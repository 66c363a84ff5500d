"""The file of `--login`: who else than the console says who somebody is.

tokens = false

[oidc]
issuer = "https://login.example"
client_id = "roquet"
url = "https://mq.example"

[oidc.roles]
administrator = ["mq-admins"]

[cluster]
role = "operator"
"""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from roquet.base.errors import UsageError
from roquet.console import private_toml
from roquet.console.roles import Role, RoleMap, role_of
from roquet.protocol.hosts import is_within, read_ip, read_network

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roquet.protocol.hosts import Network

BACK = "/login/oidc/back"
"""Path to which the provider sends browsers back, below the root."""
_SIZE_MAX = 64 * 1024
_GROUPS_MAX = 1000
_TEXT_MAX = 512
_KEYS = {"tokens", "oidc", "header", "cluster"}
_OIDC = {
    "issuer",
    "client_id",
    "client_secret",
    "url",
    "name",
    "groups",
    "scopes",
    "ca",
    "label",
    "roles",
}
_HEADER = {"from", "user", "groups", "logout", "roles"}
_ROLES = {*(it.word for it in Role), "others"}
_FIELD = re.compile(r"[A-Za-z0-9-]{1,64}")
_NEVER = (
    *("authorization", "connection", "content-length", "content-type", "cookie", "host"),
    *("hx-request", "transfer-encoding", "x-csrf-token", "x-forwarded-for", "x-forwarded-proto"),
)
"""Headers that browsers or the console itself use."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OidcConfig:
    """An OpenID provider, and what the console is to it."""

    issuer: str
    client_id: str
    client_secret: str = dataclasses.field(default="", repr=False)
    """Empty for a public client, which PKCE alone protects."""
    url: str
    """Where browsers reach the console, with its root path."""
    name: str = "preferred_username"
    """Claim with the name for people; `sub` is taken where a token lacks it."""
    groups: str = "groups"
    """Claim with the groups; `a.b` is b within the object a."""
    scopes: str = "openid profile"
    ca: Path | None = None
    """Certificates of authorities for the provider, instead of the system's."""
    label: str = "OpenID Connect"
    """What the page of signing in calls the provider."""
    roles: RoleMap

    @property
    def redirect_uri(self) -> str:
        """Address that is registered at the provider."""
        return self.url + BACK

    @property
    def is_secure(self) -> bool:
        """Whether browsers come by TLS."""
        return self.url.startswith("https:")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HeaderConfig:
    """A reverse proxy that has judged who somebody is and says so by headers."""

    sources: tuple[Network, ...]
    """Where the proxy connects from; headers of anybody else are dropped."""
    user: str
    groups: str
    """Names of the headers, in lower case; the second may be empty."""
    logout: str = ""
    """Address at which the proxy signs somebody out."""
    roles: RoleMap

    def is_trusted(self, address: str) -> bool:
        """Tell whether a connection is one of the proxy's."""
        return is_within(address, self.sources)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Accounts of the cluster sign in, and ask for themselves."""

    role: Role = Role.ADMINISTRATOR
    """The most that they may do here; the cluster says what each of them may."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """All ways in besides a file of accounts."""

    tokens: bool = True
    """Whether one-time tokens sign in."""
    oidc: OidcConfig | None = None
    header: HeaderConfig | None = None
    cluster: ClusterConfig | None = None


def load(file: Path) -> Login:
    """Read the file. Raises UsageError for what is wrong, missing or only half there."""
    where = f"--login {file}"
    source = private_toml.read(where, file, _SIZE_MAX)
    _known(where, source, _KEYS)
    tokens = source.get("tokens", True)
    if not isinstance(tokens, bool):
        raise UsageError(f"{where}: tokens is true or false")
    oidc = _oidc(f"{where}: oidc", _table(where, source, "oidc")) if "oidc" in source else None
    header = None
    if "header" in source:
        header = _header(f"{where}: header", _table(where, source, "header"))
    cluster = None
    if "cluster" in source:
        cluster = _cluster(f"{where}: cluster", _table(where, source, "cluster"))
    if oidc is None and header is None and cluster is None:
        raise UsageError(
            f"{where} has neither [oidc] nor [header] nor [cluster]: nobody signs in by it"
        )
    return Login(tokens=tokens, oidc=oidc, header=header, cluster=cluster)


def _cluster(where: str, source: Mapping[str, Any]) -> ClusterConfig:
    _known(where, source, {"role"})
    if "role" not in source:
        return ClusterConfig()
    return ClusterConfig(role=role_of(_text(where, source, "role")))


def _oidc(where: str, source: Mapping[str, Any]) -> OidcConfig:
    _known(where, source, _OIDC)
    given = {it: _text(where, source, it) for it in _OIDC - {"roles"} if it in source}
    for name in ("issuer", "client_id", "url"):
        if name not in given:
            raise UsageError(f"{where}: {name} is missing")
    if "roles" not in source:
        raise UsageError(f"{where}: [oidc.roles] is missing: nobody would have a role")
    checked_url(f"{where}: issuer", given["issuer"])
    given["url"] = given["url"].rstrip("/")
    checked_url(f"{where}: url", given["url"])
    scopes = given.get("scopes", "openid").split()
    if "openid" not in scopes:
        raise UsageError(f"{where}: scopes need openid")
    ca = given.pop("ca", None)
    roles = _roles(where, source)
    return OidcConfig(**given, ca=None if ca is None else Path(ca), roles=roles)


def _header(where: str, source: Mapping[str, Any]) -> HeaderConfig:
    _known(where, source, _HEADER)
    addresses = source.get("from")
    if not isinstance(addresses, list) or not 1 <= len(cast("Sequence[Any]", addresses)) <= 32:
        raise UsageError(f"{where}: from is a list of 1 to 32 addresses of the reverse proxy")
    sources: list[Network] = []
    for it in cast("Sequence[Any]", addresses):
        try:
            found = read_network(str(it))
        except ValueError as error:
            raise UsageError(f"{where}: from: {error}") from error
        if not found.prefixlen:
            raise UsageError(f"{where}: from: {it} is everybody, who could then be anybody")
        sources.append(found)
    user = _field(where, source, "user")
    groups = _field(where, source, "groups") if "groups" in source else ""
    if not user:
        raise UsageError(f"{where}: user is missing: the header that has the name")
    if user == groups:
        raise UsageError(f"{where}: user and groups are two headers")
    roles = _roles(where, source) if "roles" in source else RoleMap()
    if not groups and roles.others is None:
        raise UsageError(
            f"{where}: give groups, the header that has the groups, or others in [header.roles]"
        )
    logout = _text(where, source, "logout") if "logout" in source else ""
    if logout:
        checked_url(f"{where}: logout", logout, with_query=True)
    return HeaderConfig(
        sources=tuple(sources), user=user, groups=groups, logout=logout, roles=roles
    )


def _field(where: str, source: Mapping[str, Any], name: str) -> str:
    found = _text(where, source, name).lower() if name in source else ""
    if found and (not _FIELD.fullmatch(found) or found in _NEVER):
        raise UsageError(f"{where}: {name}: {found[:64]!r} is no header for that")
    return found


def _roles(where: str, source: Mapping[str, Any]) -> RoleMap:
    rows = _table(where, source, "roles")
    where = f"{where}.roles"
    _known(where, rows, _ROLES)
    groups: dict[str, Role] = {}
    for role in Role:
        names = rows.get(role.word, [])
        if not isinstance(names, list) or not all(
            isinstance(it, str) and it for it in cast("Sequence[Any]", names)
        ):
            raise UsageError(f"{where}: {role.word} is a list of groups")
        # Of a group that stands twice the higher role counts, as for somebody in two groups.
        groups |= dict.fromkeys(cast("Sequence[str]", names), role)
    others = rows.get("others")
    if others is not None and not isinstance(others, str):
        raise UsageError(f"{where}: others is a role")
    if not groups and others is None:
        raise UsageError(f"{where} names no group: nobody would have a role")
    if len(groups) > _GROUPS_MAX:
        raise UsageError(f"{where} has more than {_GROUPS_MAX} groups")
    return RoleMap(groups=groups, others=None if others is None else role_of(others))


def checked_url(where: str, url: str, *, with_query: bool = False) -> urllib.parse.SplitResult:
    """Return the parts of an address of http, which is for loopback only, or https.

    Raises UsageError.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        good = bool(parts.hostname) and parts.port != 0 and parts.username is None
    except ValueError:
        parts, good = urllib.parse.urlsplit(""), False
    good = good and url.isascii() and url.isprintable() and not set(url) & set(' "<>\\^`{|}')
    if parts.fragment or (parts.query and not with_query):
        good = False
    if not good or parts.scheme not in ("http", "https"):
        raise UsageError(f"{where} should look like https://host/path: {url[:80]!r}")
    if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
        raise UsageError(f"{where}: {url[:80]} crosses the network in the clear: use https")
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return read_ip(host).is_loopback
    except ValueError:
        return host == "localhost"


def _table(where: str, source: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = source.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(f"{where}: {name} should be a table")
    return cast("dict[str, Any]", found)


def _known(where: str, source: Mapping[str, Any], known: set[str]) -> None:
    for name in source:
        if name not in known:
            raise UsageError(f"{where}: {name[:64]!r} is no key: {', '.join(sorted(known))}")


def _text(where: str, source: Mapping[str, Any], name: str) -> str:
    found = source[name]
    if not isinstance(found, str) or not found or len(found) > _TEXT_MAX or not found.isprintable():
        raise UsageError(f"{where}: {name} is a text of 1 to {_TEXT_MAX} characters")
    return found
