"""Pages of long tables, and the remark of some answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol.bodies.topics import decode_data_version
from roquet.protocol.fastjson import JsonError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.model.data_version import DataVersion

NOT_SET = "not set any response code"
"""The remark with which 5.5.0 says yes to codes 17, 18, 223 and 321."""
PAGE_MAX = 2000
"""Entries of one page of a table (splitMetadataSize)."""


def page_of(
    ext: Mapping[str, str] | None, start_name: str, count_name: str, version: DataVersion
) -> tuple[int, int] | None:
    """Return the bounds of the page that is asked for; None: everything at once.

    A reader that began with another version of the table begins anew.
    """
    given = ext or {}
    if not any(given.get(name) for name in ("dataVersion", start_name, count_name)):
        return None
    start = _count(given, start_name, 0)
    count = min(_count(given, count_name, PAGE_MAX), PAGE_MAX)
    known = given.get("dataVersion")
    if known:
        try:
            same = decode_data_version(known.encode()) == version
        except JsonError as error:
            raise Refusal(Reason.INVALID_ARGUMENT, f"dataVersion: {error}") from error
        start = start if same else 0
    return start, start + count


def _count(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Refusal(Reason.INVALID_ARGUMENT, f"{name}: {text[:40]!r} is not a count")
    return int(text)
