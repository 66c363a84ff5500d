"""Bits of the sysFlag of messages and of pulls (spec: wire §7.2, §10.1)."""

from __future__ import annotations

COMPRESSED = 0x001
MULTI_TAGS = 0x002
TRANSACTION_NONE = 0x000
TRANSACTION_PREPARED = 0x004
TRANSACTION_COMMIT = 0x008
TRANSACTION_ROLLBACK = 0x00C
TRANSACTION_MASK = 0x00C
BORN_HOST_V6 = 0x010
STORE_HOST_V6 = 0x020
HOST_BITS = BORN_HOST_V6 | STORE_HOST_V6
"""The address families of the two hosts, which only the broker may set (spec: wire §7.2)."""
NEED_UNWRAP = 0x040
INNER_BATCH = 0x080
COMPRESSION_SHIFT = 8
COMPRESSION_MASK = 0x700

PULL_COMMIT_OFFSET = 0x1
PULL_SUSPEND = 0x2
PULL_SUBSCRIPTION = 0x4
PULL_CLASS_FILTER = 0x8
PULL_LITE = 0x10


def transaction(flag: int) -> int:
    """Return the transaction bits alone."""
    return flag & TRANSACTION_MASK


def with_transaction(flag: int, state: int) -> int:
    """Replace the transaction bits."""
    return (flag & ~TRANSACTION_MASK) | state
