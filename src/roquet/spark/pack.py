"""An archive of what Spark's tasks need, for `--archives`: a virtual environment without Spark.

It has this package with its compiled module, and the installed versions of what it needs in a task.
Spark comes from the cluster, and so does the interpreter: `bin/python` in it is a link to a Python
of the same version, which has to be at that path on every worker.
"""

from __future__ import annotations

import importlib.metadata
import io
import os
import re
import sys
import tarfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import roquet
from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOTS: Final = (
    "lz4",
    "msgspec",
    "prometheus-client",
    "pyyaml",
    "uvloop",
    "zstandard",
    "fastavro",
    "pandas",
    "protobuf",
    "pyarrow",
)
"""What tasks import, with what that needs: all dependencies but Spark and the plots."""
SUFFIX: Final = ".tar.gz"

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_LEFT_OUT = frozenset({"__pycache__", "tests", "include"})
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_SITE = PurePosixPath(f"lib/python{_VERSION}/site-packages")


def pack(target: Path, python: Path | None = None) -> int:
    """Write the archive and return its bytes; `python` is the interpreter's path on the workers.

    An existing file is replaced. Raises UsageError when the name is no .tar.gz or a dependency is
    not installed, OSError.
    """
    if not target.name.endswith(SUFFIX):
        raise UsageError(f"{target}: the archive's name has to end with {SUFFIX}")
    interpreter = python or Path(os.path.realpath(sys.executable))
    found = dict(_files())
    fresh = target.with_name(f".{target.name}.new")
    try:
        # The lowest level: it is read once on each worker, and compiled code shrinks little more.
        with tarfile.open(fresh, "w:gz", compresslevel=1, dereference=True) as archive:
            _text(archive, "pyvenv.cfg", _settings(interpreter))
            for name in ("bin/python", f"bin/python{_VERSION}"):
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, str(interpreter)
                archive.addfile(link)
            for name, path in sorted(found.items()):
                archive.add(path, name, recursive=False, filter=_anonymous)
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
    return target.stat().st_size


def distributions() -> list[importlib.metadata.Distribution]:
    """Return the installed distributions that go into the archive. Raises UsageError."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [(name, True) for name in ROOTS]
    while waiting:
        name, needed = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError as error:
            # What is needed on some systems only is not installed on others.
            if needed:
                raise UsageError(
                    f"{name} is missing: pip install 'roquet-VERSION.whl[spark]'"
                ) from error
            continue
        waiting += [(it, False) for it in _required(found[name].requires or ())]
    return list(found.values())


# --- inside --------------------------------------------------------------------------------------


def _required(requirements: Iterable[str]) -> Iterator[str]:
    for text in requirements:
        name = _NAME.match(text)
        if name is not None and "extra" not in text.partition(";")[2]:
            yield name[0]


def _files() -> Iterator[tuple[str, Path]]:
    """Return names in the archive and where the files are now."""
    for distribution in distributions():
        for file in distribution.files or ():
            path = Path(str(file.locate()))
            if ".." not in file.parts and not _LEFT_OUT & set(file.parts) and path.is_file():
                yield str(_SITE / file.as_posix()), path
    package = Path(roquet.__file__).parent
    # The packages by which Spark finds the formats stand beside it.
    for folder in (package, *sorted(package.parent.glob("pyspark_roquet*"))):
        for path in folder.rglob("*"):
            inner = path.relative_to(folder.parent)
            hidden = inner.name.startswith(".")
            if path.is_file() and not hidden and not _LEFT_OUT & set(inner.parts):
                yield str(_SITE / inner.as_posix()), path


def _settings(interpreter: Path) -> str:
    return (
        f"home = {interpreter.parent}\ninclude-system-site-packages = false\nversion = {_VERSION}\n"
    )


def _text(archive: tarfile.TarFile, name: str, text: str) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(text)
    archive.addfile(info, io.BytesIO(text.encode()))


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info
