"""Consumer groups: configuration, progress, members, and where they go on."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.admin.calls import Brokers, command, demand, read, read_header
from roquet.admin.topics import Topics
from roquet.base.arguments import checked
from roquet.base.errors import Refused, UsageError
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.queue import MessageQueue
from roquet.protocol import fastjson, names
from roquet.protocol.bodies import assignments, clients, groups, offsets, stats, topics
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.headers.admin import (
    CloneGroupOffsetRequest,
    DeleteSubscriptionGroupRequest,
    GetConsumerConnectionListRequest,
    GetConsumerRunningInfoRequest,
    GetConsumeStatsRequest,
    QueryTopicsByConsumerRequest,
    UpdateGroupForbiddenRequest,
)
from roquet.protocol.headers.broker import (
    GetAllSubscriptionGroupRequest,
    GetAllSubscriptionGroupResponse,
)
from roquet.protocol.headers.client import ResetOffsetRequest
from roquet.protocol.headers.offset import UpdateConsumerOffsetRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.admin.calls import Calls
    from roquet.model.request_mode import GroupRequestMode
    from roquet.protocol.bodies.clients import Connection, ConsumerConnection
    from roquet.protocol.bodies.stats import ConsumeOffset, RunningInfo
    from roquet.protocol.command import Command

    Place = str | int | Mapping[MessageQueue, int]
else:
    # What `checked` reads.
    Place = "str | int | Mapping[MessageQueue, int]"

_PAGE = 2_000
_NO_RETRIES = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION)
_NOT_ONLINE = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


@dataclasses.dataclass(frozen=True, slots=True)
class SeekStep:
    """What a seek does to one queue."""

    queue: MessageQueue
    now: int | None
    """The group's offset, None where it has none."""
    then: int
    """The offset it goes on from."""

    @property
    def repeated(self) -> int:
        """Messages that the group gets again; negative: messages that it skips."""
        return 0 if self.now is None else self.now - self.then


