"""Commit-log files elsewhere: which there are, and their bytes by ranges.

A file has to stay as it was when it was planned. Its length and time are compared before the first
byte and after the last one, and a range that comes back short is an error: nothing that changes
meanwhile reads as a shorter log. A file is the work of one task, since a scan begins at a file's
first byte and would ask for it once more in each part.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from roquet.base.errors import Corrupt, UsageError
from roquet.spark.log_files import NAME, Found, Limit, in_order, parts
from roquet.spark.remote.systems import opened

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from roquet.spark.log_files import LogFile, Part
    from roquet.spark.remote.systems import Storage

BLANK_BYTES: Final = 8 << 20
"""Bytes asked for at a time of a file that may hold zeros only."""


def plan(uri: str, storage: Storage) -> list[Part]:
    """Return what tasks read of the store at `uri`, a file each.

    Nothing says there whether a broker writes: the store has to be a copy that is complete.
    Raises UsageError for a folder without commit log, or files that overlap; OSError.
    """
    system, place = opened(uri, storage)
    folder, infos = _listed(system, place)
    if not infos:
        raise UsageError(
            f"path = {uri[:200]!r}: there is no commit-log file, neither in it nor in its folder"
            " commitlog"
        )
    root = uri.rstrip("/") if folder == place else f"{uri.rstrip('/')}/commitlog"
    named = [Found(f"{root}/{it.base_name}", int(it.size), _time(it)) for it in infos]
    places = {f"{root}/{it.base_name}": str(it.path) for it in infos}
    files = in_order(named, lambda found: _is_blank(system, places[found.path], found))
    return list(parts(files, Limit()))


class RemoteFile:
    """One file, open for reading by ranges."""

    def __init__(self, file: LogFile, storage: Storage) -> None:
        """Look for it. Raises FileNotFoundError, OSError, Corrupt when it is not as planned."""
        self._file = file
        self._system, self._place = opened(file.path, storage)
        self._check()
        self._opened: Any = self._system.open_input_file(self._place)

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self._opened.close()

    @property
    def size(self) -> int:
        """The length that was planned, in bytes."""
        assert self._file.seen is not None
        return self._file.seen.size

    def read(self, at: int, size: int) -> bytes:
        """Return a range. Raises Corrupt when there are fewer bytes; OSError."""
        wanted = max(0, min(size, self.size - at))
        data = bytes(self._opened.read_at(wanted, at)) if wanted else b""
        if len(data) != wanted:
            raise Corrupt(
                f"{self._file.path}: {len(data)} of {wanted} bytes came from byte {at} on: it has"
                " been cut or replaced while it was read"
            )
        return data

    def finish(self) -> None:
        """See that it is still what was planned. Raises FileNotFoundError, Corrupt, OSError."""
        self._check()

    def _check(self) -> None:
        from pyarrow import fs  # noqa: PLC0415  (slow to import)

        info, seen, path = self._system.get_file_info(self._place), self._file.seen, self._file.path
        assert seen is not None
        if info.type != fs.FileType.File:
            raise FileNotFoundError(f"{path}: the file is gone")
        if (int(info.size), _time(info)) != (seen.size, seen.time_ns):
            raise Corrupt(
                f"{path}: it changed while the log was read: {seen.size} bytes when it was planned,"
                f" {info.size} now; read a copy that nobody writes"
            )


# --- inside --------------------------------------------------------------------------------------


def _listed(system: Any, place: str) -> tuple[str, list[Any]]:
    """Return the folder with commit-log files, and these."""
    from pyarrow import fs  # noqa: PLC0415

    for folder in (f"{place}/commitlog", place):
        chosen = fs.FileSelector(folder, allow_not_found=True)
        infos = system.get_file_info(chosen)
        found = [it for it in infos if it.type == fs.FileType.File and _is_named(it)]
        if found:
            return folder, found
    return place, []


def _is_named(info: Any) -> bool:
    return re.fullmatch(NAME, str(info.base_name)) is not None


def _time(info: Any) -> int:
    return int(info.mtime_ns or 0)


def _is_blank(system: Any, place: str, found: Found) -> bool:
    """Whether a file holds zeros only. One that was never written is read as a whole."""
    with system.open_input_file(place) as file:
        at = 0
        while at < found.size:
            data = bytes(file.read_at(min(BLANK_BYTES, found.size - at), at))
            if not data:
                raise Corrupt(f"{found.path}: it was cut while the log was planned")
            if data.count(0) != len(data):
                return False
            at += len(data)
    return True
