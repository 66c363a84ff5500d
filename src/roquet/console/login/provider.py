"""What is asked of an OpenID provider: its description, its keys, a token for a code."""

from __future__ import annotations

import asyncio
import base64
import collections
import contextlib
import http.client
import json
import ssl
import urllib.parse
from typing import TYPE_CHECKING, Any, cast

from roquet.base.errors import Unreachable, UsageError
from roquet.console.login import tokens
from roquet.console.login.settings import checked_url

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from joserfc.jwk import KeySet

    from roquet.base.clock import Clock
    from roquet.console.login.flow import Flow
    from roquet.console.login.settings import OidcConfig

WAIT_S = 2.5
"""For all that one step of a sign-in asks of the provider."""
_KEPT_S = 3600.0
"""After which description and keys are asked for again: a key that was withdrawn counts no more."""
_PAUSE_S = 1.0
"""After a failure, before the provider is asked again."""
_NEWER_MAX = 6
"""How often a minute keys are asked for again because a token names one that is not known."""
_ANSWER_MAX = 256 * 1024
_AT_ONCE = 3
_ADDRESSES = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class Provider:
    """One provider. Every call ends within `WAIT_S`, or raises Unreachable with what to do."""

    def __init__(self, config: OidcConfig, clock: Clock) -> None:
        """Ask nothing yet. Raises UsageError for certificates that cannot be read."""
        self._config = config
        self._clock = clock
        try:
            ca = None if config.ca is None else str(config.ca)
            self._tls = ssl.create_default_context(cafile=ca)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"--login: oidc: ca {config.ca}: {error}") from error
        self._about: dict[str, Any] | None = None
        self._keys: KeySet | None = None
        self._read_s = 0.0
        self._failed: tuple[float, Unreachable | UsageError] | None = None
        self._newer: collections.deque[float] = collections.deque(maxlen=_NEWER_MAX)
        self._reading = asyncio.Lock()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def sign_in_address(self, flow: Flow) -> str:
        """Return where a browser is sent. Raises Unreachable, UsageError."""
        async with self._limited():
            about = await self._described()
        query = {
            "response_type": "code",
            "client_id": self._config.client_id,
            "redirect_uri": self._config.redirect_uri,
            "scope": self._config.scopes,
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": flow.challenge,
            "code_challenge_method": "S256",
        }
        return _with_query(about["authorization_endpoint"], query)

    def sign_out_address(self) -> str:
        """Return where somebody signs out of the provider as well; empty where it has no such."""
        found = "" if self._about is None else self._about.get("end_session_endpoint", "")
        if not found:
            return ""
        query = {
            "client_id": self._config.client_id,
            "post_logout_redirect_uri": self._config.url + "/login",
        }
        return _with_query(found, query)

    async def identity(self, code: str, flow: Flow) -> tokens.Identity:
        """Return who has signed in, for the code that came back. Raises Unreachable, UsageError."""
        async with self._limited():
            about = await self._described()
            token = await self._token(about, code, flow)
            now_s = self._clock.now_ms() / 1000
            for is_last in (False, True):
                assert self._keys is not None, "described with its keys"
                try:
                    return tokens.identity(token, self._keys, self._config, flow.nonce, now_s)
                except tokens.UnknownKeyError as error:
                    if is_last or not self._may_ask_again():
                        text = "the ID token is not signed by a key of the provider"
                        raise UsageError(text) from error
                self._keys = tokens.keys_of(await self._ask(about["jwks_uri"]))
        raise AssertionError

    @contextlib.asynccontextmanager
    async def _limited(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(WAIT_S):
                yield
        except TimeoutError as error:
            raise _away(self._config.issuer, f"no answer within {WAIT_S} s") from error

    def _may_ask_again(self) -> bool:
        now_s = self._clock.steady_ms() / 1000
        if len(self._newer) == _NEWER_MAX and now_s - self._newer[0] < 60:
            return False
        self._newer.append(now_s)
        return True

    async def _described(self) -> dict[str, Any]:
        """Return the description; it and the keys are read by one at a time, and kept."""
        async with self._reading:
            now_s = self._clock.steady_ms() / 1000
            if self._about is not None and now_s - self._read_s < _KEPT_S:
                return self._about
            if self._failed is not None and now_s - self._failed[0] < _PAUSE_S:
                failed = self._failed[1]
                raise type(failed)(str(failed))
            self._failed = (now_s, _away(self._config.issuer, "it does not answer"))
            try:
                about = await self._description()
                self._keys = tokens.keys_of(await self._ask(about["jwks_uri"]))
            except (Unreachable, UsageError) as error:
                self._failed = (self._clock.steady_ms() / 1000, error)
                raise
            self._failed, self._about, self._read_s = None, about, now_s
            return about

    async def _description(self) -> dict[str, Any]:
        issuer = self._config.issuer
        about = await self._ask(issuer.rstrip("/") + "/.well-known/openid-configuration")
        if about.get("issuer") != issuer:
            said = str(about.get("issuer"))[:80]
            raise UsageError(f"{issuer} calls itself {said}: give that as issuer, to the letter")
        for name in _ADDRESSES:
            checked_url(f"{issuer}: {name}", str(about.get(name, "")), with_query=True)
        if about.get("end_session_endpoint"):
            address = str(about["end_session_endpoint"])
            checked_url(f"{issuer}: end_session_endpoint", address, with_query=True)
        return about

    async def _token(self, about: Mapping[str, Any], code: str, flow: Flow) -> str:
        config = self._config
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": config.redirect_uri,
            "code_verifier": flow.verifier,
        }
        headers: dict[str, str] = {}
        methods = about.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if config.client_secret and "client_secret_basic" in methods:
            pair = ":".join(map(urllib.parse.quote_plus, (config.client_id, config.client_secret)))
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            fields["client_id"] = config.client_id
            if config.client_secret:
                fields["client_secret"] = config.client_secret
        body = urllib.parse.urlencode(fields).encode()
        found = (await self._ask(about["token_endpoint"], body, headers)).get("id_token")
        if not isinstance(found, str):
            raise UsageError("the OpenID provider gave no ID token: scopes need openid")
        return found

    async def _ask(
        self, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        async with self._slots:
            status, data = await asyncio.to_thread(
                _fetch, url, body, headers or {}, self._tls, self._config.issuer
            )
        try:
            found: Any = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        about = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        if body is not None and 400 <= status < 500:
            said = " ".join(str(about.get(it, "")) for it in ("error", "error_description"))
            text = said.strip()[:200] or f"status {status}"
            raise UsageError(f"the OpenID provider refused the sign-in: {text}")
        if status != 200 or not about:
            raise _away(self._config.issuer, f"{url} answered with status {status} and no object")
        return about


def _away(issuer: str, why: str) -> Unreachable:
    return Unreachable(
        f"the OpenID provider {issuer} cannot be asked: {why}. Try from where the console runs:"
        f" curl {issuer.rstrip('/')}/.well-known/openid-configuration"
    )


def _fetch(
    url: str, body: bytes | None, headers: Mapping[str, str], tls: ssl.SSLContext, issuer: str
) -> tuple[int, bytes]:
    """Return status and body. Redirects are not followed. Raises Unreachable, UsageError."""
    parts = urllib.parse.urlsplit(url)
    host, port = parts.hostname or "", parts.port
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    more = {"Accept": "application/json", "User-Agent": "roquet-console", **headers}
    if body is not None:
        more["Content-Type"] = "application/x-www-form-urlencoded"
    connection = (
        http.client.HTTPSConnection(host, port, timeout=WAIT_S, context=tls)
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=WAIT_S)
    )
    try:
        connection.request("GET" if body is None else "POST", path, body, more)
        answer = connection.getresponse()
        data = answer.read(_ANSWER_MAX + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _away(issuer, str(error) or type(error).__name__) from error
    finally:
        connection.close()
    if len(data) > _ANSWER_MAX:
        raise UsageError(f"{url[:80]} answered with more than {_ANSWER_MAX} bytes")
    return answer.status, data


def _with_query(url: str, query: Mapping[str, str]) -> str:
    return url + ("&" if "?" in url else "?") + urllib.parse.urlencode(query)
