"""Survivors that were judged: the reason why each is harmless."""

from __future__ import annotations

from pathlib import Path

JUDGED = Path(__file__).parent / "judged.txt"


def judged(text: str | None = None) -> dict[str, str]:
    """Return the reasons of judged survivors by their keys.

    A line that begins with `#` is the reason for the keys below it.
    """
    found: dict[str, str] = {}
    reason = ""
    for line in (JUDGED.read_text() if text is None else text).splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line.strip():
            found[line.strip()] = reason
    return found
