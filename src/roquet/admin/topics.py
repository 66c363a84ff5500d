"""Topics: what there is, made, changed, deleted, and the bounds of their queues."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from roquet.admin.calls import Brokers, command, demand, read, read_header, tell_name_servers
from roquet.base.arguments import checked
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.model.queue import MessageQueue
from roquet.model.topic import READ_WRITE, TopicConfig, can_read
from roquet.protocol import fastjson, names
from roquet.protocol.bodies import groups, routes, stats, topics
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.headers.admin import (
    CreateTopicRequest,
    DeleteTopicRequest,
    GetTopicConfigRequest,
    GetTopicStatsInfoRequest,
    QueryConsumeQueueRequest,
    QueryTopicConsumeByWhoRequest,
)
from roquet.protocol.headers.broker import GetAllTopicConfigRequest, GetAllTopicConfigResponse
from roquet.protocol.headers.namesrv import DeleteTopicFromNamesrvRequest, GetRouteInfoRequest
from roquet.protocol.headers.offset import SearchOffsetRequest, SearchOffsetResponse
from roquet.protocol.registration import departed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.admin.calls import Calls
    from roquet.model.route import TopicRoute
    from roquet.protocol.bodies.stats import TopicOffset
    from roquet.protocol.command import Command

_PAGE = 2_000
_ROUTE_WAIT_MS = 5_000
_ROUTE_STEP_S = 0.05
_WITH_DEPARTED = {departed.ASK: "true"}


@dataclasses.dataclass(frozen=True, slots=True)
class Presence:
    """Where a topic is and was, as a name server says."""

    route: TopicRoute | None
    """None when it is nowhere now."""
    departed: frozenset[str] | None
    """Brokers that served it and have left; None when the name server does not keep who left."""
    remark: str = ""
    """The name server's words when it is nowhere."""


