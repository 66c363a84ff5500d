"""How a client asks our name server for brokers that left, and is told. Java's ignores it.

The request for a route (105) or for all topics (206) has the field `withDeparted` = `true`. The
reply to the first then has `departedBrokers`, a JSON list of broker names, also when there is no
route any more; the second lists topics of those brokers too. A reply without the field comes from a
name server that does not keep who left.

Of a request to unregister (104) the field means: miss the broker no more, by its name. A broker
that is there is left as it is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ASK: Final = "withDeparted"
NAMES: Final = "departedBrokers"
NAMES_MAX: Final = 100
"""Names in one reply."""


def asked(ext: Mapping[str, str] | None) -> bool:
    """Tell whether a request asks for brokers that left."""
    return (ext or {}).get(ASK) == "true"


def told(names: Iterable[str]) -> dict[str, str]:
    """Return the field of a reply: the first of the names, sorted."""
    return {NAMES: json.dumps(sorted(names)[:NAMES_MAX])}


def read(ext: Mapping[str, str] | None) -> list[str] | None:
    """Return the names in a reply, None when it has no such field that can be read."""
    text = (ext or {}).get(NAMES)
    if text is None:
        return None
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list):
        return None
    names = cast("list[Any]", found)  # type: ignore[redundant-cast]
    return names if all(isinstance(it, str) for it in names) else None
