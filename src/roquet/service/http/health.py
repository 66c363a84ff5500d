"""A small HTTP endpoint for machines: `/metrics`, `/livez`, `/readyz`."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from roquet.base.overriding import override
from roquet.service.http.server import HttpAnswer, HttpRequest, HttpServer, text_answer
from roquet.service.metrics import CONTENT_TYPE, prepare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.service.metrics import Metrics


class Health:
    """Whether the process may be sent work: each thing it needs has to have said yes."""

    def __init__(self, needs: Sequence[str] = ()) -> None:
        """Be not ready until each of `needs` was reported ready (`registered`, say)."""
        self._missing = dict.fromkeys(needs, "not yet")

    @property
    def is_ready(self) -> bool:
        """Whether nothing is missing."""
        return not self._missing

    def ready(self, need: str) -> None:
        """Report that a thing is there."""
        self._missing.pop(need, None)

    def not_ready(self, need: str, why: str) -> None:
        """Report that a thing is missing, or has gone."""
        self._missing[need] = why

    def explain(self) -> str:
        """Return `ok`, or a line for each missing thing."""
        return "\n".join(f"{need}: {why}" for need, why in self._missing.items()) or "ok"


class HealthEndpoint(HttpServer):
    """Serves health and metrics. A service."""

    def __init__(self, *, host: str, port: int, health: Health, metrics: Metrics) -> None:
        """Listen nowhere yet; port 0 means any free one."""
        super().__init__(self.answer, host=host, port=port)
        self._health = health
        self._metrics = metrics

    @override
    async def start(self) -> None:
        """Listen. Raises UsageError when the address cannot be had."""
        await super().start()
        # Beside the loop: the first who asks shall not wait for an import, nor anybody else.
        self._prepared = asyncio.get_running_loop().run_in_executor(None, prepare)

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request."""
        if request.method not in {"GET", "HEAD"}:
            return text_answer("only GET", HTTPStatus.METHOD_NOT_ALLOWED)
        match request.path:
            case "/metrics":
                return HttpAnswer(HTTPStatus.OK, await self._metrics.page(), CONTENT_TYPE)
            case "/livez":
                return text_answer("ok")
            case "/readyz":
                ready = self._health.is_ready
                status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
                return text_answer(self._health.explain(), status)
            case _:
                return text_answer("/metrics /livez /readyz", HTTPStatus.NOT_FOUND)
