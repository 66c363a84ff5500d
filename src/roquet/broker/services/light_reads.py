"""Who may read which messages of a light queue (LMQ).

The bytes of a light queue are those of other topics' messages. The right to read the queue by its
own name, which the front asks for as RocketMQ does, is not the right to read these topics: what the
account may not read there is passed over here, as if the queue did not have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Refusal
from roquet.store.records import read_records
from roquet.store.results import GetStatus

if TYPE_CHECKING:
    from roquet.broker.api.caller import Caller
    from roquet.broker.services.access import Access
    from roquet.store.results import GetResult

MayRead = Callable[[str], bool]
"""Tells whether the caller may read a topic."""


def may_read(access: Access, caller: Caller) -> MayRead:
    """Return what tells which topics a caller may read at the moment."""

    def asked(topic: str) -> bool:
        try:
            access.require_read(caller, topic)
        except Refusal:
            return False
        return True

    return asked


def readable(result: GetResult, allowed: MayRead | None) -> GetResult:
    """Return a read of a light queue without the messages that the caller may not read."""
    if not result.messages or allowed is None:
        return result
    known: dict[str, bool] = {}
    mine: list[bytes] = []
    at = 0
    for record in read_records(result.records, check_crc=False):
        if record.topic not in known:
            known[record.topic] = allowed(record.topic)
        if known[record.topic]:
            mine.append(result.records[at : at + record.size])
        at += record.size
    if len(mine) == result.messages:
        return result
    status = result.status if mine else GetStatus.NO_MATCHED_MESSAGE
    return result._replace(status=status, messages=len(mine), records=b"".join(mine))
