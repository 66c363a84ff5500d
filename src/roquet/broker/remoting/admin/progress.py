"""How far things are: topics (202), groups (208, 317, 303), who reads what (300, 343), rates (315).

Next: broker/services/admin/progress.py, which has the rules. Long answers are written in slices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from roquet.base.limits import ANSWER_SIZE_MAX
from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol.bodies.fields import QueueText
from roquet.protocol.bodies.groups import encode_group_list
from roquet.protocol.bodies.stats import (
    GroupLag,
    consume_stats_body,
    consume_stats_list_body,
    encode_broker_stats,
    encode_group_lags,
    time_spans_body,
    topic_stats_body,
)
from roquet.protocol.bodies.topics import encode_topic_list
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.admin import (
    GetConsumeStatsInBroker,
    GetConsumeStatsRequest,
    GetTopicStatsInfoRequest,
    QueryConsumeTimeSpanRequest,
    QueryTopicConsumeByWhoRequest,
    QueryTopicsByConsumerRequest,
    ViewBrokerStatsDataRequest,
)
from roquet.remoting.router import Request, Route
from roquet.service.background import give_way
from roquet.service.slices import in_slices, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.base.clock import Clock
    from roquet.broker.api.caller import Caller
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.admin.progress import GroupProgress, Progress
    from roquet.broker.state import Identity

GROUPS_AT_ONCE = 20
_LAG_SIZE = 40
"""At most so many bytes does an answer have of a group beside its name."""
QUEUES_AT_ONCE = 100
"""Queues that are looked at, on disk as well, before others have their turn."""


class _Row(Protocol):
    """One queue's figures."""

    def row(self, queue: str) -> str:
        """Return them as JSON, under the queue's own text."""
        ...


