"""One job at a time: what keeps two from filling a folder, or going on from a checkpoint, at once.

A job that is started while one like it still runs makes the micro-batch that is under way a second
time: both write files of the same names, and each removes what the other has left half done.

The lock is the operating system's, on a file: it goes with its process, however that ends, so a
job that was killed leaves nothing to be broken. It holds between processes that see one disk; on
other file systems there is none, and one job at a time is for the one who starts them to keep.
"""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Generator


class Places(Protocol):
    """What is asked of a file system."""

    def local(self, path: str) -> str | None:
        """Return the path on this machine's disk; None on any other file system."""
        ...


@contextlib.contextmanager
def alone(files: Places, folder: str) -> Generator[None]:
    """Hold a folder's lock. Raises UsageError when another job holds it."""
    with _locked(files, folder, wait=False):
        yield


@contextlib.contextmanager
def in_turn(files: Places, folder: str) -> Generator[None]:
    """Hold a folder's lock, after the job that holds it now."""
    with _locked(files, folder, wait=True):
        yield


@contextlib.contextmanager
def _locked(files: Places, folder: str, *, wait: bool) -> Generator[None]:
    local = files.local(folder)
    if local is None:
        yield
        return
    # Beside it: a checkpoint that is there is one that was begun.
    path = Path(local)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise UsageError(
                f"{folder}: another job goes on from it or fills it now. One at a time: run this"
                " one again when that has ended"
            ) from error
        yield
