"""QUERY_MESSAGE 12 and VIEW_MESSAGE_BY_ID 33: finding stored messages by key and by place."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from roquet.base.errors import Refused
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.message import (
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
)
from roquet.remoting.router import Request, Route
from roquet.store.records import read_records

if TYPE_CHECKING:
    from roquet.store.results import Found

log = logging.getLogger(__name__)

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class Archive(Protocol):
    """What is asked of the message store."""

    def query(self, topic: str, key: str, max_messages: int, begin: int, end: int) -> Found:
        """Return the messages with a key, stored between two times."""
        ...

    def read(self, physical_offset: int) -> bytes | None:
        """Return the record at an offset, None when there is none."""
        ...


class QueryProcessor:
    """Finds messages."""

    def __init__(self, store: Archive, query_max: int = 32) -> None:
        """`query_max` bounds the messages of one answer (defaultQueryMaxNum)."""
        self._store = store
        self._query_max = query_max

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.QUERY_MESSAGE,), self.query, "query"),
            Route((RequestCode.VIEW_MESSAGE_BY_ID,), self.view, "query"),
        ]

    async def query(self, request: Request) -> Command:
        """Return the records with a key, one after the other."""
        ext = request.command.ext or {}
        header = QueryMessageRequest.decode(ext)
        wanted = header.max_num
        key = f"T#{header.key}" if header.index_type == "T" else header.key
        if ext.get(UNIQUE_KEY_QUERY, "").lower() == "true":
            wanted = self._query_max
        found = self._store.query(
            header.topic,
            key,
            max(0, min(wanted, self._query_max)),
            header.begin_timestamp,
            header.end_timestamp,
        )
        answer = QueryMessageResponse(
            index_last_update_timestamp=found.index_time,
            index_last_update_phyoffset=found.index_offset,
        )
        records = [record for record in found.records if is_whole(record)]
        if records:
            return reply_to(request.command, ext=answer.encode(), body=b"".join(records))
        return reply_to(
            request.command,
            ResponseCode.QUERY_NOT_FOUND,
            remark="can not find message, maybe time range not correct",
            ext=answer.encode(),
        )

    async def view(self, request: Request) -> Command:
        """Return the record at a physical offset."""
        header = ViewMessageRequest.decode(request.command.ext)
        record = self._store.read(header.offset) if header.offset >= 0 else None
        if record is None or not is_whole(record):
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}"
            )
        return reply_to(request.command, body=record)


def is_whole(record: bytes) -> bool:
    """Tell whether a record is as it was stored; a damaged one is named in the log."""
    try:
        read_records(record)
    except ValueError as error:
        log.warning("a message that was looked for is damaged and is not served: %s", error)
        return False
    return True
