"""The live tail of a topic, as events that a browser follows (SSE)."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from roquet.admin.matching import matcher
from roquet.base.errors import RoquetError
from roquet.console import declared
from roquet.console.context import context_of
from roquet.console.declared import Field
from roquet.console.denied import Denied
from roquet.console.web.front import address_of, failure

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from roquet.console.context import Context, Parts
    from roquet.console.sessions import Session
    from roquet.console.web.front import Front
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue

_EVERY_S = 0.5
_BEAT = 20
"""After so many looks without a message a line goes out, so that a reader who left is noticed."""
_QUEUE_MAX = 20
"""Messages of one queue a look; the tail passes over more of them and says so."""
_LOOK_MAX = 100
_SHOWN = 300
_FULL = "too many live tails are open: close one"
_FIELDS = (
    Field(name="topic", about="the topic", required=True),
    Field(name="tag", about="with one of these tags: a || b"),
    Field(name="sql", about="that this SQL92 filter takes", size_max=1000),
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Followed:
    topic: str
    at: dict[MessageQueue, int]
    """Where each queue goes on."""
    wanted: Callable[[StoredMessage], bool]


class Tails:
    """The handler of live tails. They end with the session, after a while, and at `closing`."""

    def __init__(self, parts: Parts, front: Front, closing: asyncio.Event) -> None:
        """Have none open."""
        self._parts = parts
        self._front = front
        self._closing = closing
        self._open = 0

    async def handle(self, request: Request) -> Response:
        """Begin to follow a topic at its end."""
        try:
            session = self._front.demand_session(request)
            given = declared.of_form(_FIELDS, self._front.query(request))
            if self._is_full(session):
                raise Denied(503, _FULL)
            address, topic = address_of(request), given["topic"]
            wanted = matcher(tag=given["tag"], sql=given["sql"])
            async with self._parts.client_of(session) as mq:
                at = await _ends(context_of(self._parts, session, address, mq), topic)
        except RoquetError as error:
            return failure(error)
        lines = self._followed(session, address, _Followed(topic, at, wanted))
        headers = {"x-accel-buffering": "no"}
        return StreamingResponse(lines, media_type="text/event-stream", headers=headers)

    async def _followed(
        self, session: Session, address: str, what: _Followed
    ) -> AsyncGenerator[str]:
        """Follow with the client of the session, which stays open as long."""
        try:
            async with self._parts.client_of(session) as mq:
                context = context_of(self._parts, session, address, mq)
                async for line in self._follow(context, session, what):
                    yield line
        except Denied as error:
            yield _event("trouble", {"error": str(error)})
            yield _event("end", {})

    async def _follow(
        self, context: Context, session: Session, what: _Followed
    ) -> AsyncGenerator[str]:
        if self._is_full(session):
            # Others came while the ends of the topic were asked for.
            yield _event("trouble", {"error": _FULL})
            yield _event("end", {})
            return
        clock = self._parts.clock
        end_s = clock.steady_ms() / 1000 + self._parts.limits.stream_s
        self._open += 1
        session.streams += 1
        quiet = 0
        try:
            yield _event("ready", {"queues": len(what.at)})
            while not self._closing.is_set():
                now_s = clock.steady_ms() / 1000
                if now_s > end_s or not self._parts.sessions.is_alive(session, now_s):
                    break
                try:
                    found, skipped = await _look(context, what.topic, what.at)
                except RoquetError as error:
                    yield _event("trouble", {"error": str(error)})
                    found, skipped = [], 0
                if skipped:
                    yield _event("skipped", {"count": skipped})
                for message in filter(what.wanted, found):
                    yield _event("message", self._shown(message))
                quiet = 0 if found else quiet + 1
                if quiet % _BEAT == 1:
                    yield ": nothing new\n\n"
                await clock.sleep(_EVERY_S)
            yield _event("end", {})
        finally:
            self._open -= 1
            session.streams -= 1

    def _is_full(self, session: Session) -> bool:
        limits = self._parts.limits
        return self._open >= limits.streams or session.streams >= limits.streams_each

    def _shown(self, it: StoredMessage) -> dict[str, Any]:
        is_hidden = self._parts.config.hide_bodies
        body = "(hidden)" if is_hidden else it.body[: 4 * _SHOWN].decode(errors="replace")
        return {
            "id": it.msg_id,
            "stored_ms": it.store_timestamp,
            "queue": f"{it.broker_name}:{it.queue_id}",
            "offset": it.queue_offset,
            "tag": it.tag or "",
            "keys": "" if is_hidden else " ".join(it.keys),
            "body": body[:_SHOWN],
        }


async def _ends(context: Context, topic: str) -> dict[MessageQueue, int]:
    bounds = await context.admin.topics.offsets(topic)
    return {queue: it.max_offset for queue, it in bounds.items()}


async def _look(
    context: Context, topic: str, at: dict[MessageQueue, int]
) -> tuple[list[StoredMessage], int]:
    """Return what is new, and how many messages were passed over; `at` moves on."""
    found: list[StoredMessage] = []
    skipped = 0
    for queue, end in (await _ends(context, topic)).items():
        begin = at.setdefault(queue, end)
        room = max(0, min(_QUEUE_MAX, _LOOK_MAX - len(found)))
        start = max(begin, end - room)
        if start < end:
            found += await context.admin.messages.at(queue, start, end - start)
        skipped += max(0, start - begin)
        at[queue] = end
    found.sort(key=lambda it: (it.store_timestamp, it.queue_offset))
    return found, skipped


def _event(kind: str, data: dict[str, Any]) -> str:
    # JSON has no line ends of its own: a body cannot begin an event.
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"
