"""What a broker need not send: the fields of messages that no chosen column shows.

A broker of ours that is asked for a projection leaves the rest out and says so; any other passes
over the field and sends whole messages, and is not asked again by that reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

HEADERS: Final = "headers"
PROPERTIES: Final = "properties"
_NAMES: Final = {"uniqKey": "UNIQ_KEY", "keys": "KEYS", "tags": "TAGS"}
"""The property that a column shows."""


def of(columns: Collection[str], *, by_tags: bool) -> str | None:
    """Return what columns need of a message; None when that is all of it.

    `by_tags`: rows are also chosen by their tag, whether a column shows it or not. Pure.
    """
    if "body" in columns:
        return None
    if "properties" in columns:
        return PROPERTIES
    names = {name for column, name in _NAMES.items() if column in columns}
    if by_tags:
        names.add(_NAMES["tags"])
    return f"{PROPERTIES}:{','.join(sorted(names))}" if names else HEADERS
