"""What a name server remembers over its restart: which brokers there were, and what they served.

Routes come again from brokers, but those of a name server that has just started lack all brokers
that have not registered yet, and those that never will. So a file beside the key-value
configuration has both, those that left and those that are there; after a start all of them have
left until they register. It is written at each stop, and each second when something changed: what
a kill takes with it is what registered or left since then. Large tables are written less often, so
that this stays below a hundredth of the time, but each ten seconds at least.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from roquet.base.durable import replace_file
from roquet.namesrv.departures.departed import NAMES_MAX, TOPICS_MAX, Served

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from roquet.base.clock import Clock
    from roquet.namesrv.departures.departed import DepartedBrokers

log = logging.getLogger(__name__)

EVERY_S: Final = 1.0
LATEST_MS: Final = 10_000
SHARE: Final = 100
"""A write that took a second is followed by the next one after so many, `LATEST_MS` at most."""
FILE_MAX: Final = 256 * 1024 * 1024
"""Bytes of a file that is read: a million topics with the longest names fit."""

NAME_MAX: Final = 255
"""Characters of a name: longer ones are no name, and would fit no answer's header."""
LEFT_S_MAX: Final = 2**40

SHOWN_MAX: Final = 10
"""Names that the log lists at a start."""

Remembered = dict[str, tuple[int, Served]]
"""Broker name -> when it left, Unix milliseconds, and what it served."""


def file_name(port: int) -> str:
    """Return the name of the file of the name server on a port: those of one host may differ."""
    return f"departedBrokers-{port}.json"


class Table(Protocol):
    """Has who is there and who left."""

    @property
    def departed(self) -> DepartedBrokers:
        """Those who left."""
        ...

    def served(self) -> dict[str, Served]:
        """Return what each broker that is there serves."""
        ...


class Memory:
    """Keeps the table of those who left in a file. It fails no start, stop or request."""

    def __init__(self, path: Path, table: Table, keep_ms: Callable[[], int], clock: Clock) -> None:
        """Name the file; `start` reads it."""
        self._path = path
        self._table = table
        self._keep_ms = keep_ms
        self._clock = clock
        self._written: bytes | None = None
        self._next_ms = 0

    async def start(self) -> None:
        """Remember who was there when an earlier process ended."""
        if not self._keep_ms():
            return
        try:
            known = await asyncio.to_thread(read, self._path)
        except (OSError, ValueError) as error:
            log.warning("cannot use %s: who left before is not known: %s", self._path, error)
            return
        now_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        for name, (left_ms, served) in sorted(known.items(), key=lambda it: it[1][0]):
            ago_ms = max(0, now_ms - left_ms)
            self._table.departed.add({name: served}, steady_ms - ago_ms)
        self._table.departed.expire(steady_ms - self._keep_ms())
        names = sorted(self._table.departed.everyone())
        if names:
            log.info(
                "%d brokers were there before and are missed until they register: %s (%s; without"
                " that file nobody is missed)",
                len(names),
                ", ".join(names[:SHOWN_MAX]) + (", …" if len(names) > SHOWN_MAX else ""),
                self._path,
            )

    async def stop(self) -> None:
        """Write what is known at the end."""
        await self.write()

    async def look(self) -> None:
        """Write the file if that is due. Raises nothing."""
        begun_ms = self._clock.steady_ms()
        if begun_ms < self._next_ms:
            return
        await self.write()
        took_ms = self._clock.steady_ms() - begun_ms
        self._next_ms = begun_ms + min(LATEST_MS, SHARE * took_ms)

    async def write(self) -> None:
        """Write the file if it would be another one. A disk that refuses is logged."""
        if not self._keep_ms():
            return
        now_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        found: Remembered = {
            name: (now_ms - (steady_ms - at_ms), served)
            for name, (at_ms, served) in self._table.departed.everyone().items()
        }
        # Those that are there have no time: it would make each file another one.
        found |= {name: (0, served) for name, served in self._table.served().items()}
        try:
            self._written = await asyncio.to_thread(_replaced, self._path, found, self._written)
        except OSError as error:
            log.warning("%s is not written: %s", self._path, error)


def _replaced(path: Path, found: Remembered, before: bytes | None) -> bytes:
    data = encode(found)
    if data != before:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
    return data


def encode(found: Mapping[str, tuple[int, Served]]) -> bytes:
    """Return the file's content, an object a line. Times to the second: clocks drift apart."""
    return b"".join(
        json.dumps(
            {
                "broker": name,
                "cluster": served.cluster,
                "leftS": left_ms // 1000,
                "topics": sorted(served.topics),
            }
        ).encode()
        + b"\n"
        for name, (left_ms, served) in found.items()
    )


def read(path: Path) -> Remembered:
    """Return what a file says; nothing when there is none. Who has no time leaves now.

    Raises OSError, and ValueError for a file that is damaged or too long.
    """
    if not path.exists():
        return {}
    if path.stat().st_size > FILE_MAX:
        raise ValueError(f"longer than {FILE_MAX} bytes")
    found: Remembered = {}
    topics = 0
    for line in path.read_bytes().splitlines():
        name, left_s, served = _line(line)
        found[name] = ((left_s or 1 << 40) * 1000, served)
        topics += len(served.topics)
        if len(found) > NAMES_MAX or topics > TOPICS_MAX:
            raise ValueError(f"more than {NAMES_MAX} brokers or {TOPICS_MAX} topics")
    return found


def _line(line: bytes) -> tuple[str, int, Served]:
    try:
        said: Any = json.loads(line)
        name, cluster, left_s, topics = (
            said[it] for it in ("broker", "cluster", "leftS", "topics")
        )
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("a line is no broker") from error
    texts: list[Any] = [name, cluster, *topics] if isinstance(topics, list) else [None]
    if not all(isinstance(it, str) and len(it) <= NAME_MAX for it in texts):
        raise ValueError("a line is no broker")
    if type(left_s) is not int or not 0 <= left_s <= LEFT_S_MAX:
        raise ValueError("a line is no broker")
    return name, left_s, Served(cluster, cast("list[str]", topics))
