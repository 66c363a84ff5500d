"""White lists: which peer addresses a pattern stands for.

As in RocketMQ 4.x: `*`, one address, a comma list, ranges and wild cards by part (`10.0.3-7.*`,
`fd00::1:*`), and a last part in braces (`10.0.0.{1,2,9}`).
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from roquet.base.errors import UsageError
from roquet.protocol.hosts import host_of, read_ip

LENGTH_MAX = 4096
ALTERNATIVES_MAX = 1024

_EVERYONE = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_NUMBER = {4: re.compile(r"[0-9]{1,3}", re.ASCII), 8: re.compile(r"[0-9A-Fa-f]{1,4}", re.ASCII)}
_MAX = {4: 255, 8: 0xFFFF}

Parts = tuple[int, ...]
Ranges = tuple[tuple[int, int], ...]


class Pattern(NamedTuple):
    """A compiled white-list entry."""

    text: str
    """As it was written."""
    everyone: bool
    """Whether it stands for all peers, those with odd addresses included."""
    alternatives: tuple[Ranges, ...]
    """For each address or range: the lowest and highest value of each part, 4 or 8 of them."""

    def matches(self, parts: Parts) -> bool:
        """Tell whether a peer's address is among them."""
        if self.everyone:
            return True
        return any(
            len(ranges) == len(parts)
            and all(low <= part <= high for part, (low, high) in zip(parts, ranges, strict=True))
            for ranges in self.alternatives
        )


NOBODY = Pattern("", everyone=False, alternatives=())


def compile_pattern(text: str) -> Pattern:
    """Read one entry; an empty one stands for nobody. Raises UsageError with Java's words."""
    text = text.strip()
    if not text or text in {"null", "~"}:
        return NOBODY
    if len(text) > LENGTH_MAX:
        raise UsageError(f"Netaddress examine Exception netaddress has {len(text)} characters")
    if text in _EVERYONE:
        return Pattern(text, everyone=True, alternatives=())
    entries = _spread(text)
    if len(entries) > ALTERNATIVES_MAX:
        raise UsageError(f"Netaddress examine Exception netaddress has {len(entries)} addresses")
    return Pattern(text, everyone=False, alternatives=tuple(_ranges(it, text) for it in entries))


@functools.lru_cache(maxsize=4096)
def peer_parts(address: str) -> Parts:
    """Return the parts of a peer's `ip:port`; an IPv4 address mapped into IPv6 counts as IPv4.

    Nothing for an address that is none: only `*` matches it.
    """
    try:
        found = read_ip(host_of(address))
    except ValueError:
        return ()
    packed = found.packed
    if found.version == 4:
        return tuple(packed)
    return tuple(packed[at] << 8 | packed[at + 1] for at in range(0, 16, 2))


def _spread(text: str) -> list[str]:
    if not text.endswith("}"):
        return [part.strip() for part in text.split(",") if part.strip()]
    head, brace, tail = text.partition("{")
    if not brace or not head.endswith((".", ":")):
        raise _wrong(text)
    return [head + part.strip() for part in tail.removesuffix("}").split(",") if part.strip()]


def _ranges(entry: str, whole: str) -> Ranges:
    parts = _v6_parts(entry) if ":" in entry else entry.split(".")
    count = 8 if ":" in entry else 4
    if len(parts) != count:
        raise _wrong(whole)
    return tuple(_range(part.strip(), count, whole) for part in parts)


def _v6_parts(entry: str) -> list[str]:
    head, gap, tail = entry.partition("::")
    if not gap:
        return entry.split(":")
    before = head.split(":") if head else []
    after = tail.split(":") if tail else []
    return [*before, *["0"] * max(0, 8 - len(before) - len(after)), *after]


def _range(part: str, count: int, whole: str) -> tuple[int, int]:
    if part == "*":
        return 0, _MAX[count]
    low, _, high = part.partition("-")
    high = high or low
    base = 10 if count == 4 else 16
    if not (_NUMBER[count].fullmatch(low) and _NUMBER[count].fullmatch(high)):
        raise _wrong(whole)
    bounds = int(low, base), int(high, base)
    if bounds[0] > bounds[1] or bounds[1] > _MAX[count]:
        raise UsageError(
            "RangeRemoteAddressStrategy netaddress examine scope Exception"
            f" start is {bounds[0]} , end is {bounds[1]}"
        )
    return bounds


def _wrong(text: str) -> UsageError:
    return UsageError(f"Netaddress examine Exception netaddress is {text[:200]}")
