"""Files of a lake, on any file system that Spark knows, as its driver sees them.

Nothing of a lake is on the driver's disk: everything goes through Hadoop's FileSystem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.base.errors import RoquetError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession


class LakeError(RoquetError):
    """The lake is not as its catalog says, or its file system refused."""


class Files:
    """A few calls to the file system. Paths are Hadoop's: with a scheme, or of the default one."""

    def __init__(self, spark: SparkSession) -> None:
        """Use the session's file systems."""
        context: Any = spark.sparkContext
        # PySpark has no public way to Hadoop's file systems.
        java: Any = context._jvm.org.apache  # noqa: SLF001
        # Looked up once: each part of a name is a call to the JVM.
        self._new_path: Any = java.hadoop.fs.Path
        self._to_paths: Any = java.hadoop.fs.FileUtil.stat2Paths
        self._to_text: Any = java.commons.lang3.ArrayUtils.toString
        self._read: Any = java.commons.io.IOUtils.toString
        self._conf: Any = context._jsc.hadoopConfiguration()  # noqa: SLF001

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        return bool(self._system(path).exists(self._path(path)))

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none when there is no folder."""
        if not self.exists(folder):
            return []
        found = self._system(folder).listStatus(self._path(folder))
        if len(found) == 0:
            return []
        within = f"{found[0].getPath().getParent().toString()}/"
        # One call for all: a call to the JVM for each name is seconds for 10,000 of them. Its text
        # is "{path,path}", and no name has a slash in it.
        text = str(self._to_text(self._to_paths(found)))
        return sorted(text[1:-1].removeprefix(within).split(f",{within}"))

    def local(self, path: str) -> str | None:
        """Return the path on this machine's disk; None on any other file system."""
        system = self._system(path)
        if str(system.getUri().getScheme()) != "file":
            return None
        return str(system.makeQualified(self._path(path)).toUri().getPath())

    def gather(self, paths: Iterable[str], folder: str) -> None:
        """Put files into a folder, which is made. Raises LakeError."""
        system = self._system(folder)
        system.mkdirs(self._path(folder))
        for path in paths:
            name = path.rpartition("/")[2]
            if not system.rename(self._path(path), self._path(f"{folder}/{name}")):
                raise LakeError(f"{path} could not be put into {folder}")

    def sources(self, frame: DataFrame) -> list[str]:
        """Return the files that a frame was found to have when it was made."""
        # One call, as for names; they are URIs, and have no comma but between them.
        java: Any = frame
        found: Any = java._jdf.inputFiles()  # noqa: SLF001
        return str(self._to_text(found))[1:-1].split(",") if len(found) else []

    def modified_ms(self, path: str) -> int:
        """Return when it was changed last, in Unix milliseconds."""
        return int(self._system(path).getFileStatus(self._path(path)).getModificationTime())

    def size(self, folder: str) -> int:
        """Return the bytes of all files below a folder; 0 when it is not there."""
        if not self.exists(folder):
            return 0
        return int(self._system(folder).getContentSummary(self._path(folder)).getLength())

    def read(self, path: str) -> str:
        """Return the text of a file."""
        stream = self._system(path).open(self._path(path))
        try:
            text = self._read(stream, "UTF-8")
        finally:
            stream.close()
        return str(text)

    def write_new(self, path: str, text: str) -> None:
        """Write a file as a whole: nobody sees half of it. Raises LakeError if it is there."""
        fresh = self._written_aside(path, text)
        if self.exists(path):
            self.delete(fresh)
            raise LakeError(f"{path} is there already")
        self.rename(fresh, path)

    def replace(self, path: str, text: str) -> None:
        """Write a file, also over an older one: for notes that nothing is lost without.

        It is there as a whole, as it was before, or, after a kill, not at all.
        """
        fresh = self._written_aside(path, text)
        # Not every file system renames over what is there.
        self.delete(path)
        self.rename(fresh, path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder, making the folder above. Raises LakeError."""
        system, target = self._system(new), self._path(new)
        system.mkdirs(target.getParent())
        if not system.rename(self._path(old), target):
            raise LakeError(f"{old} could not become {new}")

    def delete(self, path: str) -> None:
        """Remove a file or a folder with all that is in it; right also when it is gone."""
        self._system(path).delete(self._path(path), True)

    def _written_aside(self, path: str, text: str) -> str:
        folder, _, name = path.rpartition("/")
        fresh = f"{folder}/.{name}.new"
        self._write(fresh, text)
        return fresh

    def _write(self, path: str, text: str) -> None:
        stream = self._system(path).create(self._path(path), True)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()

    def _path(self, path: str) -> Any:
        return self._new_path(path)

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._conf)
