"""HEART_BEAT 34, UNREGISTER_CLIENT 35, CHECK_CLIENT_CONFIG 46, and noticing clients that have gone.

The words, codes and flags of the answers are those of a 5.5.0 broker (spec: broker (b) Client
manage, wire §12).
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from typing import TYPE_CHECKING, TypeVar

from roquet.acl.needs import check_needs, heartbeat_needs
from roquet.acl.rights import EVERYBODY
from roquet.base.errors import DiskFull, Refused, TableFull
from roquet.broker.registry import Client, Consuming
from roquet.model.subscription import ConsumeType, ExpressionType
from roquet.model.topic import READ_WRITE, TOPIC_SYS_FLAG_UNIT_SUB
from roquet.protocol import names, tags
from roquet.protocol.bodies.clients import CheckClient, HeartbeatData
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers.client import UnregisterClientRequest
from roquet.remoting.router import Peer, Request, Route
from roquet.service.lifecycle import Timer
from roquet.service.slices import in_slices, read_body, read_parts
from roquet.store.filters import compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.acl.rights import Rights
    from roquet.base.clock import Clock
    from roquet.broker.notices import GroupNotices
    from roquet.broker.registry import Registry
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.protocol.bodies.clients import ConsumerData
    from roquet.store.groups import GroupTable
    from roquet.store.topics import TopicTable

T = TypeVar("T")

log = logging.getLogger(__name__)

BODY_SIZE_MAX = 1 << 20
GROUPS_MAX = 2_000
"""Groups that one heartbeat, and one connection in all, may name."""
SUBSCRIPTIONS_MAX = 5_000
"""Topics that one group may subscribe to."""
MEMBERSHIPS_MAX = 1_000_000
"""Groups that connections are in, counted for each connection."""
SUBSCRIBED_MAX = 1_000_000
"""Topics that groups subscribe to, counted for each group; 256 characters count as a topic."""
GROUPS_AT_ONCE = 20
"""Groups of a heartbeat that are handled before others have their turn."""
CLIENT_ID_LENGTH_MAX = 1_024
PRODUCER_GROUP_LENGTH_MAX = 255


@dataclasses.dataclass(frozen=True, slots=True)
class ClientRules:
    """What the broker's settings say about clients."""

    reject_pull_consumers: bool = False
    """Whether groups that fetch by themselves are passed over (rejectPullConsumerEnable)."""
    sql_filters: bool = False
    """Whether SQL92 subscriptions are taken (enablePropertyFilter)."""


