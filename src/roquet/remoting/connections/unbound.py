"""What the fast path does as long as nobody has said who decides."""

from __future__ import annotations


def no_answer(pop: object, rows: object) -> bytes | None:
    """Leave every pop to the processors, as long as nobody has said who decides."""
    del pop, rows
    return None


def nothing_in_memory(merge: object) -> int:
    """Settle nothing, as long as nobody has said where."""
    del merge
    return 0


def nowhere(key: int, what: object) -> None:
    """Drop what is for a connection, as long as nobody has said how to reach one."""
    del key, what
