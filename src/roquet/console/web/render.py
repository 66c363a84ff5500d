"""Pages from templates. Whatever comes from a cluster is escaped; nothing is marked as safe."""

from __future__ import annotations

import hashlib
import importlib.resources
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.console.config import ConsoleConfig

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Pages:
    """The templates of the console."""

    def __init__(self, config: ConsoleConfig) -> None:
        """Load them."""
        self._environment = Environment(
            loader=PackageLoader("roquet.console", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        shared: dict[str, Any] = {
            "root": config.root_path,
            "home": config.base,
            "clusters": config.clusters,
            "cluster": config.cluster,
            "read_only": config.read_only,
            "version": static_version(),
            "link": _Links(config.root_path),
        }
        self._environment.globals.update(shared)
        self._environment.filters |= {
            "time": time_text,
            "size": size_text,
            "number": number_text,
            "said": said_number,
        }

    def render(self, template: str, data: Mapping[str, Any]) -> str:
        """Return a page."""
        return self._environment.get_template(template).render(data)


class _Links:
    """`link("/topic", name=...)`: a path with a query, below the root."""

    def __init__(self, root: str) -> None:
        self._root = root

    def __call__(self, path: str, **query: object) -> str:
        return self._root + to(path, **query)


def to(path: str, **query: object) -> str:
    """Return a path with a query; what is None or empty is left out."""
    left = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(left, errors='replace')}" if left else path


def static_version() -> str:
    """Return what changes when a file of ours that browsers keep changes."""
    digest = hashlib.sha256()
    folder = importlib.resources.files("roquet.console").joinpath("static")
    for name in ("console.css", "console.js"):
        digest.update(folder.joinpath(name).read_bytes())
    return digest.hexdigest()[:12]


def time_text(time_ms: float | None) -> str:
    """Return a time in UTC; - for none and for what is no time."""
    if not time_ms or time_ms <= 0:
        return "-"
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return "-"


def said_number(value: object) -> float | None:
    """Return the number that a client said, in whatever form; None for what is none."""
    try:
        found = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def size_text(count: float) -> str:
    """Return a number of bytes for people."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def number_text(count: float | None) -> str:
    """Return a number with spaces between thousands; - for none."""
    if count is None:
        return "-"
    text = f"{count:,.1f}" if count < 100 and count != int(count) else f"{count:,.0f}"
    return text.replace(",", "\N{NARROW NO-BREAK SPACE}")
