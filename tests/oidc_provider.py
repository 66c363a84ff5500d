"""A small OpenID provider: real HTTP on loopback, real RSA keys, and lies where wanted."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import hmac
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from joserfc import jwk, jwt

if TYPE_CHECKING:
    from collections.abc import Generator

CLIENT, SECRET = "console", "s/cret of the client"


@dataclasses.dataclass(slots=True)
class Provider:
    issuer: str
    key: jwk.RSAKey
    keys: list[jwk.RSAKey]
    """Published."""
    claims: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """More claims, or others."""
    forge: str = ""
    """`none`, `hs256`, `stranger`: how the next tokens lie about their signature."""
    kid: str | None = None
    description: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    codes: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict[str, dict[str, str]])
    asked: list[str] = dataclasses.field(default_factory=list[str])
    sent_back: list[str] = dataclasses.field(default_factory=list[str])
    """Where browsers were sent."""

    def rotate(self, *, published: bool = True) -> None:
        self.key = _key()
        if published:
            self.keys = [self.key]

    def describe(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": self.issuer + "/authorize",
            "token_endpoint": self.issuer + "/token",
            "jwks_uri": self.issuer + "/keys",
            "end_session_endpoint": self.issuer + "/leave",
            **self.description,
        }

    def token(self, nonce: str) -> str:
        now_s = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": "4711",
            "preferred_username": "ana",
            "groups": ["staff", "mq-ops"],
            "iat": now_s,
            "exp": now_s + 300,
            "nonce": nonce,
            **self.claims,
        }
        kid = self.kid or self.key.kid
        body = json.dumps(claims).encode()
        if self.forge == "none":
            head = json.dumps({"alg": "none", "kid": kid}).encode()
            return f"{_b64(head)}.{_b64(body)}."
        if self.forge == "hs256":
            head = json.dumps({"alg": "HS256", "kid": kid}).encode()
            signed = f"{_b64(head)}.{_b64(body)}"
            public = self.keys[0].as_pem(private=False)
            return f"{signed}.{_b64(hmac.digest(public, signed.encode(), 'sha256'))}"
        key = _key() if self.forge == "stranger" else self.key
        return jwt.encode({"alg": "RS256", "kid": kid}, claims, key)


def _key() -> jwk.RSAKey:
    return jwk.RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig"})


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@contextlib.contextmanager
def provider() -> Generator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        # typing.override came with Python 3.12.
        def log_message(self, format: str, *args: Any) -> None:  # type: ignore[explicit-override]  # noqa: A002
            pass

        def _json(self, status: int, data: dict[str, Any]) -> None:
            body = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            at = urlsplit(self.path)
            it.asked.append(at.path)
            if at.path == "/.well-known/openid-configuration":
                self._json(200, it.describe())
            elif at.path == "/keys":
                self._json(200, {"keys": [key.as_dict(private=False) for key in it.keys]})
            elif at.path == "/authorize":
                given = {name: values[0] for name, values in parse_qs(at.query).items()}
                code = secrets.token_urlsafe(8)
                it.codes[code] = given
                query = urlencode({"code": code, "state": given["state"]})
                self.send_response(303)
                it.sent_back.append(f"{given['redirect_uri']}?{query}")
                self.send_header("location", it.sent_back[-1])
                self.end_headers()
            else:
                self._json(404, {})

        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            given = {n: v[0] for n, v in parse_qs(self.rfile.read(size).decode()).items()}
            it.asked.append(self.path)
            basic = base64.b64decode(self.headers.get("authorization", "Basic ")[6:]).decode()
            user, _, password = basic.partition(":")
            if (unquote_plus(user), unquote_plus(password)) != (CLIENT, SECRET):
                self._json(401, {"error": "invalid_client"})
                return
            about = it.codes.pop(given["code"], None)
            digest = hashlib.sha256(given["code_verifier"].encode()).digest()
            if about is None or about["code_challenge"] != _b64(digest):
                self._json(400, {"error": "invalid_grant"})
                return
            assert about["redirect_uri"] == given["redirect_uri"]
            self._json(200, {"access_token": "x", "id_token": it.token(about["nonce"])})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    key = _key()
    it = Provider(f"http://127.0.0.1:{server.server_port}", key, [key])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield it
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
