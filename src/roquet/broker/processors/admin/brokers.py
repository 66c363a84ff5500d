"""The broker itself: its settings (26), changing those that may change (25), its state (28).

Settings that may change while running are an allow-list, declared with each setting; nothing that
comes in reaches a file name or a command (bad input B13, CVE-2023-33246, CVE-2023-37582).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from roquet.base.config import as_properties, change, changed_texts
from roquet.base.errors import Refused, UsageError
from roquet.base.properties_file import read_properties, write_properties
from roquet.protocol.bodies.stats import encode_kv_table
from roquet.protocol.bodies.topics import encode_data_version
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.admin import GetBrokerConfigResponse
from roquet.remoting.router import Request, Route
from roquet.service.config_file import write_down

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from roquet.broker.processors.admin.runtime import RuntimeInfo
    from roquet.store.topics import TopicTable

log = logging.getLogger(__name__)

C = TypeVar("C")

UPDATE_SIZE_MAX = 65_536
"""Bytes of a request to change settings."""

BLACK_LIST = frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList"})
"""What Java refuses by name; here everything is refused that is not declared live."""


class LiveSettings(Generic[C]):
    """A configuration that may change in part while the broker runs."""

    def __init__(self, config: C, file: Path | None = None) -> None:
        """Begin with `config`; what changes is written down in `file` before it counts."""
        self._config = config
        self._file = file
        self._changing = asyncio.Lock()
        self._listeners: list[Callable[[C, frozenset[str]], None]] = []

    @property
    def config(self) -> C:
        """The configuration as it is now."""
        return self._config

    def texts(self) -> dict[str, str]:
        """Return every setting as text, by Java name."""
        return as_properties(self._config)

    def listen(self, listener: Callable[[C, frozenset[str]], None]) -> None:
        """Have `listener(configuration, changed Java names)` called after each change."""
        self._listeners.append(listener)

    async def change(self, changes: Mapping[str, str]) -> None:
        """Change settings, all or none. Raises UsageError, OSError; then nothing has changed."""
        async with self._changing:
            new = change(self._config, changes)
            texts = changed_texts(self._config, new)
            if self._file is not None and texts:
                await asyncio.to_thread(write_down, self._file, texts)
            self._config = new
            for listener in self._listeners:
                listener(new, frozenset(texts))


class BrokerAdmin(Generic[C]):
    """Answers for the broker as a whole."""

    def __init__(self, settings: LiveSettings[C], topics: TopicTable, runtime: RuntimeInfo) -> None:
        self._settings = settings
        self._topics = topics
        self._runtime = runtime

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
            body=write_properties(self._settings.texts()),
        )

    async def update(self, request: Request) -> Command:
        """Change settings, all or none."""
        body = request.command.body
        if not body:
            return reply_to(request.command)
        if len(body) > UPDATE_SIZE_MAX:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"more than {UPDATE_SIZE_MAX} bytes of settings"
            )
        try:
            changes = read_properties(body)
            if not BLACK_LIST.isdisjoint(changes):
                raise Refused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
            await self._settings.change(changes)
        except UsageError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        except OSError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"cannot write it down: {error}") from error
        log.info("settings changed by %s: %s", request.peer.address, ", ".join(sorted(changes)))
        return reply_to(request.command)

    def runtime(self, request: Request) -> Command:
        """Return the state of the broker as a table of texts."""
        return reply_to(request.command, body=encode_kv_table(self._runtime.table()))
