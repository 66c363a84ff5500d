"""Bounds on everything that comes from outside; each names what it is a bound of."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

FRAME_SIZE_MAX = 16 * MIB
"""Bytes of a whole frame; a frame's length field may say at most 4 less (spec: wire §2)."""
ANSWER_SIZE_MAX = FRAME_SIZE_MAX - 64 * KIB
"""Bytes of the body of an answer: what a frame takes beside its header."""
MESSAGE_BODY_MAX = 4 * MIB
"""Bytes of a stored body, unless the broker is configured otherwise."""
RECORD_EXTRA_MAX = 64 * KIB
"""Bytes of a record beside its body."""
PROPERTIES_MAX = 32_767
"""UTF-8 bytes of a property string."""
PULL_MESSAGES_MAX = 32
"""Messages of one pull answer that lie in memory."""
CLIENT_ID_MAX = 255
"""Characters of a client id (bad input B15)."""
SUBSCRIPTIONS_MAX = 10_000
"""Topics that one group may subscribe to in a heartbeat (B15)."""
HEARTBEAT_GROUPS_MAX = 10_000
"""Groups in one heartbeat (B15)."""
TOPIC_QUEUES_MAX = 65_535
"""Queues of one topic on one broker (B14)."""
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