class ProgressAdapter:
    """Answers how far topics and groups are."""

    def __init__(
        self, progress: Progress, callers: Callers, *, identity: Identity, clock: Clock
    ) -> None:
        self._progress = progress
        self._callers = callers
        self._identity = identity
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.GET_TOPIC_STATS_INFO,), self.topic, "admin"),
            Route((RequestCode.GET_CONSUME_STATS,), self.group, "admin"),
            Route((RequestCode.GET_BROKER_CONSUME_STATS,), self.every_group, "admin"),
            Route((RequestCode.QUERY_CONSUME_TIME_SPAN,), self.time_spans, "admin"),
            Route((RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,), self.groups_of_topic, "admin"),
            Route((RequestCode.QUERY_TOPICS_BY_CONSUMER,), self.topics_of_group, "admin"),
            Route((RequestCode.VIEW_BROKER_STATS_DATA,), self.rates, "admin"),
        ]

    async def topic(self, request: Request) -> Command:
        """Return each queue's bounds and when its last message was stored."""
        name = GetTopicStatsInfoRequest.decode(request.command.ext).topic
        found = self._progress.topic(name, self._callers.of(request))
        body = topic_stats_body(await self._rows(name, found), self._progress.put_rate(name))
        return reply_to(request.command, body=body)

    async def group(self, request: Request) -> Command:
        """Return how far a group is in one topic, some, or all that it has offsets in."""
        header = GetConsumeStatsRequest.decode(request.command.ext)
        group, caller = header.consumer_group, self._callers.of(request)
        if header.topic and header.topic.strip():
            wanted: Iterable[str] = [header.topic]
        elif header.topic_list:
            wanted = [name for name in header.topic_list.split(";") if name]
        else:
            wanted = self._progress.topics_of_group(group, caller)
        parts: list[bytes] = []
        size = 0
        tps = 0.0
        async for name in in_slices(dict.fromkeys(wanted), QUEUES_AT_ONCE):
            one, rows = await self._of_group(group, name, caller)
            if rows:
                parts.append(rows)
                size = _checked_size(size + len(rows))
            tps += 0.0 if one is None else one.tps
        body = consume_stats_body(b",".join(parts), tps)
        return reply_to(request.command, body=body)

    async def every_group(self, request: Request) -> Command:
        """Return how far every group is, and by how many messages all of them are behind."""
        header = GetConsumeStatsInBroker.decode({"isOrder": "false", **(request.command.ext or {})})
        caller, ordered = self._callers.of(request), bool(header.is_order)
        if header.lag_only:
            return reply_to(request.command, body=await self._lags(caller, ordered=ordered))
        found: dict[str, list[bytes]] = {}
        behind = in_flight = size = 0
        async for group in in_slices(self._progress.groups(caller), GROUPS_AT_ONCE):
            found[group] = []
            for name in self._progress.topics_of_group(group, caller):
                if not self._progress.is_known(name, ordered=ordered):
                    continue
                one, rows = await self._of_group(group, name, caller)
                if one is not None and rows:
                    found[group].append(consume_stats_body(rows, one.tps))
                    size = _checked_size(size + len(rows))
                    behind += one.behind
                    in_flight += one.in_flight
        body = consume_stats_list_body(
            found,
            broker_address=self._identity.address,
            total_diff=behind,
            total_inflight_diff=in_flight,
        )
        return reply_to(request.command, body=body)

    async def _lags(self, caller: Caller, *, ordered: bool) -> bytes:
        found: dict[str, GroupLag] = {}
        size = 0
        async for group in in_slices(self._progress.groups(caller), GROUPS_AT_ONCE):
            lag = 0
            for name in self._progress.topics_of_group(group, caller):
                if self._progress.is_known(name, ordered=ordered):
                    # A group may read many topics, and a topic may have many queues.
                    await give_way()
                    async for one in in_slices(
                        self._progress.lags(group, name, caller), QUEUES_AT_ONCE
                    ):
                        lag += one
            size = _checked_size(size + len(group) + _LAG_SIZE)
            found[group] = GroupLag(lag, self._progress.members(group, caller))
        return encode_group_lags(found)

    async def _of_group(
        self, group: str, topic: str, caller: Caller
    ) -> tuple[GroupProgress | None, bytes]:
        found = self._progress.group(group, topic, caller)
        if found is None:
            return None, b""
        # Also the looks at many small topics come to a slice: nobody knows how many there are.
        await give_way()
        return found, await self._rows(topic, found.queues)

    async def time_spans(self, request: Request) -> Command:
        """Return store times of each queue's oldest, newest and next message for a group."""
        header = QueryConsumeTimeSpanRequest.decode(request.command.ext)
        caller = self._callers.of(request)
        spans = self._progress.time_spans(header.group, header.topic, caller)
        body = time_spans_body(await self._rows(header.topic, spans))
        return reply_to(request.command, body=body)

    def groups_of_topic(self, request: Request) -> Command:
        """Return the groups that read a topic: those connected and those with offsets."""
        name = QueryTopicConsumeByWhoRequest.decode(request.command.ext).topic
        groups = self._progress.groups_of_topic(name, self._callers.of(request))
        return reply_to(request.command, body=encode_group_list(groups))

    def topics_of_group(self, request: Request) -> Command:
        """Return the topics in which a group has offsets."""
        group = QueryTopicsByConsumerRequest.decode(request.command.ext).group
        topics = self._progress.topics_of_group(group, self._callers.of(request))
        body = encode_topic_list(topics, self._identity.address)
        return reply_to(request.command, body=body)

    def rates(self, request: Request) -> Command:
        """Return the sums of a minute, an hour and a day of one named set and key."""
        header = ViewBrokerStatsDataRequest.decode(request.command.ext)
        caller = self._callers.of(request)
        found = self._progress.rates(header.stats_name, header.stats_key, caller)
        now_ms = self._clock.now_ms()
        body = encode_broker_stats(
            {
                "statsDay": found.day(now_ms),
                "statsHour": found.hour(now_ms),
                "statsMinute": found.minute(now_ms),
            }
        )
        return reply_to(request.command, body=body)

    async def _rows(self, topic: str, found: Iterable[tuple[int, _Row]]) -> bytes:
        """Write the rows of queues in slices."""
        text = QueueText(topic, self._identity.name)
        rows = (one.row(text.of(queue_id)) for queue_id, one in found)
        return await write_rows(rows, QUEUES_AT_ONCE)


def _checked_size(size: int) -> int:
    """Return the size of an answer. Raises Refusal when no frame could carry it."""
    if size > ANSWER_SIZE_MAX:
        what = f"the answer has more than {ANSWER_SIZE_MAX} bytes: ask for one topic at a time"
        raise Refusal(Reason.FAILED, what)
    return size
