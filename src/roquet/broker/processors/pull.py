"""PULL_MESSAGE 11 and LITE_PULL_MESSAGE 361: reading from a queue, or waiting for a message there.

Checks in the order of 5.5.0 (spec: broker (b) "PULL", wire §10). A pull that finds nothing and may
wait is held by broker/holds.py and answered later, without waiting again.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Protocol

from roquet.base.errors import Refused
from roquet.broker.checks import FAQ, group_for
from roquet.broker.expressions import Choice
from roquet.broker.holds import Held, Holds
from roquet.model.subscription import ExpressionType
from roquet.model.topic import can_read
from roquet.protocol import names, sys_flag, tags
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.message import PullMessageRequest, PullMessageResponse
from roquet.remoting.headers import reader
from roquet.remoting.router import Ports, Request, Route
from roquet.store.filters import compiled
from roquet.store.groups import FORBIDDEN_SUBSCRIPTION
from roquet.store.results import GetResult, GetStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.base.clock import Clock
    from roquet.broker.pull_rules import PullRules
    from roquet.broker.state import BrokerState
    from roquet.broker.traffic import Traffic
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.subscription import SubscriptionData
    from roquet.model.topic import TopicConfig
    from roquet.store.filters import Filter, FilterTable
    from roquet.store.groups import GroupTable
    from roquet.store.offsets import OffsetTable
    from roquet.store.topics import TopicTable

SUSPEND_MS_MAX = 60_000
"""How long a pull is held at most, whatever it asks for."""


class ConsumingGroup(Protocol):
    """A group that has members, as far as pulls look at it."""

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets every message."""
        ...


class Consumers(Protocol):
    """Knows who consumes what."""

    def consumer(self, group: str) -> ConsumingGroup | None:
        """Return a group that has members."""
        ...

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return what the group's heartbeats say about a topic."""
        ...


class Reader(Protocol):
    """What pulls need of the message store."""

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        tag_codes: Sequence[int] | None = None,
        filter_by: Filter | None = None,
    ) -> GetResult:
        """Read from a queue."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Admitted:
    """A pull that passed the checks."""

    header: PullMessageRequest
    topic: TopicConfig
    group: SubscriptionGroupConfig
    subscription: SubscriptionData
    filter_by: Filter | None = None

    @property
    def codes(self) -> list[int] | None:
        """Tag codes that are wanted; None for all."""
        return self.subscription.wanted_codes

    @property
    def is_filtered(self) -> bool:
        """Whether some messages may not be wanted."""
        return bool(self.subscription.tags) or self.filter_by is not None


class Expressions(Protocol):
    """Is told what expressions mean that pulls bring."""

    def note(self, kind: str, text: str, choice: Choice) -> None:
        """Know what an expression of a kind means."""
        ...


class PullChecks:
    """Whether a pull may read (spec: wire §10.2)."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        filters: FilterTable,
        consumers: Consumers,
        *,
        state: BrokerState,
        rules: PullRules,
        expressions: Expressions,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._filters = filters
        self._expressions = expressions
        self._consumers = consumers
        self.state = state
        self._rules = rules

    def follow(self, rules: PullRules) -> None:
        """Admit by other settings from now on."""
        self._rules = rules

    def admit(self, command: Command) -> Admitted:
        """Return what the pull is for. Raises Refused and HeaderError."""
        header = _READ(command)
        if self.state.is_slave and not self._rules.slave_read:
            remark = "[REJECTREQUEST]system busy, start flow control for a while"
            raise Refused(ResponseCode.SYSTEM_BUSY, remark)
        if not self.state.is_readable:
            raise Forbidden(1, "the broker does not serve reads")
        if command.code == RequestCode.LITE_PULL_MESSAGE and not self._rules.lite_pull:
            raise Forbidden(1, "the broker does not serve lite pulls")
        group = group_for(self._groups, header.consumer_group)
        if not group.consume_enable:
            raise Forbidden(2, f"subscription group no permission, {header.consumer_group}")
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!{FAQ}",
            )
        if not can_read(topic.perm):
            raise Forbidden(3, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queues:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
                f" topicConfig.readQueueNums:[{topic.read_queues}]",
            )
        subscription, filter_by = self._subscription(header, group)
        return Admitted(header, topic, group, subscription, filter_by)

    def _subscription(
        self, header: PullMessageRequest, group: SubscriptionGroupConfig
    ) -> tuple[SubscriptionData, Filter | None]:
        if header.sys_flag & sys_flag.PULL_SUBSCRIPTION:
            try:
                found = _subscribed(
                    header.topic,
                    header.subscription,
                    version=header.sub_version,
                    expression_type=header.expression_type,
                )
            except tags.ExpressionError as error:
                raise _unparsable(error) from error
        else:
            found = self._registered(header, group)
        is_sql = found.expression_type not in ("", ExpressionType.TAG)
        sql_serves = self._rules.property_filter and found.expression_type == ExpressionType.SQL92
        if is_sql and not sql_serves:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "The broker does not support consumer to filter message by "
                + found.expression_type,
            )
        if self._rules.reject_pull_consumers and self._consumers.consumer(group.name) is None:
            self._refuse_absent(group.name)
        filter_by = self._filter(header, found) if sql_serves else None
        if header.sys_flag & sys_flag.PULL_SUBSCRIPTION:
            kind = header.expression_type or ExpressionType.TAG
            choice = Choice(found.wanted_codes, filter_by)
            self._expressions.note(kind, header.subscription or "", choice)
        return found, filter_by if sql_serves else self._retry_filter(header)

    def _registered(
        self, header: PullMessageRequest, group: SubscriptionGroupConfig
    ) -> SubscriptionData:
        consuming = self._consumers.consumer(group.name)
        if consuming is None:
            self._refuse_absent(group.name)
        elif consuming.is_broadcasting and not group.consume_broadcast_enable:
            raise Forbidden(4, f"the consumer group[{group.name}] can not consume by broadcast way")
        if self._groups.forbidden(group.name, header.topic) & FORBIDDEN_SUBSCRIPTION:
            raise Forbidden(
                5, f"the consumer group[{group.name}] is forbidden for topic[{header.topic}]"
            )
        found = self._consumers.subscription(group.name, header.topic)
        if found is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist{FAQ}",
            )
        if found.version < header.sub_version:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        if found.expression_type not in ("", ExpressionType.TAG):
            self._check_filter(header, found.version)
        return found

    def _check_filter(self, header: PullMessageRequest, version: int) -> None:
        entry = self._filters.find(header.topic, header.consumer_group)
        if entry is None:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if entry.version < version:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )

    def _filter(self, header: PullMessageRequest, found: SubscriptionData) -> Filter:
        if not header.sys_flag & sys_flag.PULL_SUBSCRIPTION:
            entry = self._filters.find(header.topic, header.consumer_group)
            if entry is not None:
                return entry.filter
        try:
            return compiled(found.expression)
        except tags.ExpressionError as error:
            raise _unparsable(error) from error

    def _retry_filter(self, header: PullMessageRequest) -> Filter | None:
        is_retry = self._rules.filter_retries and names.is_retry(header.topic)
        return self._filters.for_retries(header.consumer_group) if is_retry else None

    def _refuse_absent(self, group: str) -> None:
        raise Refused(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the consumer's group info not exist, group: {group}{FAQ}",
        )


