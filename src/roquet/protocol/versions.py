"""Version numbers of peers that change what they are told (spec: wire §3.2)."""

from __future__ import annotations

V3_0_7_SNAPSHOT = 28
"""Consumers below cannot reset offsets."""
V3_0_11 = 37
"""Registrations below carry a bare topic wrapper."""
V3_1_8_SNAPSHOT = 62
"""Consumers below give no running info."""
V3_4_9 = 121
"""Sends below have no maxReconsumeTimes."""
V4_1_0_SNAPSHOT = 232
V4_9_4 = 401
"""Routes for these and later are standard JSON."""
V5_0_0 = 413
"""Compressed registrations from here have a queue-mapping tail."""
V5_3_1 = 475
"""Clients above go elsewhere when they are told to (spec: wire §2)."""
V5_5_0 = 513
HIGHER_VERSION = 612

_FIRST_REGULAR = 212
"""From V4_0_0_SNAPSHOT on: two numbers a patch, ten patches a minor, ten minors a major."""


def describe(version: int) -> str:
    """Return a version's Java name (`V5_5_0`); those before 4.0 only as `V` and the number."""
    if version < _FIRST_REGULAR:
        return f"V{version}"
    if version >= HIGHER_VERSION:
        return "HIGHER_VERSION"
    number, released = divmod(version - _FIRST_REGULAR, 2)
    name = f"V{4 + number // 100}_{number // 10 % 10}_{number % 10}"
    return name if released else f"{name}_SNAPSHOT"
