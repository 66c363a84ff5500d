"""How long a receive waits, and where a message of a group goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol.java_hash import java_hash
from roquet.proxy.rules.codes import Code, Rejected

if TYPE_CHECKING:
    from roquet.proxy.rules.limits import ProxyLimits

_POLLING_TIME_SINCE = "5.0.3"
_MULTIPLIER = 2862933555777941757
_U64 = 2**64 - 1


def polling_ms(
    asked_ms: int | None,
    left_ms: int | None,
    request_timeout_ms: int,
    version: str,
    rules: ProxyLimits,
) -> int:
    """Return how long a receive may wait. Raises Rejected when there is not enough time left.

    `asked_ms` is what the request says; `left_ms` the time until its deadline, None without one.
    """
    low, high = rules.polling_min_ms, rules.polling_max_ms
    if left_ms is None:
        left_ms = high + request_timeout_ms
    wait_ms = left_ms - request_timeout_ms // 2 if asked_ms is None else asked_ms
    wait_ms = min(max(wait_ms, low), high)
    if wait_ms <= left_ms:
        return wait_ms
    if left_ms >= low:
        return left_ms
    old = not version or version <= _POLLING_TIME_SINCE
    raise Rejected(
        Code.BAD_REQUEST if old else Code.ILLEGAL_POLLING_TIME,
        "The deadline time remaining is not enough for polling, please check network condition",
    )


def queue_of_group(message_group: str, queues: int) -> int:
    """Return the queue of a message group: the consistent hash that Java's proxy takes.

    The same group stays in its queue as long as possible when queues are added.
    """
    state = java_hash(message_group) & _U64
    candidate = 0
    while True:
        state = (_MULTIPLIER * state + 1) & _U64
        bits = state >> 33
        following = int((candidate + 1) / ((bits + 1) / 2.0**31))
        if not 0 <= following < queues:
            return candidate
        candidate = following
