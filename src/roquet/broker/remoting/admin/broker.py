"""The broker itself: its settings (26), changing those that may change (25), its state (28)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.base.errors import UsageError
from roquet.base.properties_file import read_properties, write_properties
from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol.bodies.stats import encode_kv_table
from roquet.protocol.bodies.topics import encode_data_version
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.admin import GetBrokerConfigResponse
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.admin.runtime import RuntimeInfo
    from roquet.broker.services.admin.settings import Settings
    from roquet.store.tables.topics import TopicTable

UPDATE_SIZE_MAX = 65_536
"""Bytes of a request to change settings."""


class BrokerAdapter:
    """Answers for the broker as a whole."""

    def __init__(
        self, settings: Settings[Any], topics: TopicTable, runtime: RuntimeInfo, callers: Callers
    ) -> None:
        """`topics` has the version that tools take for that of the settings."""
        self._settings = settings
        self._topics = topics
        self._runtime = runtime
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.GET_BROKER_CONFIG,), self.show, "admin"),
            Route((RequestCode.UPDATE_BROKER_CONFIG,), self.update, "admin"),
            Route((RequestCode.GET_BROKER_RUNTIME_INFO,), self.runtime, "admin"),
        ]

    def show(self, request: Request) -> Command:
        """Return all settings as a property file."""
        version = encode_data_version(self._topics.version).decode()
        return reply_to(
            request.command,
            ext=GetBrokerConfigResponse(version=version).encode(),
            body=write_properties(self._settings.texts(self._callers.of(request))),
        )

    async def update(self, request: Request) -> Command:
        """Change settings, all or none."""
        body = request.command.body
        if not body:
            return reply_to(request.command)
        if len(body) > UPDATE_SIZE_MAX:
            text = f"more than {UPDATE_SIZE_MAX} bytes of settings"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        try:
            changes = read_properties(body)
        except UsageError as error:
            raise Refusal(Reason.INVALID_ARGUMENT, str(error)) from error
        notes = await self._settings.change(changes, self._callers.of(request))
        return reply_to(request.command, remark="; ".join(notes) or None)

    def runtime(self, request: Request) -> Command:
        """Return the state of the broker as a table of texts."""
        return reply_to(request.command, body=encode_kv_table(self._runtime.table()))
