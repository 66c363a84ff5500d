"""QUERY_MESSAGE 12 and VIEW_MESSAGE_BY_ID 33: stored messages by key and by place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.query import QueryRequest, ViewRequest
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.remoting.refusals import refusal_reply
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.message import (
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
)
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.query import Queries

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
"""A field beside those of the header: the key is the unique key of a message."""
_NOT_FOUND = Refusal(Reason.NOT_FOUND, "can not find message, maybe time range not correct")


class QueryAdapter:
    """Finds messages."""

    def __init__(self, queries: Queries, callers: Callers) -> None:
        self._queries = queries
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.QUERY_MESSAGE,), self.query, "query"),
            Route((RequestCode.VIEW_MESSAGE_BY_ID,), self.view, "query"),
        ]

    async def query(self, request: Request) -> Command:
        """Answer 12: the records with a key, one after the other."""
        ext = request.command.ext or {}
        header = QueryMessageRequest.decode(ext)
        wanted = QueryRequest(
            topic=header.topic,
            key=header.key,
            messages_max=header.max_num,
            begin_ms=header.begin_timestamp,
            end_ms=header.end_timestamp,
            by_tag=header.index_type == "T",
            by_unique_key=ext.get(UNIQUE_KEY_QUERY, "").lower() == "true",
        )
        found = self._queries.by_key(wanted, self._callers.of(request))
        fields = QueryMessageResponse(
            index_last_update_timestamp=found.index_time_ms,
            index_last_update_phyoffset=found.index_offset,
        ).encode()
        if not found.records:
            return refusal_reply(request.command, _NOT_FOUND, ext=fields)
        return reply_to(request.command, ext=fields, body=b"".join(found.records))

    async def view(self, request: Request) -> Command:
        """Answer 33: the record at a physical offset."""
        header = ViewMessageRequest.decode(request.command.ext)
        wanted = ViewRequest(physical_offset=header.offset)
        record = await self._queries.by_place(wanted, self._callers.of(request))
        return reply_to(request.command, body=record)
