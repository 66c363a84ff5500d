"""The two ids of a message: where it lies, and who made it (spec: wire §8.1, §8.2)."""

from __future__ import annotations

import datetime as dt
import functools
import itertools

_HEX = frozenset("0123456789ABCDEFabcdef")


def offset_id(store_host: bytes, physical_offset: int) -> str:
    """Return the offset message id; `store_host` is as in a record (8 or 20 bytes)."""
    return f"{_upper_hex(store_host)}{physical_offset & 0xFFFF_FFFF_FFFF_FFFF:016X}"


@functools.lru_cache(maxsize=1024)
def _upper_hex(host: bytes) -> str:
    """Brokers are few and messages many."""
    return host.hex().upper()


def parse_offset_id(text: str) -> tuple[bytes, int]:
    """Return (store host, physical offset). Raises ValueError (bad input B18)."""
    if len(text) not in (32, 56) or not _HEX.issuperset(text):
        raise ValueError("a message id has 32 or 56 hex digits")
    data = bytes.fromhex(text)
    return data[:-8], int.from_bytes(data[-8:], "big", signed=True)


def is_offset_id(text: str) -> bool:
    """Tell whether the text has the form of an offset message id."""
    return len(text) in (32, 56) and _HEX.issuperset(text)


class UniqueIds:
    """Makes UNIQ_KEYs: address, process, time since the start of the month, a counter.

    `address` is 4 or 16 bytes, `process_hash` any number constant within the process.
    """

    def __init__(self, address: bytes, pid: int, process_hash: int) -> None:
        if len(address) not in (4, 16):
            raise ValueError("an address has 4 or 16 bytes")
        self._prefix = f"{address.hex().upper()}{pid & 0xFFFF:04X}{process_hash & 0xFFFFFFFF:08X}"
        # One step each: producers of the blocking client make ids on threads of their own.
        self._counter = itertools.count(1)
        self._month = (0, 0)

    def make(self, now_ms: int) -> str:
        """Return the next id, upper-case hex of 32 or 56 digits."""
        start_ms, next_ms = self._month
        if not start_ms <= now_ms < next_ms:
            start_ms, next_ms = self._month = _month_around(now_ms)
        since = max(0, now_ms - start_ms) & 0xFFFFFFFF
        tail = since << 16 | next(self._counter) & 0xFFFF
        return self._prefix + tail.to_bytes(6, "big").hex().upper()


def _month_around(now_ms: int) -> tuple[int, int]:
    """Return the start of the month in local time and of the next, in Unix milliseconds."""
    zone = dt.UTC
    now = dt.datetime.fromtimestamp(now_ms / 1000, zone).astimezone()
    start = dt.datetime(now.year, now.month, 1)  # noqa: DTZ001  (local time is the rule)
    year, month = (now.year + 1, 1) if now.month == 12 else (now.year, now.month + 1)
    end = dt.datetime(year, month, 1)  # noqa: DTZ001
    return int(start.timestamp() * 1000), int(end.timestamp() * 1000)