@checked
class Topics:
    """Topics of a cluster, on every master unless brokers are named."""

    def __init__(self, calls: Calls) -> None:
        """Ask by these."""
        self._calls = calls
        self._brokers = Brokers(calls)

    # --- what there is -----------------------------------------------------------------------

    async def names(self, *, system: bool = True, left: bool = False) -> list[str]:
        """Return the names of all topics, in order; without `system` only those that users made.

        Retry and dead-letter topics of groups count as the system's. `left`: also topics of brokers
        that have left, if the name server keeps who left. Raises Refused, Unreachable.
        """
        request = command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        if left:
            request = dataclasses.replace(request, ext=_WITH_DEPARTED)
        answer = await self._calls.ask_name_server(request)
        found = sorted(read(topics.decode_topic_list, answer)[0])
        if system:
            return found
        hidden = await self.system()
        return [it for it in found if it not in hidden and not _internal(it)]

    async def system(self) -> frozenset[str]:
        """Return names that are topics of the system: clusters, brokers and a broker's own."""
        found, address = await self._reserved()
        if address is not None:
            own = command(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            found += read(topics.decode_topic_list, await self._calls.ask(address, own))[0]
        return frozenset(found)

    async def reserved(self) -> frozenset[str]:
        """Return the names of clusters and brokers, which name servers keep as topics'."""
        return frozenset((await self._reserved())[0])

    async def _reserved(self) -> tuple[list[str], str | None]:
        request = command(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        return read(topics.decode_topic_list, await self._calls.ask_name_server(request))

    async def get(
        self, topic: str, *, brokers: Iterable[str] | None = None, cluster: str | None = None
    ) -> dict[str, TopicConfig]:
        """Return broker name -> configuration, of the masters that have the topic.

        Raises UsageError, Refused, Unreachable.
        """
        masters = await self._brokers.masters(brokers, cluster=cluster)
        request = command(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest(topic=topic))
        skip = (ResponseCode.TOPIC_NOT_EXIST,)
        answers = self._brokers.each(masters, request, skip=skip)
        return {name: read(topics.decode_topic, answer) async for name, answer in answers}

    async def table(self, broker: str) -> dict[str, TopicConfig]:
        """Return all topics of one broker (a name or an address), with those of the system.

        Raises UsageError, Refused, Unreachable.
        """
        address = await self._brokers.address(broker)
        found: dict[str, TopicConfig] = {}
        sequence, total = 0, 1
        while sequence < total:
            # Brokers of 5.x give the table page by page; older ones all of it, and no total.
            header = GetAllTopicConfigRequest(topic_seq=sequence, max_topic_num=_PAGE)
            request = command(RequestCode.GET_ALL_TOPIC_CONFIG, header)
            answer = await self._calls.ask(address, request)
            found |= read(topics.TopicTableBody.decode, answer).topics
            total = read_header(GetAllTopicConfigResponse, answer).total_topic_num or 0
            sequence += _PAGE
        return found

    async def units(
        self,
        queue: MessageQueue,
        index: int,
        count: int,
        *,
        group: str | None = None,
        broker: str | None = None,
    ) -> Mapping[str, Any] | None:
        """Return units of a consume queue as the broker tells them, by Java's names.

        `queueData` has at most `count` from `index` on; with `group`, `subscriptionData` and
        `filterData` say whether its filter takes them. None: the queue has no unit there. The
        queue's master is asked unless another `broker` is given. Raises UsageError, Refused,
        Unreachable.
        """
        header = QueryConsumeQueueRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            index=index,
            count=count,
            consumer_group=group,
        )
        address = await self._brokers.address(broker or queue.broker_name)
        request = command(RequestCode.QUERY_CONSUME_QUEUE, header)
        answer = await self._calls.ask(address, request)
        return read(fastjson.read_object, answer) if answer.body else None

    async def route(self, topic: str) -> TopicRoute:
        """Return where a topic is. Raises Refused with code 17 when it is nowhere, Unreachable."""
        try:
            return await self._calls.route(topic)
        except Refused as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            left = (await self.presence(topic)).departed or frozenset()
            raise unknown_topic(topic, left) from refusal

    async def presence(self, topic: str) -> Presence:
        """Return where a topic is, and which brokers left that served it.

        That it is nowhere is no error. Raises Refused, Unreachable.
        """
        header = GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)
        request = command(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        request = dataclasses.replace(request, ext={**(request.ext or {}), **_WITH_DEPARTED})
        try:
            answer = await self._calls.ask_name_server(request)
        except Refused as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return Presence(None, _left(refusal.fields), refusal.remark)
        return Presence(read(routes.decode_route, answer), _left(answer.ext))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read, in order. Raises as `route` does."""
        route = await self.route(topic)
        return tuple(
            sorted(
                MessageQueue(topic, data.broker_name, number)
                for data in route.queues
                if can_read(data.perm)
                for number in range(data.read_queues)
            )
        )

    async def offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the bounds of every queue of a topic, in order. Raises as `route` does."""
        return (await self.stats(topic))[0]

    async def stats(self, topic: str) -> tuple[dict[MessageQueue, TopicOffset], float]:
        """Return the bounds of every queue, and messages stored a second. Raises as `route`."""
        await self.route(topic)
        found: dict[MessageQueue, TopicOffset] = {}
        put_tps = 0.0
        masters = await self._brokers.of_topic(topic)
        async for _, answer in self._brokers.each(masters, _stats_request(topic)):
            seen = read(stats.TopicStats.decode, answer)
            found |= seen.offsets
            put_tps += seen.put_tps
        return dict(sorted(found.items())), put_tps

    async def offsets_on(self, topic: str, broker: str) -> Mapping[MessageQueue, TopicOffset]:
        """Return the bounds of a topic's queues on one broker, by its name or an address.

        Raises UsageError, Refused, Unreachable, OutcomeUnknown.
        """
        address = await self._brokers.address(broker)
        answer = await self._calls.ask(address, _stats_request(topic))
        return read(stats.TopicStats.decode, answer).offsets

    async def offsets_at(self, topic: str, time_ms: int) -> dict[MessageQueue, int]:
        """Return each queue's offset of the first message stored at `time_ms` or later.

        `time_ms` is Unix milliseconds. Raises as `route` does.
        """
        found: dict[MessageQueue, int] = {}
        masters = await self._brokers.of_topic(topic)
        for queue in await self.queues(topic):
            if queue.broker_name in masters:
                address = masters[queue.broker_name]
                found[queue] = await self.offset_at(queue, time_ms, broker=address)
        return found

    async def offset_at(
        self, queue: MessageQueue, time_ms: int, *, broker: str | None = None
    ) -> int:
        """Return a queue's offset of the first message stored at `time_ms` or later.

        Its master is asked unless another `broker` is given, by an address. Raises UsageError,
        Refused, Unreachable, OutcomeUnknown.
        """
        header = SearchOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, timestamp=time_ms)
        request = command(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        address = await self._brokers.address(broker or queue.broker_name)
        return read_header(SearchOffsetResponse, await self._calls.ask(address, request)).offset

    async def groups(self, topic: str) -> list[str]:
        """Return the names of all groups that consume a topic. Raises as `route` does."""
        header = QueryTopicConsumeByWhoRequest(topic=topic)
        request = command(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        found = set[str]()
        async for _, answer in self._brokers.each(await self._brokers.of_topic(topic), request):
            found.update(read(groups.decode_group_list, answer))
        return sorted(found)

    # --- changes -----------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        queues: int = 8,
        *,
        perm: int = READ_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        brokers: Iterable[str] | None = None,
        cluster: str | None = None,
    ) -> dict[str, TopicConfig]:
        """Create a topic and wait until the name server knows it; return broker -> configuration.

        `queues` is per broker. Raises Refused with code 18 when a broker has the topic already
        (then nothing is changed), UsageError, Unreachable, and OutcomeUnknown when the topic is
        made but has no route yet.
        """
        demand(names.check_topic(name))
        chosen = await self._brokers.masters(brokers, cluster=cluster)
        there = await self.get(name, brokers=chosen)
        if there:
            text = ", ".join(f"{it.write_queues} queues on {at}" for at, it in there.items())
            raise Refused(
                ResponseCode.TOPIC_EXIST_ALREADY,
                f"there is a topic {name} ({text}); to change it: roquet topic alter {name}",
            )
        config = TopicConfig(
            name=name,
            read_queues=queues,
            write_queues=queues,
            perm=int(perm),
            order=order,
            attributes=dict(attributes or {}),
        )
        await self.put(config, brokers=chosen)
        return dict.fromkeys(chosen, config)

    async def put(
        self,
        config: TopicConfig,
        *,
        brokers: Iterable[str] | None = None,
        cluster: str | None = None,
        removed: Iterable[str] = (),
    ) -> None:
        """Create a topic or change it to this, and wait until the name server knows.

        `removed` are the names of attributes to take away. Raises as `create` does, but for 18.
        """
        demand(names.check_topic(config.name))
        chosen = await self._brokers.masters(brokers, cluster=cluster)
        request = command(RequestCode.UPDATE_AND_CREATE_TOPIC, _header(config, removed))
        async for _ in self._brokers.each(chosen, request, change=True):
            pass
        await self._until_routed(config, set(chosen))

    async def put_all(
        self, configs: Iterable[TopicConfig], *, brokers: Iterable[str] | None = None
    ) -> None:
        """Create topics or change them to these, all with one request; wait for no name server.

        Raises as `put` does.
        """
        listed = list(configs)
        for config in listed:
            demand(names.check_topic(config.name))
        body = topics.encode_topic_configs(listed)
        request = command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)
        masters = await self._brokers.masters(brokers)
        async for _ in self._brokers.each(masters, request, change=True):
            pass

    async def alter(
        self,
        name: str,
        *,
        queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str] | None = None,
        brokers: Iterable[str] | None = None,
        cluster: str | None = None,
    ) -> dict[str, TopicConfig]:
        """Change what is given wherever the topic is; return broker -> the configuration before.

        Attributes that are not given stay.

        Raises Refused with code 17 when it is nowhere, else as `put` does.
        """
        before = await self.get(name, brokers=brokers, cluster=cluster)
        if not before:
            raise unknown_topic(name)
        for broker, config in before.items():
            changed = dataclasses.replace(
                config,
                read_queues=config.read_queues if queues is None else queues,
                write_queues=config.write_queues if queues is None else queues,
                perm=config.perm if perm is None else int(perm),
                order=config.order if order is None else order,
                attributes={**config.attributes, **(attributes or {})},
            )
            await self.put(changed, brokers=[broker])
        return before

    async def delete(self, name: str, *, cluster: str | None = None) -> None:
        """Delete a topic from every broker and name server, or only those of a cluster.

        Raises UsageError, Refused, Unreachable; a name server that is away raises its error when
        all others have deleted.
        """
        demand(names.check_topic(name))
        masters = await self._brokers.masters(cluster=cluster)
        request = command(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=name))
        async for _ in self._brokers.each(masters, request, change=True):
            pass
        gone = DeleteTopicFromNamesrvRequest(topic=name, cluster_name=cluster)
        try:
            await tell_name_servers(self._calls, command(RequestCode.DELETE_TOPIC_IN_NAMESRV, gone))
        finally:
            self._calls.forget_topic(name)

    async def delete_on(self, name: str, broker: str) -> None:
        """Delete a topic from one broker, by its name, and leave it on the others.

        Name servers keep what a broker registered last, so it registers first that nobody reads or
        writes the topic there, which clients obey. Where no other broker has the topic, this is
        `delete`. Raises NotFound for a broker that is none, Refused with code 17 where it has no
        such topic, and as `put` does.
        """
        demand(names.check_topic(name))
        masters = await self._brokers.masters([broker])
        there = await self.get(name)
        if broker not in there:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"there is no topic {name} on {broker}")
        if len(there) == 1:
            await self.delete(name)
            return
        await self.put(dataclasses.replace(there[broker], perm=0), brokers=[broker])
        request = command(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=name))
        async for _ in self._brokers.each(masters, request, change=True):
            pass
        self._calls.forget_topic(name)

    async def _until_routed(self, config: TopicConfig, brokers: set[str]) -> None:
        """Brokers tell the name server at once, but not before they answer us."""
        clock = self._calls.clock
        end_ms = clock.steady_ms() + _ROUTE_WAIT_MS
        wanted = (config.read_queues, config.write_queues, config.perm)
        while True:
            try:
                route = await self._calls.route(config.name)
            except (Refused, Unreachable):
                there = set[str]()
            else:
                there = {
                    it.broker_name
                    for it in route.queues
                    if (it.read_queues, it.write_queues, it.perm) == wanted
                }
            if brokers <= there:
                return
            if clock.steady_ms() > end_ms:
                raise OutcomeUnknown(f"topic {config.name} was created, but has no route yet")
            await clock.sleep(_ROUTE_STEP_S)


