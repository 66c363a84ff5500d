"""The settings of a running broker: which may change, and who hears of it.

Settings that may change while running are an allow-list, declared with each setting; nothing that
comes in reaches a file name or a command (bad input B13, CVE-2023-33246, CVE-2023-37582).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from roquet.base.config import as_properties, change, changed_texts
from roquet.base.errors import RoquetError, UsageError
from roquet.broker.api.refusal import Reason, Refusal
from roquet.service.config_file import write_down

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from roquet.broker.api.caller import Caller

log = logging.getLogger(__name__)

C = TypeVar("C")

BLACK_LIST = frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList"})
"""What Java refuses by name; here everything is refused that is not declared live."""


class LiveConfig(Generic[C]):
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

    async def write(self, texts: Mapping[str, str]) -> None:
        """Write settings down for the next start; none changes now. Raises OSError, UsageError."""
        async with self._changing:
            if self._file is not None:
                await asyncio.to_thread(write_down, self._file, texts)

    async def replace(self, changed: Callable[[C], C]) -> None:
        """Change what is no live setting for operators; what is to last was written before."""
        async with self._changing:
            before, self._config = self._config, changed(self._config)
            texts = changed_texts(before, self._config)
            for listener in self._listeners if texts else ():
                listener(self._config, frozenset(texts))

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


ROLE_KEYS = frozenset({"brokerRole", "brokerId"})


class Settings(Generic[C]):
    """Shows and changes settings for operators."""

    def __init__(
        self,
        settings: LiveConfig[C],
        become: Callable[[Mapping[str, str]], Awaitable[Sequence[str]]],
    ) -> None:
        """`become` takes another role: what `ROLE_KEYS` say. Raises UsageError, RoquetError.

        It returns what went wrong without making the change fail.
        """
        self._settings = settings
        self._become = become

    def texts(self, caller: Caller) -> dict[str, str]:
        """Return every setting as text, by Java name."""
        del caller
        return self._settings.texts()

    async def change(self, changes: Mapping[str, str], caller: Caller) -> Sequence[str]:
        """Change settings, all or none; they are written down then. Raises Refusal.

        Returns what went wrong without making a change of role fail.
        """
        notes: Sequence[str] = ()
        if not BLACK_LIST.isdisjoint(changes):
            raise Refusal(Reason.FORBIDDEN, "Can not update config in black list.")
        try:
            if ROLE_KEYS.isdisjoint(changes):
                await self._settings.change(changes)
            else:
                notes = await self._take_role(changes)
        except UsageError as error:
            raise Refusal(Reason.INVALID_ARGUMENT, str(error)) from error
        except OSError as error:
            raise Refusal(Reason.FAILED, f"cannot write it down: {error}") from error
        except RoquetError as error:
            raise Refusal(Reason.FAILED, str(error)) from error
        log.info("settings changed by %s: %s", caller.address, ", ".join(sorted(changes)))
        return notes

    async def _take_role(self, changes: Mapping[str, str]) -> Sequence[str]:
        others = sorted(changes.keys() - ROLE_KEYS)
        if others:
            raise UsageError(f"a change of role comes alone, not with {others[0][:80]}")
        return await self._become(changes)
