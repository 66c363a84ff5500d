"""Who connects, before any header of a proxy is believed: whom a trusted proxy says it has judged.

This stands outside of all else. What reaches the rest of the console in `IDENTITY` was said by a
proxy whose address is listed; the same headers of anybody else are gone.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse

from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from roquet.base.clock import Clock
    from roquet.console.login.settings import HeaderConfig
    from roquet.console.roles import Role

log = logging.getLogger(__name__)

IDENTITY = "roquet.identity"
"""Key of the scope: an `Asserted`."""
_NAME = re.compile(r"[A-Za-z0-9_.@+|-]{1,128}")
_GROUPS_MAX = 8192
_SAY_EVERY_S = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Asserted:
    """Whom a proxy names; without a role they may not look at anything."""

    name: str
    role: Role | None


class WrongHeaderError(Exception):
    """Headers of the proxy that can be read in two ways."""


class Peers:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, config: HeaderConfig, clock: Clock) -> None:
        """Judge the headers of this proxy."""
        self._app = app
        self._config = config
        self._log = RateLog(log, clock, _SAY_EVERY_S)
        self._fields = {it.encode() for it in (config.user, config.groups) if it}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with what the proxy says, or without what a stranger says."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        address = "" if client is None else str(client[0])
        mine = [(name, value) for name, value in scope["headers"] if name in self._fields]
        others = [row for row in scope["headers"] if row[0] not in self._fields]
        scope = {**scope, "headers": others}
        if mine and not self._config.is_trusted(address):
            text = f"dropped {self._config.user} of {address or 'nobody known'}, which is none of"
            self._log.warning("dropped", f"{text} --login's proxies")
        elif mine:
            try:
                asserted = self._read(mine)
            except WrongHeaderError as error:
                self._log.warning("refused", f"a request of the proxy {address}: {error}")
                await PlainTextResponse(f"{error}\n", 400)(scope, receive, send)
                return
            if asserted is not None:
                scope[IDENTITY] = asserted
        await self._app(scope, receive, send)

    def _read(self, mine: list[tuple[bytes, bytes]]) -> Asserted | None:
        """Return whom the headers name. Raises WrongHeaderError.

        A second header, or a comma in a name, is what a proxy makes that adds its header to one
        of the browser's instead of replacing it: then the browser would choose who it is.
        """
        user = self._one(mine, self._config.user)
        groups = self._one(mine, self._config.groups) if self._config.groups else ""
        if not user:
            return None
        if not _NAME.fullmatch(user):
            raise WrongHeaderError(f"{self._config.user} is no name: letters, digits and _.@+|-")
        if len(groups) > _GROUPS_MAX:
            raise WrongHeaderError(f"{self._config.groups} has more than {_GROUPS_MAX} characters")
        names = [it.strip() for it in groups.split(",")]
        return Asserted(user, self._config.roles.of(names))

    @staticmethod
    def _one(mine: list[tuple[bytes, bytes]], name: str) -> str:
        values = [value for field, value in mine if field == name.encode()]
        if len(values) > 1:
            raise WrongHeaderError(f"{name} is there {len(values)} times: let the proxy replace it")
        return values[0].decode("utf-8", "replace").strip() if values else ""
