"""Files of a lake as this process sees them, by PyArrow's file systems: without a JVM.

For Spark Connect, whose client has none. A path without a scheme is of this machine, and has to be
the same folder at the server; one with a scheme (`hdfs://`, `s3://`, `gs://`) is of PyArrow's file
system of that name. Hadoop keeps checksums of local files beside them (`.NAME.crc`): what is
written here has none, and those of what was there before go with it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roquet.base.overriding import override
from roquet.spark.jobs.storage.files import Files, LakeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame


class PlainFiles(Files):
    """The calls of `Files`."""

    def __init__(self) -> None:
        """Look for file systems when they are used."""
        self._systems: dict[str, Any] = {}

    @override
    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        return bool(self._info(path).type != self._kinds().NotFound)

    @override
    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none when there is no folder."""
        return sorted(str(it.base_name) for it in self._below(folder, recursive=False))

    @override
    def local(self, path: str) -> str | None:  # noqa: ARG002  (a server's disk is not known)
        """Return None: a server's tasks write by Spark."""
        return None

    @override
    def gather(self, paths: Iterable[str], folder: str) -> None:
        """Put files into a folder, which is made. Raises LakeError."""
        for path in paths:
            self.rename(path, f"{folder}/{path.rpartition('/')[2]}")

    @override
    def sources(self, frame: DataFrame) -> list[str]:
        """Return the files that a frame was found to have when it was made."""
        return frame.inputFiles()

    @override
    def modified_ms(self, path: str) -> int:
        """Return when it was changed last, in Unix milliseconds."""
        return int(self._info(path).mtime_ns) // 1_000_000

    @override
    def size(self, folder: str) -> int:
        """Return the bytes of all files below a folder; 0 when it is not there."""
        kinds, found = self._kinds(), self._below(folder, recursive=True)
        return sum(int(it.size) for it in found if it.type == kinds.File)

    @override
    def read(self, path: str) -> str:
        """Return the text of a file."""
        system, place = self._at(path)
        with system.open_input_stream(place) as stream:
            return str(stream.read().decode("utf-8"))

    @override
    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder, making the folder above. Raises LakeError."""
        if self.exists(new):
            raise LakeError(f"{old} could not become {new}, which is there")
        system, place = self._at(new)
        try:
            system.create_dir(place.rpartition("/")[0], recursive=True)
            system.move(self._at(old)[1], place)
        except OSError as error:
            raise LakeError(f"{old} could not become {new}: {error}") from error
        self._forget(old)

    @override
    def delete(self, path: str) -> None:
        """Remove a file or a folder with all that is in it; right also when it is gone."""
        kind, kinds = self._info(path).type, self._kinds()
        system, place = self._at(path)
        if kind == kinds.Directory:
            system.delete_dir(place)
        elif kind == kinds.File:
            system.delete_file(place)
        self._forget(path)

    @override
    def _write(self, path: str, text: str) -> None:
        system, place = self._at(path)
        system.create_dir(place.rpartition("/")[0], recursive=True)
        self._forget(path)
        with system.open_output_stream(place) as stream:
            stream.write(text.encode())
        if "://" not in path:
            with Path(place).open("rb") as file:
                os.fsync(file.fileno())

    def _forget(self, path: str) -> None:
        """Remove the checksum that Hadoop keeps of a local file."""
        if "://" not in path:
            place = Path(self._at(path)[1])
            (place.parent / f".{place.name}.crc").unlink(missing_ok=True)

    def _below(self, folder: str, *, recursive: bool) -> list[Any]:
        from pyarrow import fs  # noqa: PLC0415  (slow to import)

        system, place = self._at(folder)
        chosen = fs.FileSelector(place, allow_not_found=True, recursive=recursive)
        return list(system.get_file_info(chosen))

    def _info(self, path: str) -> Any:
        system, place = self._at(path)
        return system.get_file_info(place)

    def _kinds(self) -> Any:
        from pyarrow import fs  # noqa: PLC0415

        return fs.FileType

    def _at(self, path: str) -> tuple[Any, str]:
        """Return the file system of a path and the path there. Raises LakeError."""
        from pyarrow import fs  # noqa: PLC0415

        if "://" not in path:
            return fs.LocalFileSystem(), str(Path(path.removeprefix("file:")).absolute())
        scheme, _, rest = path.partition("://")
        authority, _, below = rest.partition("/")
        key = f"{scheme}://{authority}"
        try:
            if key not in self._systems:
                self._systems[key] = fs.FileSystem.from_uri(f"{key}/")
        except (OSError, ValueError) as error:
            raise LakeError(f"{key}: PyArrow has no file system for it: {error}") from error
        system, root = self._systems[key]
        return system, f"{root.rstrip('/')}/{below}" if root else below
