"""Signing in at an OpenID provider: where browsers leave for it, and where they come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, RedirectResponse

from roquet.base.errors import RoquetError
from roquet.console.denied import Denied
from roquet.console.login.flow import FLOW_S, Flows
from roquet.console.login.settings import BACK
from roquet.console.web.answers import status_of
from roquet.console.web.front import address_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from roquet.console.context import Parts
    from roquet.console.login.flow import Flow
    from roquet.console.login.provider import Provider
    from roquet.console.login.settings import OidcConfig
    from roquet.console.web.entrance import Entrance
    from roquet.console.web.render import Pages

START = "/login/oidc"
COOKIE = "roquet_console_oidc"
_AGAIN = "this sign-in is not one that this browser began here, or is too old: begin again"


class ProviderEntrance:
    """The handlers of one provider."""

    def __init__(
        self,
        parts: Parts,
        pages: Pages,
        entrance: Entrance,
        config: OidcConfig,
        provider: Provider,
    ) -> None:
        """Let in whom this provider has judged."""
        self._parts = parts
        self._pages = pages
        self._entrance = entrance
        self._config = config
        self._provider = provider
        self._flows = Flows()

    async def start(self, request: Request) -> Response:
        """Send a browser to the provider."""
        del request
        flow = self._flows.begin(self._now_s())
        try:
            address = await self._provider.sign_in_address(flow)
        except RoquetError as error:
            return self._entrance.ask(str(error), status_of(error))
        gone = RedirectResponse(address, 303)
        gone.set_cookie(
            COOKIE,
            flow.cookie,
            max_age=FLOW_S,
            path=self._path,
            httponly=True,
            # Strict ones do not come along when the provider sends the browser back.
            samesite="lax",
            secure=self._config.is_secure,
        )
        return gone

    async def back(self, request: Request) -> Response:
        """Let in who comes back."""
        try:
            flow = self._came(request)
            answer = await self._judged(request, flow)
        except RoquetError as error:
            answer = self._entrance.ask(str(error), status_of(error))
        answer.delete_cookie(COOKIE, path=self._path)
        return answer

    async def _judged(self, request: Request, flow: Flow) -> Response:
        """Let in whom the provider names; a refusal is in the audit log. Raises RoquetError.

        Strangers could fill the log otherwise, so that a minute has room for a few of an address.
        """
        if not self._parts.sessions.may_try(address_of(request), self._now_s(), has_password=False):
            raise Denied(429, "too many sign-ins failed: try again in a minute")
        try:
            return await self._entered(request, flow)
        except RoquetError as error:
            self._entrance.note("sign in", f"refused: {error}", "oidc:?", "-", request)
            raise

    async def _entered(self, request: Request, flow: Flow) -> Response:
        sessions, now_s = self._parts.sessions, self._now_s()
        address = address_of(request)
        found = await self._provider.identity(self._code(request), flow)
        name, role = f"oidc:{found.name}", self._config.roles.of(found.groups)
        if role is None:
            text = f"{found.name} is in no group that has a role here (claim {self._config.groups})"
            raise Denied(403, text)
        sessions.succeeded(address, has_password=False)
        self._entrance.note("sign in", "done: by OpenID Connect", name, role.word, request)
        key = sessions.begin(name, role, now_s, via="oidc")
        # A redirect would still count as the provider's: the strict cookie would stay behind.
        data = {"title": "Signed in"}
        answer = HTMLResponse(self._pages.render("people/arrived.html", data))
        self._entrance.let_in(answer, request, key)
        return answer

    def _came(self, request: Request) -> Flow:
        """Return the sign-in that somebody comes back from. Raises Denied.

        Nothing is counted or logged before that: pages elsewhere can send a browser here.
        """
        query = request.query_params
        if any(len(query.getlist(it)) > 1 for it in query):
            raise Denied(400, "something is there twice in the address")
        state, cookie = query.get("state", ""), request.cookies.get(COOKIE, "")
        flow = self._flows.resume(cookie, state, self._now_s())
        if flow is None:
            raise Denied(400, _AGAIN)
        return flow

    def _code(self, request: Request) -> str:
        """Return the code that the provider gave. Raises Denied."""
        query = request.query_params
        if query.get("iss", self._config.issuer) != self._config.issuer:
            raise Denied(400, "another provider answers than was asked (iss)")
        if "error" in query:
            said = f"{query['error']} {query.get('error_description', '')}".strip()[:200]
            raise Denied(403, f"the OpenID provider lets nobody in: {said}")
        code = query.get("code", "")
        if not code:
            raise Denied(400, "the OpenID provider gave no code")
        return code

    @property
    def _path(self) -> str:
        return self._parts.config.root_path + START

    def _now_s(self) -> float:
        return self._parts.clock.steady_ms() / 1000


assert BACK.startswith(START), "the cookie comes along"
