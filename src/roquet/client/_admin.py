"""The few administrative calls that applications and tests need most."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from roquet._native import decode_records
from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable, UsageError
from roquet.client._requests import request
from roquet.client._routes import subscribe_queues
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import READ_WRITE, FilterType
from roquet.protocol import hosts, message_id, names, records
from roquet.protocol.bodies import groups, stats, topics
from roquet.protocol.bodies.routes import ClusterInfo
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers.admin import (
    CreateTopicRequest,
    DeleteSubscriptionGroupRequest,
    DeleteTopicRequest,
    GetConsumeStatsRequest,
    GetTopicStatsInfoRequest,
)
from roquet.protocol.headers.message import ViewMessageRequest
from roquet.protocol.headers.namesrv import DeleteTopicFromNamesrvRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from roquet.client._session import Session
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.model.route import TopicRoute
    from roquet.protocol.bodies.stats import ConsumeOffset, TopicOffset
    from roquet.protocol.command import Command

T = TypeVar("T")

_ROUTE_WAIT_S = 5.0
_ROUTE_STEP_S = 0.05


class Admin:
    """Changes and looks at topics and groups, on every master unless brokers are named."""

    def __init__(self, session: Session) -> None:
        """Use the session's connections."""
        self._session = session

    async def create_topic(
        self,
        name: str,
        queues: int = 8,
        *,
        perm: int = READ_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Create or change a topic and wait until the name server knows it.

        `queues` is per broker. Raises UsageError, Refused, Unreachable, OutcomeUnknown.
        """
        _check(names.check_topic(name))
        header = CreateTopicRequest(
            topic=name,
            default_topic=names.AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=int(perm),
            topic_filter_type=str(FilterType.SINGLE_TAG),
            topic_sys_flag=0,
            order=order,
            attributes=",".join(f"+{key}={value}" for key, value in (attributes or {}).items()),
        )
        chosen = await self._masters(brokers)
        for address in chosen.values():
            await self._session.ask(address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        await self._until_routed(name, set(chosen), queues)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic from every broker and name server. Raises as `create_topic` does."""
        _check(names.check_topic(name))
        header = DeleteTopicRequest(topic=name)
        for address in (await self._masters(None)).values():
            await self._session.ask(address, request(RequestCode.DELETE_TOPIC_IN_BROKER, header))
        gone = DeleteTopicFromNamesrvRequest(topic=name)
        failed = await self._session.name_servers.ask_every(
            request(RequestCode.DELETE_TOPIC_IN_NAMESRV, gone)
        )
        self._session.forget_topic(name)
        if failed:
            raise next(iter(failed.values()))

    async def topics(self) -> list[str]:
        """Return all topics that the name server knows."""
        command = request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        answer = await self._session.name_servers.ask(command)
        return _read(topics.decode_topic_list, answer)[0]

    async def route(self, topic: str) -> TopicRoute:
        """Return where a topic is. Raises Refused with code 17 when it is nowhere."""
        return await self._session.refresh_route(topic)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read."""
        return subscribe_queues(topic, await self.route(topic))

    async def cluster(self) -> ClusterInfo:
        """Return all brokers."""
        command = request(RequestCode.GET_BROKER_CLUSTER_INFO)
        return _read(ClusterInfo.decode, await self._session.name_servers.ask(command))

    async def topic_offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the bounds of every queue of a topic."""
        header = GetTopicStatsInfoRequest(topic=topic)
        found: dict[MessageQueue, TopicOffset] = {}
        for address in await self._brokers_of(topic):
            command = request(RequestCode.GET_TOPIC_STATS_INFO, header)
            answer = await self._session.ask(address, command)
            found |= _read(stats.TopicStats.decode, answer).offsets
        return dict(sorted(found.items()))

    async def group_offsets(
        self, group: str, topic: str | None = None
    ) -> dict[MessageQueue, ConsumeOffset]:
        """Return how far a group is in each queue, of one topic or of all that it consumes."""
        header = GetConsumeStatsRequest(consumer_group=group, topic=topic)
        found: dict[MessageQueue, ConsumeOffset] = {}
        for address in (await self._masters(None)).values():
            command = request(RequestCode.GET_CONSUME_STATS, header)
            try:
                answer = await self._session.ask(address, command)
            except Refused as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    continue
                raise
            found |= _read(stats.ConsumeStats.decode, answer).offsets
        return dict(sorted(found.items()))

    async def create_group(
        self, group: str | SubscriptionGroupConfig, *, brokers: Iterable[str] | None = None
    ) -> None:
        """Create or change a consumer group."""
        config = group if isinstance(group, SubscriptionGroupConfig) else None
        config = config or SubscriptionGroupConfig(name=str(group))
        _check(names.check_group(config.name))
        body = groups.encode_group(config)
        for address in (await self._masters(brokers)).values():
            command = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
            await self._session.ask(address, command)

    async def delete_group(self, group: str, *, offsets: bool = False) -> None:
        """Delete a consumer group, with `offsets` also what it had committed."""
        header = DeleteSubscriptionGroupRequest(group_name=group, clean_offset=offsets)
        for address in (await self._masters(None)).values():
            command = request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
            await self._session.ask(address, command)

    async def view_message(self, offset_id: str) -> StoredMessage:
        """Return a message by its offset id (`SendReceipt.offset_id`).

        Raises UsageError for what is no such id and for one of a broker that is not ours: an id
        holds an address, and nobody is to make us connect just anywhere.
        """
        try:
            host, offset = message_id.parse_offset_id(offset_id)
            address = hosts.host_text(host)
        except ValueError as error:
            raise UsageError(f"{offset_id[:80]!r}: {error}") from error
        known = await self.cluster()
        if not any(address in data.addresses.values() for data in known.brokers.values()):
            raise UsageError(f"{offset_id}: {address} is no broker of this cluster")
        command = request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset=offset))
        answer = await self._session.ask(address, command)
        try:
            return records.messages_of(decode_records(answer.body))[0]
        except (ValueError, IndexError) as error:
            raise Unreachable(f"message {offset_id} cannot be read: {error}") from error

    # --- inside ------------------------------------------------------------------------------

    async def _masters(self, brokers: Iterable[str] | None) -> dict[str, str]:
        """Return broker name -> address of all masters, or of the named ones."""
        info = await self.cluster()
        found = {
            name: data.master for name, data in info.brokers.items() if data.master is not None
        }
        if brokers is None:
            if not found:
                raise Unreachable("the name server knows no broker")
            return found
        wanted = list(brokers)
        missing = [name for name in wanted if name not in found]
        if missing:
            raise UsageError(f"no broker {', '.join(missing)}: there are {', '.join(found)}")
        return {name: found[name] for name in wanted}

    async def _brokers_of(self, topic: str) -> list[str]:
        route = await self.route(topic)
        return [data.master for data in route.brokers if data.master is not None]

    async def _until_routed(self, topic: str, brokers: set[str], queues: int) -> None:
        """Brokers tell the name server at once, but not before they answer us."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _ROUTE_WAIT_S
        while True:
            try:
                route = await self._session.refresh_route(topic)
                there = {it.broker_name for it in route.queues if it.write_queues == queues}
                if brokers <= there:
                    return
            except (Refused, Unreachable):
                pass
            if loop.time() > end:
                raise OutcomeUnknown(f"topic {topic} was created, but has no route yet")
            await self._session.clock.sleep(_ROUTE_STEP_S)


def _check(wrong: str | None) -> None:
    if wrong is not None:
        raise UsageError(wrong)


def _read(decode: Callable[[bytes], T], answer: Command) -> T:
    try:
        return decode(answer.body)
    except JsonError as error:
        failure: RoquetError = Unreachable(f"the answer cannot be read: {error}")
        raise failure from error
