"""Requests to views and actions: who asks, may they, what do they give; pages or JSON go back."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs

from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from roquet.base.errors import Refused, RoquetError, UsageError
from roquet.base.overriding import override
from roquet.console import declared
from roquet.console.context import context_of
from roquet.console.denied import Denied
from roquet.console.login.flow import is_same
from roquet.console.web.answers import status_of
from roquet.console.web.peer import IDENTITY, Asserted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from starlette.requests import Request

    from roquet.console.context import Parts
    from roquet.console.declared import Action, Data, Done, Download, View
    from roquet.console.sessions import Session
    from roquet.console.web.answers import ConcurrencyLimit
    from roquet.console.web.render import Pages

    Handler = Callable[[Request], Awaitable[Response]]

log = logging.getLogger(__name__)

COOKIE = "roquet_console"
_FORM = "application/x-www-form-urlencoded"
_FIELDS_MAX = 256
_MISSING_MAX = 500


@dataclasses.dataclass(slots=True)
class _Noted:
    """What the audit log will say of a request."""

    target: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """What it is about, once that is known."""
    done: str = ""
    """What was done, once it is."""


class Front:
    """Makes handlers of rows."""

    def __init__(self, parts: Parts, pages: Pages, limit: ConcurrencyLimit) -> None:
        """Serve these parts."""
        self._parts = parts
        self._pages = pages
        self._limit = limit

    # --- handlers ----------------------------------------------------------------------------

    def page(self, view: View) -> Handler:
        """Return what answers `GET` with a page."""

        async def handle(request: Request) -> Response:
            session = self.session(request)
            if session is None:
                return self._to_login()
            try:
                data = await self._shown(view, session, request)
            except RoquetError as error:
                return self._failed(session, error)
            said, session.said = session.said, ""
            results, session.results = session.results, ()
            more = {"title": view.title, "here": view.path, "said": said, "results": results}
            return self._html(view.template, session, data | more)

        return handle

    def api_view(self, view: View) -> Handler:
        """Return what answers `GET /api…` with JSON."""

        async def handle(request: Request) -> Response:
            try:
                session = self.demand_session(request)
                return answer(await self._shown(view, session, request))
            except RoquetError as error:
                return failure(error)

        return handle

    def download(self, row: Download) -> Handler:
        """Return what answers `GET`, and `POST` of a form, with a file."""

        async def handle(request: Request) -> Response:
            session = self.session(request)
            if session is None:
                return self._to_login()
            try:
                if request.method == "POST":
                    texts = await form_of(request)
                    self.demand_ours(session, texts.pop("csrf", [""])[-1])
                else:
                    texts = self.query(request)
                return await self._file(row, session, request, texts)
            except RoquetError as error:
                return self._failed(session, error)

        return handle

    def api_download(self, row: Download) -> Handler:
        """Return what answers `GET /api…` with a file, and with JSON where there is none."""

        async def handle(request: Request) -> Response:
            try:
                session = self.demand_session(request)
                return await self._file(row, session, request, self.query(request))
            except RoquetError as error:
                return failure(error)

        return handle

    def form(self, action: Action) -> Handler:
        """Return what answers `POST` of a form: does it, and goes on to a page."""

        async def handle(request: Request) -> Response:
            session = self.session(request)
            if session is None:
                return self._to_login()
            try:
                texts = await form_of(request)
                token = texts.pop("csrf", [""])[-1]
                self.demand_ours(session, token)
                done = await self._done(
                    action, session, request, lambda: declared.of_form(action.fields, texts)
                )
            except RoquetError as error:
                return self._failed(session, error)
            session.said = f"{done.text}: {done.told}" if done.told else done.text
            session.results = done.results
            return self._to(done.goto)

        return handle

    def api_action(self, action: Action) -> Handler:
        """Return what answers `POST /api…` of a JSON object."""

        async def handle(request: Request) -> Response:
            try:
                session = self.demand_session(request)
                if not self._is_by_header(request):
                    self.demand_ours(session, request.headers.get("x-csrf-token", ""))
                source = await object_of(request)
                done = await self._done(
                    action, session, request, lambda: declared.of_json(action.fields, source)
                )
            except RoquetError as error:
                return failure(error)
            return answer({"done": done.text, **done.more})

        return handle

    def missing(self, request: Request, text: str, status: int) -> Response:
        """Answer what is asked for at a path of nothing: a page for people, or where to sign in."""
        session = self.session(request)
        if session is None:
            return self._to_login()
        title = "Page not found" if status == 404 else None
        return self._failed(session, Denied(status, text), title)

    # --- who ---------------------------------------------------------------------------------

    def session(self, request: Request) -> Session | None:
        """Return whose request it is: a trusted proxy says it, a header of programs or a cookie."""
        asserted = request.scope.get(IDENTITY)
        if isinstance(asserted, Asserted):
            return self._asserted(asserted, request)
        key = request.cookies.get(COOKIE, "")
        if self._is_by_header(request):
            key = request.headers["authorization"].partition(" ")[2].strip()
        is_asked_by_page = "hx-request" in request.headers
        now_s = self._parts.clock.steady_ms() / 1000
        return self._parts.sessions.find(key, now_s, is_asked_by_page=is_asked_by_page)

    def _asserted(self, asserted: Asserted, request: Request) -> Session | None:
        if asserted.role is None:
            return None
        now_s = self._parts.clock.steady_ms() / 1000
        name, role = f"proxy:{asserted.name}", asserted.role
        session, is_new = self._parts.sessions.asserted(name, role, now_s)
        if is_new:
            self._parts.audit.write(
                "sign in",
                "done: by the header of a proxy",
                who=name,
                role=role.word,
                address=address_of(request),
            )
        return session

    @staticmethod
    def _is_by_header(request: Request) -> bool:
        # A proxy may add an Authorization of its own to what a browser was made to send.
        if IDENTITY in request.scope:
            return False
        return request.headers.get("authorization", "").lower().startswith("bearer ")

    def demand_session(self, request: Request) -> Session:
        """Return whose request it is. Raises Denied for nobody's."""
        session = self.session(request)
        if session is None:
            raise Denied(401, "sign in first: POST /api/login, then Authorization: Bearer SESSION")
        return session

    @staticmethod
    def demand_ours(session: Session, token: str) -> None:
        """Raise Denied for a request that another site may have made (CSRF)."""
        if not is_same(token, session.csrf):
            raise Denied(403, "the form is not one of this session: load its page again")

    # --- what --------------------------------------------------------------------------------

    @staticmethod
    def query(request: Request) -> dict[str, list[str]]:
        """Return the fields of a query. Raises UsageError."""
        return _parsed(request.url.query)

    async def _shown(self, view: View, session: Session, request: Request) -> dict[str, Any]:
        self._demand_role(view, session)
        given = declared.of_form(view.fields, self.query(request))
        async with self._limit.place(), self._parts.client_of(session) as mq:
            context = context_of(self._parts, session, address_of(request), mq)
            data = await view.show(context, given)
        return {**data, "given": given, "left_out": dict(context.away)}

    async def _file(
        self,
        row: Download,
        session: Session,
        request: Request,
        texts: Mapping[str, Sequence[str]],
    ) -> Response:
        """Make a file. It leaves the console, so the audit log says who took it along."""
        address = address_of(request)
        with self._audited(row.path, session, address) as noted:
            self._demand_role(row, session)
            given = declared.of_form(row.fields, texts)
            noted.target = self._target(declared.shown(row.fields, given))
            async with self._limit.place(), self._parts.client_of(session) as mq:
                made = await row.make(context_of(self._parts, session, address, mq), given)
            noted.done = f"{made.rows} rows, {len(made.data)} bytes"
        headers = {"content-disposition": f'attachment; filename="{made.name}"'}
        if made.missing:
            headers["x-roquet-incomplete"] = ascii(made.missing)[1:-1][:_MISSING_MAX]
        return Response(made.data, headers=headers, media_type=made.kind)

    async def _done(
        self, action: Action, session: Session, request: Request, read: Callable[[], Data]
    ) -> Done:
        """Do it; whatever comes of it is in the audit log before the answer goes out."""
        address = address_of(request)
        with self._audited(action.path, session, address) as noted:
            self._demand_may(action, session)
            given = read()
            noted.target = self._target(declared.shown(action.fields, given))
            async with self._limit.place(), self._parts.client_of(session) as mq:
                done = await action.do(context_of(self._parts, session, address, mq), given)
            noted.done = done.text
        return done

    @contextlib.contextmanager
    def _audited(self, path: str, session: Session, address: str) -> Generator[_Noted]:
        """Have the audit log say what becomes of a block, however it ends."""
        noted, outcome = _Noted(), "failed: unexpected"
        try:
            yield noted
            outcome = f"done: {noted.done}"
        except RoquetError as error:
            kind = "refused" if isinstance(error, (Denied, UsageError)) else "failed"
            outcome = f"{kind}: {error}"
            raise
        finally:
            self._note(path, outcome, session, address, noted.target)

    def _target(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """Return what an action is about, with its cluster where there are several."""
        config = self._parts.config
        return {"cluster": config.cluster, **given} if config.clusters else given

    def _note(
        self, what: str, outcome: str, session: Session, address: str, target: Mapping[str, str]
    ) -> None:
        who, role = session.name, session.role.word
        write = self._parts.audit.write
        write(what, outcome, who=who, role=role, address=address, target=target)

    @staticmethod
    def _demand_role(row: View | Action | Download, session: Session) -> None:
        if session.role < row.role:
            raise Denied(403, f"{row.title}: only for the role {row.role.word}")
        if row.is_own and session.is_account:
            raise Denied(403, f"{row.title}: the console's own, not for accounts of the cluster")

    def _demand_may(self, action: Action, session: Session) -> None:
        self._demand_role(action, session)
        if action.is_change and self._parts.config.read_only:
            raise Denied(403, "this console is read-only")
        if action.is_change and self._parts.audit.broken:
            raise Denied(503, self._parts.audit.broken)

    # --- answers -----------------------------------------------------------------------------

    def _html(
        self, template: str, session: Session, data: Mapping[str, Any], status: int = 200
    ) -> Response:
        about = {
            "session": session,
            "csrf": session.csrf,
            "may": {"operate": session.role >= 2, "administer": session.role >= 3},
        }
        if self._parts.config.read_only:
            about["may"] = {"operate": False, "administer": False}
        page = self._pages.render(template, {**about, **data})
        return HTMLResponse(page.encode(errors="replace"), status)

    def _failed(self, session: Session, error: RoquetError, title: str | None = None) -> Response:
        status = status_of(error)
        is_missing = status == 404
        title = title or ("Not found" if is_missing else "That did not work")
        # "There is no topic" needs no number beside it; other refusals are known by theirs.
        text = error.remark if is_missing and isinstance(error, Refused) else str(error)
        data: dict[str, Any] = {"title": title, "here": "", "said": "", "results": ()}
        data |= {"left_out": {}, "text": text}
        return self._html("error.html", session, data, status)

    def _to_login(self) -> Response:
        return RedirectResponse(self._parts.config.base + "/login", 303)

    def _to(self, path: str) -> Response:
        return RedirectResponse(self._parts.config.root_path + path, 303)


def address_of(request: Request) -> str:
    """Return the address of who asks; a proxy's word is taken only where it is configured."""
    return "?" if request.client is None else request.client.host


class _Json(JSONResponse):
    """JSON of any texts: what comes from a cluster may have halves of characters in it."""

    @override
    def render(self, content: Any) -> bytes:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode(errors="replace")


def answer(data: Mapping[str, Any], status: int = 200) -> Response:
    """Return JSON."""
    return _Json(data, status)


def failure(error: RoquetError) -> Response:
    """Return an error as JSON."""
    headers = {"www-authenticate": "Bearer"} if status_of(error) == 401 else None
    return _Json({"error": str(error)}, status_of(error), headers=headers)


async def form_of(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form. Raises Denied, UsageError."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise Denied(415, f"a form is sent as {_FORM}")
    try:
        return _parsed((await request.body()).decode())
    except UnicodeDecodeError as error:
        raise UsageError("the form is no UTF-8 text") from error


async def object_of(request: Request) -> dict[str, Any]:
    """Return a JSON object. Raises Denied, UsageError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Denied(415, "a body is sent as application/json")
    try:
        found: Any = json.loads(await request.body())
        # Halves of characters can be escaped in JSON, and are no text anywhere else.
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UsageError("the body has half of a character (a surrogate)") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError("the body is no JSON object")
    return cast("dict[str, Any]", found)


def _parsed(text: str) -> dict[str, list[str]]:
    try:
        return parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        raise UsageError("the fields are no UTF-8 text, or too many") from error
