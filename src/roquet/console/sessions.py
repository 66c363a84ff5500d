"""Who is signed in: one-time tokens, sessions, and how often a sign-in may fail.

No clock and no socket here: times are given, in seconds of a clock that never goes back. Of a
session's key only the SHA-256 is kept, so that a dump of the memory signs nobody in.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import hmac
import ipaddress
import secrets
from typing import TYPE_CHECKING

from roquet.protocol.hosts import read_ip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roquet.acl.credentials import Credentials
    from roquet.console.config import Limits
    from roquet.console.roles import Role

_ONE_MINUTE_S = 60.0


@dataclasses.dataclass(slots=True, kw_only=True)
class Session:
    """Somebody who is signed in."""

    name: str
    role: Role
    began_s: float
    seen_s: float
    csrf: str
    via: str = ""
    """What signed in: `oidc`, `header`, `cluster`; empty for a token or a password."""
    said: str = ""
    """What the last action said, for the next page."""
    results: Sequence[Mapping[str, str]] = ()
    """What became of each thing that the last action was about."""
    streams: int = 0
    """Live tails that are open."""
    account: Credentials | None = dataclasses.field(default=None, repr=False)
    """The account of the cluster that signs what this session asks; gone when it ends."""

    @property
    def is_account(self) -> bool:
        """Whether an account of the cluster signed in: the cluster says what it may, not a role."""
        return self.via == "cluster"


@dataclasses.dataclass(frozen=True, slots=True)
class _Link:
    name: str
    role: Role
    ends_s: float | None


class Sessions:
    """The sessions and the one-time tokens of a console."""

    def __init__(self, limits: Limits) -> None:
        """Know nobody."""
        self._limits = limits
        self._sessions: dict[bytes, Session] = {}
        self._own = secrets.token_bytes(32)
        self._links: dict[bytes, _Link] = {}
        self._tries: collections.deque[float] = collections.deque(maxlen=limits.failures_all)
        self._tries_from: collections.OrderedDict[str, collections.deque[float]] = (
            collections.OrderedDict()
        )

    # --- one-time tokens ---------------------------------------------------------------------

    def make_link(self, name: str, role: Role, now_s: float | None) -> str | None:
        """Return a new token that signs in once; `now_s` None: it is good until it is used.

        None when there are too many that nobody has used.
        """
        if now_s is not None:
            self._drop_links(now_s)
            if len(self._links) >= self._limits.links:
                return None
        token = secrets.token_urlsafe(24)
        ends_s = None if now_s is None else now_s + self._limits.link_s
        self._links[_digest(token)] = _Link(name, role, ends_s)
        return token

    def use_link(self, token: str, now_s: float) -> tuple[str, str, Role] | None:
        """Sign in by a token, which is no good afterwards; return key, name and role."""
        self._drop_links(now_s)
        link = self._links.pop(_digest(token), None)
        if link is None:
            return None
        return self.begin(link.name, link.role, now_s), link.name, link.role

    def _drop_links(self, now_s: float) -> None:
        for digest, link in tuple(self._links.items()):
            if link.ends_s is not None and link.ends_s <= now_s:
                del self._links[digest]

    # --- sessions ----------------------------------------------------------------------------

    def begin(self, name: str, role: Role, now_s: float, *, via: str = "") -> str:
        """Return the key of a new session; the one that was idle for longest ends for it."""
        key = secrets.token_urlsafe(32)
        self._begin(_digest(key), name, role, now_s, via)
        return key

    def begin_account(self, account: Credentials, role: Role, now_s: float) -> str:
        """Return the key of a new session that asks with an account of the cluster.

        Each account has few: whoever has one does not end the sessions of others.
        """
        name = f"cluster:{account.access_key}"
        mine = [digest for digest, it in self._sessions.items() if it.name == name]
        mine.sort(key=lambda it: self._sessions[it].seen_s)
        for digest in mine[: len(mine) + 1 - self._limits.sessions_each]:
            self._drop(digest)
        key = secrets.token_urlsafe(32)
        self._begin(_digest(key), name, role, now_s, "cluster").account = account
        return key

    def asserted(self, name: str, role: Role, now_s: float) -> tuple[Session, bool]:
        """Return the session of whom a proxy names in each request, and whether it is a new one.

        No key leads there, and another role of the same name begins anew.
        """
        digest = hmac.digest(self._own, name.encode(errors="replace"), hashlib.sha256)
        session = self._sessions.get(digest)
        if session is not None and session.role == role and not self._is_over(session, now_s):
            session.seen_s = now_s
            return session, False
        return self._begin(digest, name, role, now_s, "header"), True

    def _begin(self, digest: bytes, name: str, role: Role, now_s: float, via: str) -> Session:
        for known, session in tuple(self._sessions.items()):
            if self._is_over(session, now_s):
                self._drop(known)
        while len(self._sessions) >= self._limits.sessions:
            oldest = min(self._sessions, key=lambda it: self._sessions[it].seen_s)
            self._drop(oldest)
        csrf = secrets.token_urlsafe(24)
        made = Session(name=name, role=role, began_s=now_s, seen_s=now_s, csrf=csrf, via=via)
        self._sessions[digest] = made
        return made

    def find(self, key: str, now_s: float, *, is_asked_by_page: bool = False) -> Session | None:
        """Return whose key it is; a page that refreshes itself does not keep a session alive."""
        digest = _digest(key)
        session = self._sessions.get(digest)
        if session is None:
            return None
        if self._is_over(session, now_s):
            self._drop(digest)
            return None
        if not is_asked_by_page:
            session.seen_s = now_s
        return session

    def end(self, session: Session) -> None:
        """Sign out."""
        for digest, it in tuple(self._sessions.items()):
            if it is session:
                self._drop(digest)

    def end_all(self, name: str) -> int:
        """End all sessions of a name; return how many."""
        theirs = [digest for digest, it in self._sessions.items() if it.name == name]
        for digest in theirs:
            self._drop(digest)
        return len(theirs)

    def _drop(self, digest: bytes) -> None:
        """End a session; its secret is gone with it, whoever still holds the session."""
        self._sessions.pop(digest).account = None

    def drop_over(self, now_s: float) -> None:
        """End sessions whose time is over, though nobody asks with them."""
        for digest, session in tuple(self._sessions.items()):
            if self._is_over(session, now_s):
                self._drop(digest)

    def all(self, now_s: float) -> list[Session]:
        """Return who is signed in."""
        return [it for it in self._sessions.values() if not self._is_over(it, now_s)]

    def is_alive(self, session: Session, now_s: float) -> bool:
        """Tell whether a session still counts: what runs for long asks again and again."""
        known = any(it is session for it in self._sessions.values())
        return known and not self._is_over(session, now_s)

    def _is_over(self, session: Session, now_s: float) -> bool:
        return (
            now_s - session.began_s >= self._limits.session_s
            or now_s - session.seen_s >= self._limits.idle_s
        )

    # --- sign-ins that fail ------------------------------------------------------------------

    def may_try(self, address: str, now_s: float, *, has_password: bool) -> bool:
        """Count a sign-in before it is judged; tell whether it may be tried at all.

        Each address may fail so often a minute. Passwords are bounded over all addresses as well:
        they can be guessed from many, and each guess costs CPU. A one-time token cannot be
        guessed, so whoever has one gets in whatever strangers do. What succeeds is given back by
        `succeeded`. Counted are tries and not failures: tries that run at the same time would
        otherwise all pass before the first of them has failed.
        """
        source = _source(address)
        known = self._tries_from.get(source)
        if known is None:
            known = collections.deque[float](maxlen=self._limits.failures)
        if _is_full(known, now_s) or (has_password and _is_full(self._tries, now_s)):
            return False
        known.append(now_s)
        self._tries_from[source] = known
        self._tries_from.move_to_end(source)
        if len(self._tries_from) > self._limits.failing_addresses:
            # The address that tried least recently.
            self._tries_from.popitem(last=False)
        if has_password:
            self._tries.append(now_s)
        return True

    def succeeded(self, address: str, *, has_password: bool) -> None:
        """Give back the try of a sign-in that succeeded; failures before it still count.

        Otherwise somebody with an account could guess another's password without end.
        """
        known = self._tries_from.get(_source(address))
        if known:
            known.pop()
        if has_password and self._tries:
            self._tries.pop()


def _is_full(tries: collections.deque[float], now_s: float) -> bool:
    return len(tries) == tries.maxlen and now_s - tries[0] < _ONE_MINUTE_S


def _source(address: str) -> str:
    """Return what is counted as one address: of IPv6 the network of 64 bits that a host gets."""
    try:
        found = read_ip(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if found.version == 4:
        return str(found)
    return str(ipaddress.ip_network((found, 64), strict=False).network_address)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
