"""A table of Delta as its log says, read without Spark and without Delta's library.

Of the protocol it knows what the job `cdc` makes: commits in JSON from version 0 on, names of
columns in files by column mapping, partitions. Whatever else it finds it refuses.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

MAPPED = "delta.columnMapping.physicalName"


class LogError(Exception):
    """A log that is not as the protocol has it, or of a kind that is not known here."""


def current(table: Path) -> list[dict[str, Any]]:
    """Return the rows of a table of changes that its readers are to see. Raises LogError."""
    return [row for row in rows(table) if row["_current"]]


def rows(table: Path) -> list[dict[str, Any]]:
    """Return all rows of the newest version, with their columns' names. Raises LogError."""
    names, files = _newest(table)
    found: list[dict[str, Any]] = []
    for path, parted in files.items():
        file = table / unquote(path)
        if not file.is_file():
            raise LogError(f"{path} is in the log, and no file")
        # Not by its folder: the columns of a partition are those that the log says.
        for row in pq.ParquetFile(file).read().to_pylist():
            held = {**row, **parted}
            unknown = held.keys() - names.keys()
            if unknown:
                raise LogError(f"{path} has columns that the table has not: {unknown}")
            found.append({name: held.get(physical) for physical, name in names.items()})
    return found


def versions(table: Path) -> list[Path]:
    """Return the commits, the oldest first. Raises LogError when one is missing."""
    found = sorted(
        it
        for it in (table / "_delta_log").glob("*.json")
        if it.stem.isdigit() and len(it.stem) == 20
    )
    for number, path in enumerate(found):
        if int(path.stem) != number:
            raise LogError(f"version {number} is missing")
    if not found:
        raise LogError(f"{table} has no version")
    return found


def _newest(table: Path) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return names of columns by those in files, and the files with values of their partitions."""
    names: dict[str, str] = {}
    files: dict[str, dict[str, Any]] = {}
    for path in versions(table):
        for line in path.read_text().splitlines():
            ((kind, said),) = json.loads(line).items()
            if kind == "metaData":
                fields = json.loads(said["schemaString"])["fields"]
                names = {it["metadata"].get(MAPPED, it["name"]): it["name"] for it in fields}
            elif kind == "add":
                if said.get("deletionVector"):
                    raise LogError(f"{path.name}: vectors of deletions are not known here")
                files[said["path"]] = dict(said["partitionValues"])
            elif kind == "remove":
                if files.pop(said["path"], None) is None:
                    raise LogError(f"{path.name} removes {said['path']}, which is not there")
            elif kind not in {"commitInfo", "protocol", "txn", "domainMetadata"}:
                raise LogError(f"{path.name} has the action {kind}, which is not known here")
    return names, files
