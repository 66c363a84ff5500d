"""What ties a sign-in at a provider to the browser that began it.

Nothing is kept of a sign-in that has begun, so that nobody can crowd others out: the browser has a
random text in a cookie, and `state`, `nonce` and the verifier of PKCE are made of it with a key of
this process. Only what was used is remembered, until it is too old anyway.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import hashlib
import hmac
import secrets

FLOW_S = 600
"""For somebody to sign in at the provider."""
_USED_MAX = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Flow:
    """One sign-in at the provider."""

    cookie: str = dataclasses.field(repr=False)
    state: str = dataclasses.field(repr=False)
    nonce: str = dataclasses.field(repr=False)
    verifier: str = dataclasses.field(repr=False)

    @property
    def challenge(self) -> str:
        """What the provider is told of the verifier (RFC 7636, S256)."""
        return _text(hashlib.sha256(self.verifier.encode()).digest())


class Flows:
    """The sign-ins of a console."""

    def __init__(self) -> None:
        """Take a key."""
        self._key = secrets.token_bytes(32)
        self._used: collections.deque[str] = collections.deque(maxlen=_USED_MAX)

    def begin(self, now_s: float) -> Flow:
        """Return a new one."""
        return self._made(f"{secrets.token_urlsafe(24)}.{int(now_s)}")

    def resume(self, cookie: str, state: str, now_s: float) -> Flow | None:
        """Return the one that a browser comes back from; once, and not too late."""
        found = self._made(cookie[:200])
        # The state is made of the cookie's text, so its time is one of ours when they agree.
        if not is_same(state, found.state):
            return None
        if now_s - int(cookie.rpartition(".")[2]) > FLOW_S or state in self._used:
            return None
        self._used.append(state)
        return found

    def _made(self, cookie: str) -> Flow:
        def of(use: str) -> str:
            about = f"{use}:{cookie}".encode(errors="replace")
            return _text(hmac.digest(self._key, about, hashlib.sha256))

        return Flow(cookie, of("state"), of("nonce"), of("verifier"))


def is_same(given: str, expected: str) -> bool:
    """Compare secrets in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