@checked
class Groups:
    """Consumer groups of a cluster, on every master unless brokers are named."""

    def __init__(self, calls: Calls) -> None:
        """Ask by these."""
        self._calls = calls
        self._brokers = Brokers(calls)
        self._topics = Topics(calls)

    # --- configuration -----------------------------------------------------------------------

    async def names(self, *, system: bool = True) -> list[str]:
        """Return the names of all groups, in order; without `system` only those of users."""
        found = set[str]()
        for table in (await self._tables()).values():
            found.update(table)
        return sorted(it for it in found if system or not _internal(it))

    async def get(
        self, group: str, *, brokers: Iterable[str] | None = None
    ) -> dict[str, SubscriptionGroupConfig]:
        """Return broker name -> configuration, of the masters that have the group.

        It is looked for in the whole table: the request for one group creates it where brokers
        create groups by themselves. Raises UsageError, Refused, Unreachable.
        """
        tables = await self._tables(brokers)
        return {name: table[group] for name, table in tables.items() if group in table}

    async def table(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        """Return all groups of one broker, named by its name, with those of the system.

        Raises as `get` does.
        """
        return (await self._tables([broker]))[broker]

    async def put(
        self,
        group: str | SubscriptionGroupConfig,
        *,
        brokers: Iterable[str] | None = None,
        removed: Iterable[str] = (),
    ) -> None:
        """Create a group or change it to this. Raises UsageError, Refused, Unreachable.

        Attributes are added to those that it has; `removed` are the names of those to take away.
        """
        config = group if isinstance(group, SubscriptionGroupConfig) else None
        config = config or SubscriptionGroupConfig(name=str(group))
        demand(names.check_group(config.name))
        changes = {f"+{key}": value for key, value in config.attributes.items()}
        changes |= dict.fromkeys((f"-{key}" for key in removed), "")
        body = groups.encode_group(dataclasses.replace(config, attributes=changes))
        request = command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        masters = await self._brokers.masters(brokers)
        async for _ in self._brokers.each(masters, request, change=True):
            pass

    async def put_all(
        self, configs: Iterable[SubscriptionGroupConfig], *, brokers: Iterable[str] | None = None
    ) -> None:
        """Create groups or change them to these, all with one request. Raises as `put` does."""
        listed = list(configs)
        for config in listed:
            demand(names.check_group(config.name))
        body = groups.encode_groups(listed)
        request = command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body)
        masters = await self._brokers.masters(brokers)
        async for _ in self._brokers.each(masters, request, change=True):
            pass

    async def delete(
        self, group: str, *, offsets: bool = False, brokers: Iterable[str] | None = None
    ) -> None:
        """Delete a group, with `offsets` also what it had committed. Raises as `put` does."""
        header = DeleteSubscriptionGroupRequest(group_name=group, clean_offset=offsets)
        request = command(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        masters = await self._brokers.masters(brokers)
        async for _ in self._brokers.each(masters, request, change=True):
            pass

    async def set_mode(
        self, mode: GroupRequestMode, *, brokers: Iterable[str] | None = None
    ) -> None:
        """Say whether a group's members pull or pop a topic. Raises as `put` does."""
        body = fastjson.java(assignments.request_mode_json(mode))
        request = command(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body)
        masters = await self._brokers.masters(brokers)
        async for _ in self._brokers.each(masters, request, change=True):
            pass

    async def set_readable(self, group: str, topic: str, *, readable: bool) -> None:
        """Allow or forbid a group to read a topic. Raises as `put` does."""
        header = UpdateGroupForbiddenRequest(group=group, topic=topic, readable=readable)
        request = command(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
        async for _ in self._brokers.each(await self._brokers.masters(), request, change=True):
            pass

    # --- who and how far ---------------------------------------------------------------------

    async def offsets(
        self, group: str, topic: str | None = None
    ) -> dict[MessageQueue, ConsumeOffset]:
        """Return how far a group is in each queue, of one topic or of all that it consumes.

        Queues of these topics in which it has no offset yet are there too. Raises Refused,
        Unreachable, OutcomeUnknown.
        """
        return (await self.progress(group, topic))[0]

    async def progress(
        self,
        group: str,
        topic: str | None = None,
        *,
        brokers: Iterable[str] | None = None,
        retries: bool = True,
    ) -> tuple[dict[MessageQueue, ConsumeOffset], float]:
        """Return `offsets`, and messages consumed a second, of all masters or of the named ones.

        Without a topic the group's retry topic is among them, unless `retries` is False and it has
        no offset there. Raises as `offsets` does, and NotFound for a name that is none.
        """
        found: dict[MessageQueue, ConsumeOffset] = {}
        consume_tps = 0.0
        masters = await self._brokers.masters(brokers)
        asked = [topic] if topic is not None else await self.topics(group)
        own = names.retry_topic(group)
        if topic is None and retries and own not in asked:
            asked.append(own)
        for name in asked:
            skip = _NO_RETRIES if name == own else (ResponseCode.TOPIC_NOT_EXIST,)
            header = GetConsumeStatsRequest(consumer_group=group, topic=name)
            request = command(RequestCode.GET_CONSUME_STATS, header)
            async for _, answer in self._brokers.each(masters, request, skip=skip):
                seen = read(stats.ConsumeStats.decode, answer)
                found |= seen.offsets
                consume_tps += seen.consume_tps
        return dict(sorted(found.items())), consume_tps

    async def lag(self, group: str, topic: str | None = None) -> int:
        """Return how many messages a group has not consumed yet."""
        rows = await self.offsets(group, topic)
        return sum(max(0, it.broker_offset - it.consumer_offset) for it in rows.values())

    async def topics(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets, in order."""
        header = QueryTopicsByConsumerRequest(group=group)
        request = command(RequestCode.QUERY_TOPICS_BY_CONSUMER, header)
        found = set[str]()
        async for _, answer in self._brokers.each(await self._brokers.masters(), request):
            found.update(read(topics.decode_topic_list, answer)[0])
        return sorted(found)

    async def connection(
        self, group: str, *, broker: str | None = None
    ) -> ConsumerConnection | None:
        """Return how a group is connected, its members once each; None when nobody is online.

        With `broker`, a name or an address, as this one alone knows.
        """
        header = GetConsumerConnectionListRequest(consumer_group=group)
        request = command(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        first: ConsumerConnection | None = None
        members: dict[str, Connection] = {}
        asked = (
            await self._brokers.masters()
            if broker is None
            else {broker: await self._brokers.address(broker)}
        )
        async for _, answer in self._brokers.each(asked, request, skip=_NOT_ONLINE):
            found = read(clients.ConsumerConnection.decode, answer)
            first = first or found
            members |= {it.client_id: it for it in found.connections}
        if first is None:
            return None
        return dataclasses.replace(
            first, connections=tuple(members[name] for name in sorted(members))
        )

    async def committed(self, broker: str) -> Mapping[str, Mapping[int, int]]:
        """Return what all groups have committed on a broker: `topic@group` -> queue id -> offset.

        The broker is given by its name or an address. Raises UsageError, Refused, Unreachable,
        OutcomeUnknown.
        """
        address = await self._brokers.address(broker)
        answer = await self._calls.ask(address, command(RequestCode.GET_ALL_CONSUMER_OFFSET))
        return read(offsets.ConsumerOffsetBody.decode, answer).offsets

    async def members(self, group: str, broker: str) -> tuple[Connection, ...]:
        """Return the members of a group that a broker knows. Raises as `committed` does."""
        header = GetConsumerConnectionListRequest(consumer_group=group)
        request = command(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        answer = await self._calls.ask(await self._brokers.address(broker), request)
        return read(clients.ConsumerConnection.decode, answer).connections

    async def running_info(
        self, group: str, client_id: str, *, stacks: bool = False, broker: str | None = None
    ) -> RunningInfo:
        """Return what a member says of itself; `stacks`: of its threads, too.

        With `broker`, a name or an address, by this one alone. Raises Refused when no broker has
        the member.
        """
        header = GetConsumerRunningInfoRequest(
            consumer_group=group, client_id=client_id, jstack_enable=stacks
        )
        request = command(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        refusal: Refused | None = None
        asked = (
            (await self._brokers.masters()).values()
            if broker is None
            else (await self._brokers.address(broker),)
        )
        for address in asked:
            try:
                return read(stats.RunningInfo.decode, await self._calls.ask(address, request))
            except Refused as error:
                refusal = error
        raise refusal or UsageError(f"{client_id} is no member of {group}")

    # --- where it goes on --------------------------------------------------------------------

    async def preview_seek(
        self,
        group: str,
        topic: str,
        to: Place | None = None,
        *,
        by: int | None = None,
        queue: tuple[str, int] | None = None,
    ) -> list[SeekStep]:
        """Return what `seek` would do, queue by queue, and do nothing.

        `to` is `earliest`, `latest`, a time in Unix milliseconds, or offsets by queue; `by` is a
        number of messages on (or back) instead. `queue`, broker name and number, leaves all others
        as they are; `to` may be its offset then. Raises UsageError for an offset or a queue that is
        not there, Refused with code 17, Unreachable.
        """
        if (to is None) == (by is None):
            raise UsageError("give either a place or a number of messages")
        bounds = await self._topics.offsets(topic)
        if queue is not None:
            chosen = MessageQueue(topic, *queue)
            if chosen not in bounds:
                raise UsageError(f"{topic} has no queue {queue[1]} on {queue[0]}")
            bounds = {chosen: bounds[chosen]}
        known = topic in await self.topics(group)
        now = await self.offsets(group, topic) if known else {}
        if by is not None:
            then = {
                it: min(max(now[it].consumer_offset + by, at.min_offset), at.max_offset)
                for it, at in bounds.items()
                if it in now
            }
        elif isinstance(to, int) and queue is not None:
            then = dict.fromkeys(bounds, to)
        else:
            then = await self._targets(topic, {} if to is None else to, bounds)
        for moved, offset in then.items():
            _demand_within(moved, offset, bounds.get(moved))
        return [
            SeekStep(moved, now[moved].consumer_offset if moved in now else None, offset)
            for moved, offset in sorted(then.items())
        ]

    async def seek(self, group: str, topic: str, to: Place) -> list[SeekStep]:
        """Let a group go on elsewhere in a topic, online or not; return what was done.

        A broker that knows no member of the group gets the offsets as commits. Raises as
        `preview_seek` does.
        """
        steps = await self.preview_seek(group, topic, to)
        await self.take_steps(group, topic, steps)
        return steps

    async def take_steps(self, group: str, topic: str, steps: Iterable[SeekStep]) -> None:
        """Do what `preview_seek` has shown. Raises Refused, Unreachable, OutcomeUnknown."""
        masters = await self._brokers.of_topic(topic)
        for step in steps:
            address = masters[step.queue.broker_name]
            reset = ResetOffsetRequest(
                group=group,
                topic=topic,
                queue_id=step.queue.queue_id,
                offset=step.then,
                timestamp=-1,
                is_force=True,
            )
            request = command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
            try:
                await self._calls.ask(address, request)
            except Refused as refusal:
                if refusal.code not in _NOT_ONLINE:
                    raise
                await self._commit(address, group, step)

    async def clone_offsets(
        self, source: str, target: str, topic: str | None = None, *, offline: bool = True
    ) -> None:
        """Give one group the offsets of another, of one topic or of all.

        With `offline` also of topics that the source is not subscribed to now.
        """
        header = CloneGroupOffsetRequest(
            src_group=source, dest_group=target, topic=topic, offline=offline
        )
        request = command(RequestCode.CLONE_GROUP_OFFSET, header)
        async for _ in self._brokers.each(await self._brokers.masters(), request, change=True):
            pass

    # --- inside ------------------------------------------------------------------------------

    async def _targets(
        self, topic: str, to: Place, bounds: Mapping[MessageQueue, stats.TopicOffset]
    ) -> dict[MessageQueue, int]:
        """Return the offset of each queue at a place. Raises UsageError for what is none."""
        if isinstance(to, str):
            if to not in ("earliest", "latest"):
                raise UsageError(f"{to!r} is neither earliest nor latest")
            low = to == "earliest"
            return {it: (at.min_offset if low else at.max_offset) for it, at in bounds.items()}
        if isinstance(to, int):
            return await self._topics.offsets_at(topic, to)
        try:
            return dict(to)
        except (TypeError, ValueError) as error:
            text = f"{to!r} is no place: earliest, latest, milliseconds or offsets by queue"
            raise UsageError(text) from error

    async def _commit(self, address: str, group: str, step: SeekStep) -> None:
        header = UpdateConsumerOffsetRequest(
            consumer_group=group,
            topic=step.queue.topic,
            queue_id=step.queue.queue_id,
            commit_offset=step.then,
        )
        await self._calls.ask(address, command(RequestCode.UPDATE_CONSUMER_OFFSET, header))

    async def _tables(
        self, brokers: Iterable[str] | None = None
    ) -> dict[str, dict[str, SubscriptionGroupConfig]]:
        """Return broker name -> group table; brokers of 5.x give it page by page."""
        found: dict[str, dict[str, SubscriptionGroupConfig]] = {}
        left, sequence = await self._brokers.masters(brokers), 0
        while left:
            header = GetAllSubscriptionGroupRequest(group_seq=sequence, max_group_num=_PAGE)
            request = command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
            sequence += _PAGE
            more: dict[str, str] = {}
            async for name, answer in self._brokers.each(left, request):
                table = found.setdefault(name, {})
                table |= read(groups.GroupTableBody.decode, answer).groups
                if sequence < _total(answer):
                    more[name] = left[name]
            left = more
        return found


def _internal(group: str) -> bool:
    return (
        group in names.PREDEFINED_GROUPS
        or group == names.COMMAND_LINE_GROUP
        or names.is_system_group(group)
    )


def _total(answer: Command) -> int:
    """Return how many groups there are; brokers without pages do not say, and gave all."""
    if not answer.ext or "totalGroupNum" not in answer.ext:
        return 0
    return read_header(GetAllSubscriptionGroupResponse, answer).total_group_num


def _demand_within(queue: MessageQueue, offset: int, bounds: stats.TopicOffset | None) -> None:
    if bounds is None:
        raise UsageError(f"{queue.topic} has no queue {queue.queue_id} on {queue.broker_name}")
    low, high = bounds.min_offset, bounds.max_offset
    if not low <= offset <= high:
        raise UsageError(
            f"queue {queue.queue_id} on {queue.broker_name} has the offsets {low} to {high},"
            f" not {offset}"
        )
