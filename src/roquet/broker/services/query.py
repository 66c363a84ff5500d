"""Finding stored messages by key and by place."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.base.config import setting
from roquet.broker.api.query import QueryResult
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.transactions import HalfFound
from roquet.broker.services.access import Access
from roquet.protocol import properties as props
from roquet.protocol.names import TRANS_HALF_TOPIC
from roquet.store.records import read_records

if TYPE_CHECKING:
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.query import QueryRequest, ViewRequest
    from roquet.broker.api.transactions import FindHalfRequest
    from roquet.broker.messages.proof import ProvenMessages
    from roquet.store.results import Found

log = logging.getLogger(__name__)

HALF_COPIES_MAX = 32
"""A half message is stored again after each check."""
_FOREVER_MS = 2**63 - 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """How many messages one answer may have."""

    unique_max: int = setting(
        "defaultQueryMaxNum",
        32,
        "Messages of one answer to a query by unique key.",
        low=1,
        high=1024,
        live=True,
    )
    batch_max: int = setting(
        "maxMsgsNumBatch",
        64,
        "Messages of one answer to a query of any kind.",
        low=1,
        high=1024,
        live=True,
    )


class Archive(Protocol):
    """What is asked of the message store."""

    def query(self, topic: str, key: str, max_messages: int, begin: int, end: int) -> Found:
        """Return the messages with a key, stored between two times."""
        ...

    def read(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """Return the record at an offset, None when there is none."""
        ...


class Queries:
    """Finds messages."""

    def __init__(
        self,
        store: Archive,
        messages: ProvenMessages,
        rules: QueryLimits | None = None,
        access: Access | None = None,
    ) -> None:
        """Answer within `rules`, those of a fresh broker by default."""
        self._store = store
        self._messages = messages
        self._rules = rules or QueryLimits()
        self._access = access or Access()

    def follow(self, rules: QueryLimits) -> None:
        """Answer within other rules from now on."""
        self._rules = rules

    def by_key(self, request: QueryRequest, caller: Caller) -> QueryResult:
        """Return the messages with a key; damaged ones are left out and named in the log."""
        key = f"T#{request.key}" if request.by_tag else request.key
        wanted = self._rules.unique_max if request.by_unique_key else request.messages_max
        found = self._store.query(
            request.topic,
            key,
            max(0, min(wanted, self._rules.batch_max)),
            request.begin_ms,
            request.end_ms,
        )
        return QueryResult(
            records=[record for record in found.records if self._is_served(record, caller)],
            index_time_ms=found.index_time,
            index_offset=found.index_offset,
        )

    def half(self, request: FindHalfRequest, caller: Caller) -> HalfFound | None:
        """Return where the last copy of a half message is that the index has; None without one.

        Raises Refusal for a caller who may not send to its topic.
        """
        self._access.require_write(caller, request.topic)
        key, most = request.message_id, HALF_COPIES_MAX
        last: HalfFound | None = None
        for data in self._store.query(TRANS_HALF_TOPIC, key, most, 0, _FOREVER_MS).records:
            if not is_whole(data):
                continue
            record = read_records(data, check_crc=False)[0]
            if not props.is_half_of(props.read(record.properties), key, request.topic):
                continue
            at = record.physical_offset
            is_in_queue = self._messages.record_now(at) is not None
            if is_in_queue and (last is None or at > last.physical_offset):
                last = HalfFound(physical_offset=at, half_offset=record.queue_offset)
        return last

    async def by_place(self, request: ViewRequest, caller: Caller) -> bytes:
        """Return the record at a physical offset.

        Raises Refusal when there is none, or its topic is not the caller's to read.
        """
        offset = request.physical_offset
        found = await self._messages.record(offset)
        record = None if found is None else self._store.read(offset, found.size)
        if found is None or record is None:
            raise Refusal(Reason.FAILED, f"can not find message by the offset, {offset}")
        self._access.require_message(caller, found)
        return record

    def _is_served(self, data: bytes, caller: Caller) -> bool:
        """Tell whether a record of the index is whole, in its queue, and the caller's to read."""
        if not is_whole(data):
            return False
        record = read_records(data, check_crc=False)[0]
        try:
            self._access.require_message(caller, record)
        except Refusal:
            return False
        return self._messages.record_now(record.physical_offset) is not None


def is_whole(record: bytes) -> bool:
    """Tell whether a record is as it was stored; a damaged one is named in the log."""
    try:
        read_records(record)
    except ValueError as error:
        log.warning("a message that was looked for is damaged and is not served: %s", error)
        return False
    return True
