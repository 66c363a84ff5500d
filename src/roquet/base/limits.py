"""Bounds on what comes from outside that several packages obey, and texts of peers made safe."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

FRAME_SIZE_MAX = 16 * MIB
"""Bytes of a whole frame; a frame's length field may say at most 4 less (spec: wire §2)."""
ANSWER_SIZE_MAX = FRAME_SIZE_MAX - 64 * KIB
"""Bytes of the body of an answer: what a frame takes beside its header."""
LOG_TEXT_MAX = 300
"""Characters of a peer's text in a log line (B20)."""


def safe(text: object, length_max: int | None = LOG_TEXT_MAX) -> str:
    """Return a peer's text for a log line or a remark: control characters escaped, cut short."""
    shown = str(text)
    if length_max is not None and len(shown) > length_max:
        shown = shown[:length_max] + "…"
    if shown.isprintable():
        return shown
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in shown
    )