class Clients:
    """Lets clients in, keeps them while they are heard of, and sees them off."""

    def __init__(
        self,
        registry: Registry,
        notices: GroupNotices,
        groups: GroupTable,
        topics: TopicTable,
        clock: Clock,
        *,
        rules: ClientRules,
        rights: Rights = EVERYBODY,
    ) -> None:
        self._rights = rights
        self._registry = registry
        self._notices = notices
        self._groups = groups
        self._topics = topics
        self._clock = clock
        self._rules = rules

    def follow(self, rules: ClientRules) -> None:
        """Let clients in by other settings from now on."""
        self._rules = rules

    def routes(self) -> list[Route]:
        """Return the codes served here."""
        return [
            Route((RequestCode.HEART_BEAT,), self.heartbeat, "heartbeat"),
            Route((RequestCode.UNREGISTER_CLIENT,), self.unregister, "client_manage"),
            Route((RequestCode.CHECK_CLIENT_CONFIG,), self.check_config, "client_manage"),
        ]

    @property
    def timers(self) -> tuple[Timer, ...]:
        """Housekeeping, and the notices that were gathered."""
        return (
            Timer("client housekeeping", self.expire, 10.0, 10.0),
            Timer("gathered group notices", self._notices.flush, 15.0, 30.0),
        )

    async def start(self) -> None:
        """Nothing to acquire: clients come by themselves."""

    async def stop(self) -> None:
        """Nothing to release: who is here is learnt anew from heartbeats."""

    # --- heartbeat -------------------------------------------------------------------------------

    async def heartbeat(self, request: Request) -> Command:
        """Answer 34: register the groups of a client."""
        data = await _heartbeat(request.command.body)
        caller = self._rights.caller(request.command, request.peer.address)
        async for needs in in_slices(heartbeat_needs(data), GROUPS_AT_ONCE):
            self._rights.require(caller, needs)
        self._check_limits(request.peer, data)
        consumers, full = await self._known_consumers(data)
        # Creating a topic waited for the disk; nobody is let in who has hung up meanwhile.
        changed = await self._register(request, data, consumers)
        if full is not None:
            # Those that were let in stay; who it is that was not is in the text.
            raise Refused(ResponseCode.SYSTEM_ERROR, str(full)) from full
        # A V1 heartbeat always carries all, so nothing is lost by telling it to: Java does.
        resend = data.fingerprint == 0 or changed
        return reply_to(
            request.command,
            ext={
                "IS_SUPPORT_HEART_BEAT_V2": "true",
                "IS_SUB_CHANGE": "true" if resend else "false",
            },
        )

    def _check_limits(self, peer: Peer, data: HeartbeatData) -> None:
        if len(data.client_id or "") > CLIENT_ID_LENGTH_MAX:
            raise _invalid(f"clientID is longer than {CLIENT_ID_LENGTH_MAX} characters")
        if len(data.consumers) + len(data.producers) > GROUPS_MAX:
            raise _invalid(f"a heartbeat may name {GROUPS_MAX} groups")
        if self._registry.groups_of(peer.key) > GROUPS_MAX:
            raise _invalid(f"a connection may be in {GROUPS_MAX} groups")
        self._check_room(peer, data)
        for group in data.producers:
            if not group or len(group) > PRODUCER_GROUP_LENGTH_MAX:
                raise _invalid("a producer group has 1 to 255 characters")
        for consumer in data.consumers:
            if len(consumer.subscriptions) > SUBSCRIPTIONS_MAX:
                raise _invalid(f"a group may subscribe to {SUBSCRIPTIONS_MAX} topics")
            for wanted in consumer.subscriptions:
                if len(wanted.expression) > tags.EXPRESSION_LENGTH_MAX:
                    raise _invalid(f"the expression for topic {wanted.topic[:127]} is too long")

    def _check_room(self, peer: Peer, data: HeartbeatData) -> None:
        """Raise Refused when all connections together are in too many groups."""
        if self._registry.memberships + GROUPS_MAX <= MEMBERSHIPS_MAX:
            return
        named = [consumer.group for consumer in data.consumers]
        joins = self._registry.joins(peer.key, named, data.producers)
        if joins and self._registry.memberships + joins > MEMBERSHIPS_MAX:
            what = f"connections are in {MEMBERSHIPS_MAX} groups: there is no room for more"
            raise Refused(ResponseCode.SYSTEM_BUSY, what)

    def _check_subscriptions(self, consumer: ConsumerData) -> None:
        """Raise Refused when all groups together would subscribe to too much."""
        growth = self._registry.growth(consumer.group, consumer.subscriptions)
        if growth > 0 and self._registry.subscribed + growth > SUBSCRIBED_MAX:
            what = f"groups subscribe to {SUBSCRIBED_MAX} topics: there is no room for more"
            raise Refused(ResponseCode.SYSTEM_BUSY, what)

    async def _known_consumers(
        self, data: HeartbeatData
    ) -> tuple[list[ConsumerData], TableFull | None]:
        """Return the consumers that are let in, with their group and retry topic in place.

        A group that does not exist and may not be created is passed over in silence; when there
        is no room for a group or topic, that is returned as well.
        """
        let_in: list[ConsumerData] = []
        full: TableFull | None = None
        before = self._groups.version, self._topics.version
        async for consumer in in_slices(data.consumers, GROUPS_AT_ONCE):
            if self._rules.reject_pull_consumers and consumer.consume_type == ConsumeType.ACTIVELY:
                continue
            try:
                config = self._groups.find(consumer.group)
                if config is not None:
                    self._ensure_retry_topic(consumer, config)
                    let_in.append(consumer)
            except TableFull as error:
                full = full or error
        if before != (self._groups.version, self._topics.version):
            await self._persist()
        return let_in, full

    async def _persist(self) -> None:
        """Write down what a heartbeat created, if that is possible.

        With a full disk consumers go on reading: what is forgotten by a restart, the next
        heartbeat creates again.
        """
        try:
            await self._groups.persist()
            await self._topics.persist()
        except (DiskFull, OSError) as error:
            log.warning("groups and retry topics of a heartbeat are not written down: %s", error)

    def _ensure_retry_topic(self, consumer: ConsumerData, config: SubscriptionGroupConfig) -> None:
        if config.retry_queues <= 0:
            return
        found = (self._topics.get(wanted.topic) for wanted in consumer.subscriptions)
        self._topics.ensure(
            names.retry_topic(consumer.group),
            config.retry_queues,
            READ_WRITE,
            TOPIC_SYS_FLAG_UNIT_SUB if consumer.unit_mode else 0,
            order=any(topic is not None and topic.order for topic in found),
        )

    async def _register(
        self, request: Request, data: HeartbeatData, consumers: list[ConsumerData]
    ) -> bool:
        """Put a client into its groups and tell the others; tell whether it must send all again.

        One that has hung up, also between two slices, is let in no more.
        """
        command, now_ms = request.command, self._clock.steady_ms()
        client = Client(
            request.peer,
            data.client_id,
            command.language,
            command.version,
            self._rights.caller(command, request.peer.address).access_key,
            self._clock.now_ms(),
        )
        is_v2 = data.fingerprint != 0
        without_sub = is_v2 and data.without_sub
        resend = False
        async for consumer in in_slices(consumers, GROUPS_AT_ONCE):
            if not request.peer.is_open:
                return False
            if is_v2 and self._registry.must_resend(
                consumer.group, data.fingerprint, without_sub=without_sub
            ):
                resend = True
            if not without_sub:
                self._check_subscriptions(consumer)
            changed = self._registry.register_consumer(
                consumer.group,
                client,
                Consuming(
                    consume_type=consumer.consume_type,
                    model=consumer.message_model,
                    from_where=consumer.consume_from_where,
                ),
                None if without_sub else consumer.subscriptions,
                now_ms,
                fingerprint=data.fingerprint if is_v2 else None,
            )
            if changed:
                self._notices.changed((consumer.group,))
        async for group in in_slices(data.producers, GROUPS_AT_ONCE):
            if not request.peer.is_open:
                return False
            self._registry.register_producer(group, client, now_ms)
        return resend

    # --- the rest --------------------------------------------------------------------------------

    def unregister(self, request: Request) -> Command:
        """Answer 35: take the connection out of the groups named; always a success."""
        header = UnregisterClientRequest.decode(request.command.ext)
        key = request.peer.key
        if header.producer_group is not None:
            self._registry.unregister_producer(header.producer_group, key)
        if header.consumer_group is not None:
            # Java looks the group up here too, and so creates one that it does not know.
            self._groups.find(header.consumer_group)
            if self._registry.unregister_consumer(header.consumer_group, key):
                self._notices.changed((header.consumer_group,))
        return reply_to(request.command, ext={})

    async def check_config(self, request: Request) -> Command:
        """Answer 46: whether a consumer's subscription can be served."""
        if not request.command.body:
            return reply_to(request.command)
        decode = functools.partial(_decoded, CheckClient.decode)
        asked = await read_body(decode, request.command.body)
        caller = self._rights.caller(request.command, request.peer.address)
        self._rights.require(caller, check_needs(asked))
        wanted = asked.subscription
        if wanted is None or wanted.expression_type in ("", ExpressionType.TAG):
            return reply_to(request.command)
        if not self._rules.sql_filters or wanted.expression_type != ExpressionType.SQL92:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "The broker does not support consumer to filter message by "
                f"{wanted.expression_type[:40]}",
            )
        try:
            compiled(wanted.expression)
        except tags.ExpressionError as error:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        return reply_to(request.command)

    def peer_closed(self, peer: Peer) -> None:
        """Forget a connection that has ended and tell those left in its groups."""
        self._notices.changed(self._registry.drop(peer.key))

    async def expire(self) -> None:
        """Close connections that have sent no heartbeat for two minutes."""
        departed = self._registry.expire(self._clock.steady_ms())
        for peer in departed.peers:
            log.info("%s has sent no heartbeat for two minutes", peer.address)
            peer.close("no heartbeat")
        self._notices.changed(departed.consumer_groups)


async def _heartbeat(body: bytes) -> HeartbeatData:
    if len(body) > BODY_SIZE_MAX:
        raise _invalid(f"a heartbeat has at most {BODY_SIZE_MAX} bytes")
    try:
        return await read_parts(HeartbeatData.of_json, body)
    except JsonError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error


def _decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except JsonError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error


def _invalid(remark: str) -> Refused:
    return Refused(ResponseCode.INVALID_PARAMETER, remark)
