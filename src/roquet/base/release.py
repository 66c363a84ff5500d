"""Which release this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def release() -> str:
    """Return the installed version, `(from source)` when it is not installed."""
    try:
        return version("roquet")
    except PackageNotFoundError:
        return "(from source)"