def _unparsable(error: tags.ExpressionError) -> Refused:
    return Refused(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: {error}",
    )


class Forbidden(Refused):
    """NO_PERMISSION and its kind: 1 broker, 2 group, 3 topic, 4 broadcast, 5 subscription."""

    def __init__(self, kind: int, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.kind = kind


class PullProcessor:
    """Answers pulls."""

    def __init__(
        self,
        *,
        checks: PullChecks,
        store: Reader,
        offsets: OffsetTable,
        holds: Holds,
        traffic: Traffic,
        rules: PullRules,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._checks = checks
        self._state = checks.state
        self._store = store
        self._offsets = offsets
        self._holds = holds
        self._traffic = traffic
        self._rules = rules

    def follow(self, rules: PullRules) -> None:
        """Answer by other settings from now on; pulls that are held wait as they were told."""
        self._rules = rules
        self._checks.follow(rules)

    def routes(self) -> list[Route]:
        """Return the codes this answers; the fast port does not serve them."""
        return [
            Route((RequestCode.PULL_MESSAGE,), self.pull, "pull", Ports.MAIN),
            Route((RequestCode.LITE_PULL_MESSAGE,), self.pull, "lite_pull", Ports.MAIN),
        ]

    def pull(self, request: Request) -> Command | None:
        """Answer now, or hold the pull and return None."""
        return self._answer(request, may_hold=True)

    def resume(self, request: Request) -> None:
        """Answer a pull that was held: its offsets are noted, and it waits no more."""
        answer = self._answer(request, may_hold=False)
        if answer is not None:
            request.reply(answer)

    def _answer(self, request: Request, *, may_hold: bool) -> Command | None:
        command = request.command
        try:
            admitted = self._checks.admit(command)
        except Refused as refused:
            # Java clients read extFields of every answer to a pull.
            ext = {"forbiddenType": str(refused.kind)} if isinstance(refused, Forbidden) else {}
            return reply_to(command, refused.code, remark=refused.remark, ext=ext)
        header = admitted.header
        began_ms = self._clock.now_ms()
        result = self._read(admitted)
        took_ms = max(0, self._clock.now_ms() - began_ms)
        code, result, suggested = self._directed(admitted, result)
        if may_hold:
            self._note_offsets(admitted, result)
            if code is ResponseCode.PULL_NOT_FOUND and self._hold(request, admitted):
                return None
        where = (header.consumer_group, header.topic, header.queue_id)
        self._traffic.pulled(*where, result, took_ms)
        fields = PullMessageResponse.written(
            suggest_which_broker_id=suggested,
            next_begin_offset=result.next_begin_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            topic_sys_flag=admitted.topic.sys_flag,
            group_sys_flag=admitted.group.sys_flag,
        )
        return reply_to(command, code, remark=result.status.name, ext=fields, body=result.records)

    def _directed(
        self, admitted: Admitted, result: GetResult
    ) -> tuple[ResponseCode, GetResult, int]:
        """Return the code, the result as this role gives it, and which broker to ask next."""
        code = code_of(result.status, admitted.header.queue_offset)
        suggested = 0
        if self._rules.slave_read:
            group = admitted.group
            slow = result.suggest_slave
            suggested = group.which_broker_when_consume_slowly if slow else group.broker_id
        if not self._state.is_slave:
            return code, result, suggested
        if code is ResponseCode.PULL_OFFSET_MOVED and not self._rules.offset_check_in_slave:
            # The slave may be behind: the reader keeps its offset and asks again.
            result = result._replace(next_begin_offset=admitted.header.queue_offset)
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            suggested = admitted.group.broker_id
        if self._state.has_master and not result.suggest_slave:
            suggested = 0
            if result.status is not GetStatus.FOUND:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        return code, result, suggested

    def _read(self, admitted: Admitted) -> GetResult:
        header = admitted.header
        reset = self._offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        result = self._store.get(
            header.topic,
            header.queue_id,
            header.queue_offset,
            # The settings of the store bound it further.
            max(1, header.max_msg_nums),
            tag_codes=admitted.codes,
            filter_by=admitted.filter_by,
        )
        if reset is None:
            return result
        return GetResult(GetStatus.OFFSET_RESET, reset, result.min_offset, result.max_offset)

    def _note_offsets(self, admitted: Admitted, result: GetResult) -> None:
        header = admitted.header
        where = (header.consumer_group, header.topic, header.queue_id)
        self._offsets.note_pull(*where, header.queue_offset)
        if not header.sys_flag & sys_flag.PULL_COMMIT_OFFSET or header.commit_offset < 0:
            return
        if result.status is not GetStatus.OFFSET_RESET:
            self._offsets.commit(*where, min(header.commit_offset, result.max_offset))

    def _hold(self, request: Request, admitted: Admitted) -> bool:
        header = admitted.header
        if not header.sys_flag & sys_flag.PULL_SUSPEND:
            return False
        wait_ms = min(header.suspend_timeout_millis, SUSPEND_MS_MAX)
        if not self._rules.long_polling:
            wait_ms = self._rules.short_polling_ms

        held = Held(
            topic=header.topic,
            queue_id=header.queue_id,
            peer=request.peer,
            offset=header.queue_offset,
            resume=functools.partial(self.resume, request),
            matches=_Matches(self._store, admitted) if admitted.is_filtered else None,
        )
        return self._holds.hold(held, max(0, wait_ms))


class _Matches:
    """Looks for a wanted message among those that came since it last looked."""

    def __init__(self, store: Reader, admitted: Admitted) -> None:
        self._store = store
        self._topic = admitted.header.topic
        self._queue_id = admitted.header.queue_id
        self._codes = admitted.codes
        self._filter = admitted.filter_by
        self._from = admitted.header.queue_offset

    def __call__(self, max_offset: int) -> bool:
        while self._from < max_offset:
            result = self._store.get(
                self._topic,
                self._queue_id,
                self._from,
                1,
                tag_codes=self._codes,
                filter_by=self._filter,
            )
            if result.status is not GetStatus.NO_MATCHED_MESSAGE:
                return True
            if result.next_begin_offset <= self._from:
                return False
            self._from = result.next_begin_offset
        return False


_READ = reader(PullMessageRequest)
_subscribed = functools.lru_cache(maxsize=1024)(tags.subscribe)
"""What consumers bring with each pull is mostly the same each time."""


def code_of(status: GetStatus, offset: int) -> ResponseCode:
    """Return the code for a read that began at `offset` (spec: wire §10.3)."""
    if status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
        return ResponseCode.PULL_OFFSET_MOVED if offset != 0 else ResponseCode.PULL_NOT_FOUND
    return _CODES[status]


_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
