"""Who is signed in: one-time tokens, sessions, and how often a sign-in may fail.

No clock and no socket here: times are given, in seconds of a clock that never goes back. Of a
session's key only the SHA-256 is kept, so that a dump of the memory signs nobody in.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquet.console.config import Limits, Role

_ONE_MINUTE_S = 60.0


@dataclasses.dataclass(slots=True, kw_only=True)
class Session:
    """Somebody who is signed in."""

    name: str
    role: Role
    began_s: float
    seen_s: float
    csrf: str
    said: str = ""
    """What the last action said, for the next page."""
    streams: int = 0
    """Live tails that are open."""


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
        self._links: dict[bytes, _Link] = {}
        self._failures: collections.deque[float] = collections.deque(maxlen=limits.failures)

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

    def begin(self, name: str, role: Role, now_s: float) -> str:
        """Return the key of a new session; the one that was idle for longest ends for it."""
        for digest, session in tuple(self._sessions.items()):
            if self._is_over(session, now_s):
                del self._sessions[digest]
        while len(self._sessions) >= self._limits.sessions:
            oldest = min(self._sessions, key=lambda it: self._sessions[it].seen_s)
            del self._sessions[oldest]
        key = secrets.token_urlsafe(32)
        self._sessions[_digest(key)] = Session(
            name=name, role=role, began_s=now_s, seen_s=now_s, csrf=secrets.token_urlsafe(24)
        )
        return key

    def find(self, key: str, now_s: float, *, is_asked_by_page: bool = False) -> Session | None:
        """Return whose key it is; a page that refreshes itself does not keep a session alive."""
        digest = _digest(key)
        session = self._sessions.get(digest)
        if session is None:
            return None
        if self._is_over(session, now_s):
            del self._sessions[digest]
            return None
        if not is_asked_by_page:
            session.seen_s = now_s
        return session

    def end(self, key: str) -> None:
        """Sign out."""
        self._sessions.pop(_digest(key), None)

    def end_all(self, name: str) -> int:
        """End all sessions of a name; return how many."""
        theirs = [digest for digest, it in self._sessions.items() if it.name == name]
        for digest in theirs:
            del self._sessions[digest]
        return len(theirs)

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

    def failed(self, now_s: float) -> None:
        """Count a sign-in that failed."""
        self._failures.append(now_s)

    def must_wait(self, now_s: float) -> bool:
        """Tell whether so many sign-ins failed within a minute that none is tried now."""
        full = len(self._failures) == self._failures.maxlen
        return full and now_s - self._failures[0] < _ONE_MINUTE_S


def is_same(given: str, expected: str) -> bool:
    """Compare secrets in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
