"""What every JVM of the tests would do again, done once and kept beside the jars.

Most of a short JVM's CPU is reading and verifying classes. The Java broker leaves them in an
archive as it ends (AppCDS), which later JVMs map. A JVM takes the archive only while its class path
begins with the jars that the archive was made of. So the name of the file tells the jars apart, and
what a command adds to the path stands behind them. Programs of the tests are compiled once for each
content.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from roquet.base.errors import RoquetError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

QUICK_COMPILER = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")


class CompilerError(RoquetError):
    """A program of the tests does not compile."""


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _java() -> str:
    """Return the path of the JVM, which another version of it does not have."""
    return os.path.realpath(shutil.which("java") or "java")


def archive_path(jars: Path) -> Path:
    """Return where the archive of these jars and this JVM is, or will be."""
    listed = sorted((one.name, one.stat()) for one in jars.glob("*.jar"))
    files = [f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in listed]
    return jars.with_name(f"{jars.name}-{_key(str(jars), _java(), *files)}.jsa")


def archive_flags(jars: Path) -> list[str]:
    """Return the flags by which a JVM maps the archive, none while there is no archive.

    A JVM that cannot use it says so where errors go, as answers of programs are on standard output.
    """
    path = archive_path(jars)
    if not path.exists():
        return []
    return [f"-XX:SharedArchiveFile={path}", "-Xlog:disable", "-Xlog:all=warning:stderr"]


def dump_flags(path: Path) -> list[str]:
    """Return the flags by which a JVM leaves the archive as it ends."""
    return [f"-XX:ArchiveClassesAtExit={path}", "-Xlog:disable", "-Xlog:all=error:stderr"]


def compiled(sources: Sequence[Path], jars: Path, cache: Path) -> Path:
    """Return a folder of the cache with the classes of Java sources, compiled if they are new.

    Raises CompilerError with what the compiler said.
    """
    texts = [path.read_text() for path in sources]
    folder = cache / f"classes-{_key(str(jars), _java(), *texts)}"
    if folder.exists():
        return folder
    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    done = subprocess.run(  # noqa: S603  (our own arguments)
        ["javac", *QUICK_COMPILER, "-proc:none", "-d", str(draft), "-cp", f"{jars}/*"]
        + [str(path) for path in sources],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        shutil.rmtree(draft, ignore_errors=True)
        raise CompilerError(f"javac: {done.stderr}")
    try:
        draft.rename(folder)
    except OSError:
        # Another run was first.
        shutil.rmtree(draft)
    return folder
