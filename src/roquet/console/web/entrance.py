"""Signing in and out, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, RedirectResponse

from roquet.base.errors import RoquetError, UsageError
from roquet.console.denied import Denied
from roquet.console.web.answers import status_of
from roquet.console.web.front import COOKIE, address_of, answer, failure, form_of, object_of
from roquet.console.web.peer import IDENTITY, Asserted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from roquet.console.accounts import Accounts
    from roquet.console.cluster_accounts.sign_in import ClusterAccounts
    from roquet.console.context import Parts
    from roquet.console.login.provider import Provider
    from roquet.console.roles import Role
    from roquet.console.sessions import Session
    from roquet.console.web.front import Front
    from roquet.console.web.render import Pages

_TEXT_MAX = 300
_NOT_KNOWN = (
    "the access key or its secret is wrong, or the cluster does not check them; administrators"
    " find the reason in the audit log"
)
OWNER = "terminal"
"""Who signs in by the token that was printed at start."""


class Entrance:
    """The handlers of signing in and out."""

    def __init__(
        self,
        parts: Parts,
        front: Front,
        pages: Pages,
        accounts: Accounts,
        *,
        provider: Provider | None,
        cluster: ClusterAccounts | None = None,
    ) -> None:
        """Let these accounts in, and whoever has a one-time token."""
        self._parts = parts
        self._front = front
        self._pages = pages
        self._accounts = accounts
        self._provider = provider
        self._cluster = cluster
        self._login = parts.config.login

    def announce(self, address: str, role: Role) -> None:
        """Print the address at which people sign in, with a new one-time token."""
        self._address, self._role = address, role
        if not self._login.tokens:
            self._parts.said(f"  console      {address}/login")
            return
        token = self._parts.sessions.make_link(OWNER, role, None)
        self._parts.said(f"  console      {address}/login#{token}")

    async def page(self, request: Request) -> Response:
        """Show where to sign in."""
        if self._front.session(request) is not None:
            return self._to("/")
        asserted = request.scope.get(IDENTITY)
        if isinstance(asserted, Asserted):
            text = f"{asserted.name} is in no group that has a role here: ask an administrator"
            return self.ask(text, 403)
        return self.ask("", 200)

    async def enter(self, request: Request) -> Response:
        """Sign in by a form."""
        try:
            if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
                raise Denied(403, "sign in on the page of this console")
            form = await form_of(request)
            key, _, _ = await self._entered(request, {name: it[-1] for name, it in form.items()})
        except RoquetError as error:
            return self.ask(str(error), status_of(error))
        gone = self._to("/")
        self.let_in(gone, request, key)
        return gone

    def let_in(self, gone: Response, request: Request, key: str) -> None:
        """Give a browser the cookie of its new session; the one that it had ends."""
        old = self._front.session(request)
        if old is not None and old.via != "header":
            self._parts.sessions.end(old)
        oidc = self._login.oidc
        gone.set_cookie(
            COOKIE,
            key,
            path=self._parts.config.root_path or "/",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https" or (oidc is not None and oidc.is_secure),
        )

    async def api_enter(self, request: Request) -> Response:
        """Sign in by a JSON object: a token, a name and a password, or a key and its secret."""
        try:
            given = await object_of(request)
            if not all(isinstance(it, str) for it in given.values()):
                raise UsageError("token, name, password, access_key and secret are texts")
            key, name, role = await self._entered(request, given)
        except RoquetError as error:
            return failure(error)
        return answer({"session": key, "name": name, "role": role.word})

    async def leave(self, request: Request) -> Response:
        """Sign out."""
        session = self._front.session(request)
        try:
            if session is not None:
                form = await form_of(request)
                self._front.demand_ours(session, form.get("csrf", [""])[-1])
        except RoquetError as error:
            return self.ask(str(error), status_of(error))
        if session is not None:
            self._parts.sessions.end(session)
            if self._parts.clients is not None:
                await self._parts.clients.tick()
            self.note("sign out", "done", session.name, session.role.word, request)
        leave = "" if session is None else self._leave(session)
        gone = self.ask("", 200, leave) if leave else self._to("/login")
        gone.delete_cookie(COOKIE, path=self._parts.config.root_path or "/")
        return gone

    async def _entered(self, request: Request, given: Mapping[str, str]) -> tuple[str, str, Role]:
        """Return key, name and role. Raises Denied."""
        sessions = self._parts.sessions
        now_s = self._parts.clock.steady_ms() / 1000
        token, name, password = (
            given.get(it, "")[:_TEXT_MAX] for it in ("token", "name", "password")
        )
        address, has_password = address_of(request), not token
        if not sessions.may_try(address, now_s, has_password=has_password):
            raise Denied(429, "too many sign-ins failed: try again in a minute")
        if token and not self._login.tokens:
            text = "one-time tokens are off at this console (--login)"
        elif not token and given.get("access_key"):
            return await self._entered_by_account(request, given, now_s)
        elif token:
            found = sessions.use_link(token.strip(), now_s)
            if found is not None:
                sessions.succeeded(address, has_password=False)
                self.note("sign in", "done: by a one-time token", found[1], found[2].word, request)
                if found[1] == OWNER:
                    self.announce(self._address, self._role)
                return found
            text = "this token is not good, or was used: the console prints a new one each time"
        else:
            role = await self._accounts.check(name, password)
            if role is not None:
                sessions.succeeded(address, has_password=True)
                self.note("sign in", "done: by a password", name, role.word, request)
                return sessions.begin(name, role, now_s), name, role
            text = "the name or the password is wrong"
        self.note("sign in", f"refused: {text}", name or "?", "-", request)
        raise Denied(401, text)

    async def _entered_by_account(
        self, request: Request, given: Mapping[str, str], now_s: float
    ) -> tuple[str, str, Role]:
        """Return key, name and role of whom the cluster knows. Raises Denied.

        The answer does not tell an unknown account from a wrong secret; the audit log does.
        """
        access_key = given["access_key"]
        name = f"cluster:{access_key}"
        cluster = self._login.cluster
        if self._cluster is None or cluster is None:
            text = "accounts of the cluster do not sign in at this console (--login)"
            self.note("sign in", f"refused: {text}", name, "-", request)
            raise Denied(401, text)
        try:
            account, why = await self._cluster.check(access_key, given.get("secret", ""))
        except Denied as error:
            self.note("sign in", f"failed: {error}", name, "-", request)
            raise
        if account is None:
            self.note("sign in", f"refused: {why}", name, "-", request)
            raise Denied(401, _NOT_KNOWN)
        sessions = self._parts.sessions
        sessions.succeeded(address_of(request), has_password=True)
        role = cluster.role
        self.note("sign in", "done: by an account of the cluster", name, role.word, request)
        return sessions.begin_account(account, role, now_s), name, role

    def _leave(self, session: Session) -> str:
        """Return where whoever let somebody in signs them out."""
        if session.via == "oidc" and self._provider is not None:
            return self._provider.sign_out_address()
        header = self._login.header
        return header.logout if session.via == "header" and header is not None else ""

    def note(self, what: str, outcome: str, who: str, role: str, request: Request) -> None:
        """Write to the audit log."""
        self._parts.audit.write(what, outcome, who=who, role=role, address=address_of(request))

    def ask(self, wrong: str, status: int, leave: str = "") -> Response:
        """Return the page of signing in; with `leave` it says where one signs out elsewhere."""
        oidc = self._login.oidc
        data = {
            "title": "Sign in",
            "wrong": wrong,
            "has_accounts": len(self._accounts) > 0,
            "has_tokens": self._login.tokens,
            "has_cluster": self._cluster is not None,
            "has_header": self._login.header is not None,
            "provider": "" if oidc is None else oidc.label,
            "leave": leave,
        }
        return HTMLResponse(self._pages.render("people/login.html", data), status)

    def _to(self, path: str) -> RedirectResponse:
        return RedirectResponse(self._parts.config.root_path + path, 303)
