"""The files of accounts: `plain_acl.yml` and all of the folder `acl` beside it.

They are read when the server starts and again when their contents change. A change that cannot be
used is logged and what was in force stays. Tools change them through `change`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.acl import accounts
from roquet.base.config import setting
from roquet.base.durable import replace_file
from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.acl.accounts import Document, Table
    from roquet.base.clock import Clock

log = logging.getLogger(__name__)

RELOAD_S = 0.5
FILES_MAX = 1000
FILE_SIZE_MAX = 4 * 1024 * 1024
TOOLS_FILE = "tools.yml"
"""Credentials of Java's tools; never accounts."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AclConfig:
    """Whether requests need an account, and where the accounts are."""

    enabled: bool = setting("aclEnable", False, "Whether requests need the key of an account.")
    home: str = setting("rocketmqHome", "", "RocketMQ's folder; accounts are in its `conf`.")
    file: str = setting(
        "rocketmq.acl.plain.file",
        "conf/plain_acl.yml",
        "File of accounts, relative to that folder; the folder `acl` beside it counts as well.",
    )


def accounts_path(rules: AclConfig, config_file: Path | None) -> Path:
    """Return the main file: below RocketMQ's folder, or else beside the property file.

    Raises UsageError when there is neither.
    """
    file = Path(rules.file).expanduser()
    if file.is_absolute():
        return file
    if rules.home:
        return Path(rules.home).expanduser() / file
    if config_file is not None:
        return config_file.parent.resolve() / file.name
    raise UsageError(
        "aclEnable = 'true' needs rocketmq.acl.plain.file (an absolute path) or rocketmqHome,"
        " whose conf/plain_acl.yml has the accounts"
    )


class AccountFiles:
    """The accounts in force. A service; a timer calls `look`."""

    def __init__(self, main: Path, clock: Clock) -> None:
        """Read nothing yet."""
        self.main = main
        self.table: Table = accounts.Table()
        self._clock = clock
        self._digests: dict[Path, bytes] | None = None
        self._changing = asyncio.Lock()
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener()` called after each change."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Read all files. Raises UsageError."""
        if not self.main.is_file() and not (self.main.parent / "acl").is_dir():
            raise UsageError(f"aclEnable = 'true', but there is no {self.main}")
        try:
            await asyncio.to_thread(self._load)
        except OSError as error:
            raise UsageError(f"{error.filename}: {error.strerror}") from error
        self._tell()

    async def stop(self) -> None:
        """Nothing to do."""

    async def look(self) -> None:
        """Read the files again when they have changed: the action of a timer."""
        async with self._changing:
            await self._look()

    async def change(self, path: Path | None, edit: Callable[[Document], None]) -> None:
        """Let `edit` change a file's document (the main one's when `path` is None); use it at once.

        Raises UsageError, and OSError; then file and accounts are as they were.
        """
        async with self._changing:
            await asyncio.to_thread(self._edit, path or self.main, edit)
            await self._look()

    async def _look(self) -> None:
        try:
            changed = await asyncio.to_thread(self._load)
        except (UsageError, OSError) as error:
            log.warning("accounts stay as they were: %s", error)
            return
        if changed:
            log.info("accounts were read again: %d of them", len(self.table.accounts))
            self._tell()

    def read(self) -> Table:
        """Return what the files say now, and use nothing of it. Raises UsageError."""
        try:
            contents = self._read()
        except OSError as error:
            raise UsageError(f"{error.filename}: {error.strerror}") from error
        if not contents:
            raise UsageError(f"there is no {self.main}")
        return accounts.build(_documents(contents))

    def _load(self) -> bool:
        """Use what the files say; return whether they have changed. Raises UsageError, OSError."""
        contents = self._read()
        digests = {path: hashlib.sha256(data).digest() for path, data in contents.items()}
        if digests == self._digests:
            return False
        # A change that cannot be used is complained of once.
        self._digests = digests
        if not contents:
            raise UsageError(f"there is no {self.main} any more")
        self.table = accounts.build(_documents(contents))
        return True

    def _tell(self) -> None:
        for note in self.table.notes:
            log.warning("%s", note)
        for listener in self._listeners:
            listener()

    def _edit(self, path: Path, edit: Callable[[Document], None]) -> None:
        from roquet.acl.documents import read_document, write_document  # noqa: PLC0415

        contents = self._read()
        document = read_document(contents.get(path, b""))
        edit(document)
        version = accounts.version_of(document).next(self._clock.now_ms())
        stamp = {"counter": str(version.counter), "timestamp": str(version.timestamp)}
        document[accounts.DATA_VERSION] = [stamp]
        data = write_document(document)
        # What would not be read again is not written.
        accounts.build(_documents({**contents, path: data}))
        _replace(path, data)

    def _read(self) -> dict[Path, bytes]:
        """Return the contents of all files, those of the folder first, as in Java."""
        folder = self.main.parent / "acl"
        found = sorted(path for path in folder.rglob("*") if path.suffix in {".yml", ".yaml"})
        paths = [path for path in found if path.name != TOOLS_FILE and path.is_file()]
        if self.main.is_file() and self.main not in paths:
            paths.append(self.main)
        if len(paths) > FILES_MAX:
            raise UsageError(f"{folder}: {len(paths)} files are more than {FILES_MAX}")
        contents: dict[Path, bytes] = {}
        for path in paths:
            with path.open("rb") as file:
                contents[path] = file.read(FILE_SIZE_MAX + 1)
            if len(contents[path]) > FILE_SIZE_MAX:
                raise UsageError(f"{path} is larger than {FILE_SIZE_MAX} bytes")
        return contents


def _documents(contents: dict[Path, bytes]) -> dict[str, Document]:
    # Most brokers have no accounts, and a YAML reader takes its time to import.
    from roquet.acl.documents import read_document  # noqa: PLC0415

    found: dict[str, Document] = {}
    for path, data in contents.items():
        try:
            found[str(path)] = read_document(data)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
    return found


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; it stays readable for whom it was, a new one for us."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    replace_file(path, data, mode=mode)
