"""The settings of a running broker: which may change, and who hears of it.

Settings that may change while running are an allow-list, declared with each setting; nothing that
comes in reaches a file name or a command (bad input B13, CVE-2023-33246, CVE-2023-37582).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from roquet.base.config import as_properties, change, changed_texts
from roquet.base.errors import UsageError
from roquet.broker.api.refusal import Reason, Refusal
from roquet.service.config_file import write_down

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from roquet.broker.api.caller import Caller

log = logging.getLogger(__name__)

C = TypeVar("C")

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


class Settings(Generic[C]):
    """Shows and changes settings for operators."""

    def __init__(self, settings: LiveSettings[C]) -> None:
        self._settings = settings

    def texts(self, caller: Caller) -> dict[str, str]:
        """Return every setting as text, by Java name."""
        del caller
        return self._settings.texts()

    async def change(self, changes: Mapping[str, str], caller: Caller) -> None:
        """Change settings, all or none; they are written down then. Raises Refusal."""
        if not BLACK_LIST.isdisjoint(changes):
            raise Refusal(Reason.FORBIDDEN, "Can not update config in black list.")
        try:
            await self._settings.change(changes)
        except UsageError as error:
            raise Refusal(Reason.INVALID_ARGUMENT, str(error)) from error
        except OSError as error:
            raise Refusal(Reason.FAILED, f"cannot write it down: {error}") from error
        log.info("settings changed by %s: %s", caller.address, ", ".join(sorted(changes)))