def unknown_topic(topic: str, left: Iterable[str] = ()) -> Refused:
    """Return the error for a topic that is nowhere, with what helps.

    `left` are the brokers that served it and are away: its messages are theirs.
    """
    away = ", ".join(sorted(left))
    if away:
        text = f"topic {topic} is out of reach: {away} left the cluster and has its messages"
        return Refused(
            ResponseCode.TOPIC_NOT_EXIST, f"{text}; start it, see: roquet cluster health"
        )
    wrong = names.check_topic(topic)
    hint = f"try: roquet topic create {topic}" if wrong is None else wrong
    return Refused(ResponseCode.TOPIC_NOT_EXIST, f"there is no topic {topic}; {hint}")


def _stats_request(topic: str) -> Command:
    return command(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequest(topic=topic))


def _left(fields: Mapping[str, str] | None) -> frozenset[str] | None:
    found = departed.read(fields)
    return None if found is None else frozenset(found)


def _internal(topic: str) -> bool:
    return names.is_hidden(topic) or names.is_retry(topic) or names.is_dlq(topic)


def _header(config: TopicConfig, removed: Iterable[str]) -> CreateTopicRequest:
    changes = [f"+{key}={value}" for key, value in config.attributes.items()]
    changes += [f"-{key}" for key in removed]
    return CreateTopicRequest(
        topic=config.name,
        default_topic=names.AUTO_CREATE_TOPIC,
        read_queue_nums=config.read_queues,
        write_queue_nums=config.write_queues,
        perm=int(config.perm),
        topic_filter_type=str(config.filter_type),
        topic_sys_flag=config.sys_flag,
        order=config.order,
        attributes=",".join(changes),
    )
