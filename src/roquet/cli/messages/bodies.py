"""What `roquet pub` sends: the argument, a whole file, or the parts of an input."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncGenerator, Generator

COUNT = "{{count}}"
BODY_MAX = 4 * 1024 * 1024
"""Bytes of a message: the broker's maxMessageSize, unless an operator changed it."""
_CHUNK = 64 * 1024
_COUNTED_MAX = 1 << 30
"""Bytes of a part that is too long are counted up to here."""
_ESCAPES = {r"\n": b"\n", r"\0": b"\0", r"\t": b"\t", r"\r": b"\r", r"\r\n": b"\r\n"}


def bodies(options: argparse.Namespace, stop: asyncio.Event) -> AsyncGenerator[bytes]:
    """Give the bodies that the command line asks for, until `stop`. Raises UsageError."""
    if options.body is not None:
        if options.file is not None or options.delimiter is not None or options.lines:
            raise UsageError("give a body, or --file, --lines or --delimiter, not both")
        return _repeated(options.body, options.count)
    delimiter = _delimiter(options.delimiter)
    if options.file is None or options.file == "-":
        if options.file == "-" and not options.lines and options.delimiter is None:
            return _whole("-", stop)
        return Parts(0, delimiter, stop).read()
    if options.lines or options.delimiter is not None:
        return _parts_of(Path(options.file), delimiter, stop)
    return _whole(options.file, stop)


async def _repeated(body: str, count: int) -> AsyncGenerator[bytes]:
    for number in range(1, count + 1):
        yield body.replace(COUNT, str(number)).encode("utf-8", "surrogateescape")


async def _whole(name: str, stop: asyncio.Event) -> AsyncGenerator[bytes]:
    """Give a whole file as one message."""
    with _opened(name) as descriptor:
        found = bytearray()
        size = 0
        async for chunk in Parts(descriptor, b"", stop).chunks():
            size += len(chunk)
            if size <= BODY_MAX:
                found += chunk
            elif size > _COUNTED_MAX:
                break
        if size > BODY_MAX:
            raise _too_large(name if name != "-" else "the input", size)
        if not stop.is_set():
            yield bytes(found)


async def _parts_of(path: Path, delimiter: bytes, stop: asyncio.Event) -> AsyncGenerator[bytes]:
    with _opened(str(path)) as descriptor:
        async for part in Parts(descriptor, delimiter, stop).read():
            yield part


class _Splitter:
    """Cuts bytes at a delimiter; keeps no more of a part than a message may have."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._kept = bytearray()
        self._dropped = 0
        """Bytes of a part that is too large: only its size is still of interest."""
        self._number = 0
        self.empty = 0

    def feed(self, chunk: bytes) -> Generator[bytes]:
        """Give the parts that end in `chunk`. Raises UsageError for one that is too large."""
        self._kept += chunk
        *whole, self._kept = self._kept.split(self._delimiter)
        for part in whole:
            self._number += 1
            self._check(len(part))
            if part:
                yield bytes(part)
            else:
                self.empty += 1
        if self._dropped + len(self._kept) > BODY_MAX:
            # The delimiter may be cut in two: its first bytes stay.
            cut = len(self._kept) - len(self._delimiter) + 1
            self._dropped += cut
            del self._kept[:cut]
        if self._dropped > _COUNTED_MAX:
            self._number += 1
            self._check(0)

    def rest(self) -> bytes:
        """Return what is behind the last delimiter. Raises UsageError when it is too large."""
        self._number += 1
        self._check(len(self._kept))
        return bytes(self._kept)

    def _check(self, size: int) -> None:
        if self._dropped + size > BODY_MAX:
            raise _too_large(f"line {self._number}", self._dropped + size)


class Parts:
    """Reads a descriptor piece by piece; a signal ends the wait for a terminal or a pipe."""

    def __init__(self, descriptor: int, delimiter: bytes, stop: asyncio.Event) -> None:
        """Read nothing yet."""
        self._descriptor = descriptor
        self._delimiter = delimiter
        self._stop = stop

    async def read(self) -> AsyncGenerator[bytes]:
        """Give what is between delimiters, without them; empty parts are left out and counted."""
        splitter = _Splitter(self._delimiter)
        async for chunk in self.chunks():
            for part in splitter.feed(chunk):
                yield part
                if self._stop.is_set():
                    return
        if not self._stop.is_set():
            rest = splitter.rest()
            if rest:
                yield rest
        if splitter.empty:
            sys.stderr.write(
                f"roquet: {splitter.empty} empty lines not sent: a message needs a body\n"
            )

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Give what is read as it comes, until the end or a signal. Raises UsageError."""
        while not self._stop.is_set():
            await self._readable()
            if self._stop.is_set():
                return
            try:
                chunk = os.read(self._descriptor, _CHUNK)
            except OSError as error:
                raise UsageError(f"the input cannot be read: {error.strerror}") from error
            if not chunk:
                return
            yield chunk

    async def _readable(self) -> None:
        """Wait until there is something to read, or a signal; files never wait."""
        try:
            mode = os.fstat(self._descriptor).st_mode
        except OSError as error:
            raise UsageError(f"the input cannot be read: {error.strerror}") from error
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(self._descriptor)):
            return
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._descriptor, ready.set)
        try:
            async with asyncio.TaskGroup() as group:
                waiting = [group.create_task(it.wait()) for it in (ready, self._stop)]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in waiting:
                    task.cancel()
        finally:
            loop.remove_reader(self._descriptor)


def _delimiter(given: str | None) -> bytes:
    if given is None:
        return b"\n"
    found = _ESCAPES.get(given, given.encode("utf-8", "surrogateescape"))
    if not found:
        raise UsageError(r"--delimiter is empty: give one or more characters, as '\0' or ','")
    return found


def _too_large(what: str, size: int) -> UsageError:
    shown = f"more than {_COUNTED_MAX}" if size > _COUNTED_MAX else str(size)
    return UsageError(
        f"{what} has {shown} bytes: the limit of a message is {BODY_MAX}; nothing of it was sent"
    )


@contextlib.contextmanager
def _opened(name: str) -> Generator[int]:
    if name == "-":
        yield 0
        return
    try:
        descriptor = os.open(name, os.O_RDONLY)
    except OSError as error:
        raise UsageError(f"--file {name}: {error.strerror}") from error
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise UsageError(f"--file {name}: it is a folder")
        yield descriptor
    finally:
        os.close(descriptor)
