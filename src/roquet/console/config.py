"""What the console is told at start, and the bounds of everything that it keeps or waits for."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import urllib.parse
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError
from roquet.console.login.settings import Login
from roquet.protocol.hosts import split_address

if TYPE_CHECKING:
    from pathlib import Path

PROXIES_MAX = 32
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SCRIPT_SAFE = re.compile(r"(/[A-Za-z0-9._~-]+)*")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """Settings of one console."""

    bind: str = "127.0.0.1"
    port: int = 8082
    """0: any free one."""
    root_path: str = ""
    """Path below which a reverse proxy serves the console, as `/mq`; empty: at the root."""
    read_only: bool = False
    """Refuse every change, whoever asks."""
    hide_bodies: bool = False
    """Show bodies and properties of messages to nobody."""
    users: Path | None = None
    """File of accounts with passwords; None: only one-time tokens let somebody in."""
    audit_log: Path | None = None
    """File to which each action is appended, one JSON object a line."""
    alerts_state: Path | None = None
    """File that keeps alerts over a restart; None: they are judged anew then."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    proxy: str | None = None
    """Address of a reverse proxy whose X-Forwarded-For and -Proto are believed."""
    login: Login = dataclasses.field(default_factory=Login)
    """Who else says who somebody is."""
    hosts: tuple[str, ...] = ()
    """Host names by which browsers may reach the console, besides addresses of loopback."""
    cluster: str = ""
    """What the pages call the cluster; the name servers' addresses, usually."""
    home: str | None = None
    """Path of the first cluster's pages, where people sign in and out; None: `root_path`."""
    clusters: tuple[tuple[str, str], ...] = ()
    """Name and path of each cluster, where there are several."""
    proxies: tuple[str, ...] = ()
    """Where proxies of the cluster, or brokers that serve gRPC, have their page of figures."""

    def __post_init__(self) -> None:
        """Raise UsageError for settings that would give the console away."""
        if not SCRIPT_SAFE.fullmatch(self.root_path):
            raise UsageError(f"--root-path {self.root_path[:80]!r}: it should look like /console")
        if len(self.proxies) > PROXIES_MAX:
            raise UsageError(f"--cluster-proxy: at most {PROXIES_MAX}")
        for address in self.proxies:
            try:
                split_address(address)
            except ValueError as error:
                raise UsageError(f"--cluster-proxy: {error}") from error
        self._check_login()
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError("give --tls-cert and --tls-key, or neither")
        if self.is_loopback or self.tls_cert is not None or self.proxy is not None:
            return
        raise UsageError(
            f"--bind {self.bind}: passwords would cross the network in the clear; give --tls-cert"
            " and --tls-key, or --proxy with the address of a reverse proxy that speaks TLS"
        )

    def _check_login(self) -> None:
        oidc = self.login.oidc
        if oidc is None:
            return
        parts = urllib.parse.urlsplit(oidc.url)
        if parts.path != self.base:
            raise UsageError(
                f"--login: oidc: url {oidc.url} and --root-path {self.base or '/'} differ: people"
                " would come back to nothing"
            )
        host = (parts.hostname or "").lower()
        if (self.hosts or self.is_loopback) and host not in (
            *LOOPBACK,
            *map(str.lower, self.hosts),
        ):
            raise UsageError(
                f"--login: oidc: people come back to {host}: allow it by --host {host}"
            )
        if parts.scheme == "http" and self.tls_cert is not None:
            raise UsageError(f"--login: oidc: url {oidc.url} is http, and the console speaks TLS")

    @property
    def base(self) -> str:
        """Path below which all of the console is."""
        return self.root_path if self.home is None else self.home

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the console."""
        return ipaddress.ip_address(self.bind).is_loopback


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds. Times are seconds, sizes bytes."""

    body: int = 1024 * 1024
    """Of a request."""
    head: int = 16 * 1024
    connections: int = 100
    request_s: float = 10.0
    """For the whole request to arrive."""
    work_s: float = 20.0
    """For the cluster to give what a page needs."""
    works: int = 8
    """Pages and actions that ask the cluster at the same time."""
    works_waiting: int = 32
    questions: int = 8
    """Requests to the cluster of one page at the same time."""
    sessions: int = 256
    session_s: float = 12 * 3600.0
    idle_s: float = 3600.0
    sessions_each: int = 8
    """Sessions of one account of the cluster; the one that was idle for longest ends."""
    account_clients: int = 32
    """Open clients of sessions with accounts of the cluster."""
    account_idle_s: float = 300.0
    """So long after its last use such a client is closed."""
    links: int = 32
    """One-time tokens that nobody has used yet."""
    link_s: float = 900.0
    failures: int = 10
    """Failed sign-ins a minute from one address."""
    failures_all: int = 100
    """Failed sign-ins by password a minute, of all addresses together."""
    failing_addresses: int = 4096
    """Addresses whose failed sign-ins are counted; the one that tried least recently goes."""
    users: int = 1000
    streams: int = 16
    """Live tails at the same time, four of them for one session."""
    streams_each: int = 4
    stream_s: float = 900.0
    audit_rows: int = 1000
    """Kept in memory for the page."""
    shown_body: int = 16 * 1024
    """Of a message's body on a page."""
    stacks: int = 128 * 1024
    """Characters of a member's stacks on a page."""
    published_body: int = 256 * 1024
    found: int = 200
    """Messages of one search."""
    scanned: int = 20_000
    """Messages that one search reads."""
    exported: int = 2_000
    """Messages of one file."""
    exported_bytes: int = 16 * 1024 * 1024
    """Of these, as they are stored."""
    page: int = 25
    """Rows of a page that need requests of their own."""
    rows: int = 300
    """Rows of a table that need none: queues, members, accounts."""
