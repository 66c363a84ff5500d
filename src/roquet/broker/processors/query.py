"""QUERY_MESSAGE 12 and VIEW_MESSAGE_BY_ID 33: finding stored messages by key and by place."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.acl.accounts import Perm
from roquet.acl.needs import topic
from roquet.acl.rights import EVERYBODY
from roquet.base.config import setting
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
    from roquet.acl.rights import Rights
    from roquet.broker.proof import ProvenMessages
    from roquet.store.results import Found

log = logging.getLogger(__name__)

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueryRules:
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


class QueryProcessor:
    """Finds messages."""

    def __init__(
        self,
        store: Archive,
        messages: ProvenMessages,
        rules: QueryRules | None = None,
        rights: Rights = EVERYBODY,
    ) -> None:
        """Answer within `rules`, those of a fresh broker by default."""
        self._store = store
        self._messages = messages
        self._rules = rules or QueryRules()
        self._rights = rights

    def follow(self, rules: QueryRules) -> None:
        """Answer within other rules from now on."""
        self._rules = rules

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
            wanted = self._rules.unique_max
        found = self._store.query(
            header.topic,
            key,
            max(0, min(wanted, self._rules.batch_max)),
            header.begin_timestamp,
            header.end_timestamp,
        )
        answer = QueryMessageResponse(
            index_last_update_timestamp=found.index_time,
            index_last_update_phyoffset=found.index_offset,
        )
        records = [record for record in found.records if self._is_served(record)]
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
        found = await self._messages.record(header.offset)
        record = None if found is None else self._store.read(header.offset, found.size)
        if found is None or record is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}"
            )
        caller = self._rights.caller(request.command, request.peer.address)
        self._rights.require(caller, [topic(found.topic, Perm.SUB)])
        return reply_to(request.command, body=record)

    def _is_served(self, data: bytes) -> bool:
        """Tell whether a record that the index names is whole, and one that its queue has."""
        if not is_whole(data):
            return False
        at = read_records(data, check_crc=False)[0].physical_offset
        return self._messages.record_now(at) is not None


def is_whole(record: bytes) -> bool:
    """Tell whether a record is as it was stored; a damaged one is named in the log."""
    try:
        read_records(record)
    except ValueError as error:
        log.warning("a message that was looked for is damaged and is not served: %s", error)
        return False
    return True
