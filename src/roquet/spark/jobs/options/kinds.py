"""Short ways to write an option of a job, and the option that every job has."""

from __future__ import annotations

from typing import Final

from roquet.spark.option_table import STORAGE, Given, Option

NUMBER_MAX: Final = 2**62


def text(name: str, default: str, doc: str) -> Option:
    """Return an option that is any text."""
    return Option(name=name, default=default, doc=doc)


def number(name: str, default: str, doc: str, low: int, high: int = NUMBER_MAX) -> Option:
    """Return an option that is a whole number within two bounds, both included."""
    return Option(name=name, default=default, doc=doc, number=True, low=low, high=high)


def flag(name: str, doc: str) -> Option:
    """Return an option that is off unless it is given."""
    return Option(name=name, default="false", doc=doc, flag=True)


def metrics(files: str) -> Option:
    """Return the option for the folder that gets these files."""
    return text("metricsPath", "", f"folder of the driver for {files}")


PRESENCE: Final = (
    text(
        "brokers",
        "",
        "brokers by comma that live topics must be read of: one that is away is waited for, then an"
        " error; without it, those that our name server says have left are",
    ),
    number(
        "unreachableTimeoutMs",
        "120000",
        "milliseconds to wait for a broker or name server that is away",
        0,
        86_400_000,
    ),
)
"""How a job that reads live topics treats brokers that are away."""


def presence(given: Given) -> dict[str, str]:
    """Return those of `PRESENCE` that are given, as options of the source. Raises UsageError."""
    found = {"brokers": ",".join(given.names("brokers"))}
    limit_ms = given.number("unreachableTimeoutMs")
    if limit_ms is not None:
        found["unreachableTimeoutMs"] = str(limit_ms)
    return {name: value for name, value in found.items() if value}


def storage(given: Given) -> dict[str, str]:
    """Return those of `STORAGE` that are given, as options of the source."""
    return {it.name: value for it in STORAGE if (value := given.text(it.name))}


DRY_RUN: Final = flag("dryRun", "say what would be done, and do nothing")

FORMAT: Final = Option(
    name="format",
    default="parquet",
    doc="how it is kept; delta gets its jar from Maven Central at the first start",
    choices=("parquet", "delta"),
)
