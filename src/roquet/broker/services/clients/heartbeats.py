"""Clients join their groups by heartbeats, and leave when they say so or fall silent.

The texts of refusals and the flags of answers are those of a 5.5.0 broker (spec: broker (b) Client
manage, wire §12).
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from roquet.acl.needs import check_needs, heartbeat_needs
from roquet.base.errors import DiskFull, TableFull
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.clients.registry import Consuming
from roquet.broker.services.access import Access
from roquet.model.subscription import ConsumeType, ExpressionType
from roquet.model.topic import READ_WRITE, TOPIC_SYS_FLAG_UNIT_SUB
from roquet.protocol import names, tags
from roquet.service.lifecycle import Timer
from roquet.service.shares import may_hold
from roquet.service.slices import in_slices
from roquet.store.tables.filters import compiled

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.broker.api.caller import Caller
    from roquet.broker.clients.notices import GroupNotices
    from roquet.broker.clients.registry import Client, Registry
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.protocol.bodies.clients import CheckClient, ConsumerData, HeartbeatData
    from roquet.store.tables.groups import GroupTable
    from roquet.store.tables.topics import TopicTable

log = logging.getLogger(__name__)

GROUPS_MAX = 2_000
"""Groups that one heartbeat, and one connection in all, may name."""
SUBSCRIPTIONS_MAX = 5_000
"""Topics that one group may subscribe to."""
MEMBERSHIPS_MAX = 1_000_000
"""Groups that connections are in, counted for each connection; an account has a share of them."""
SUBSCRIBED_MAX = 1_000_000
"""Topics that groups subscribe to, counted for each group; 256 characters count as a topic."""
GROUPS_AT_ONCE = 20
"""Groups of a heartbeat that are handled before others have their turn."""
CREATED_EVERY_S = 1.0
REST_FACTOR = 9
"""Tables are written whole: after a write of groups of heartbeats there is none for so many times
as long, so that these writes take a tenth of the time at most."""
CLIENT_ID_LENGTH_MAX = 1_024
PRODUCER_GROUP_LENGTH_MAX = 255


@dataclasses.dataclass(frozen=True, slots=True)
class HeartbeatConfig:
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
        rules: HeartbeatConfig,
        access: Access | None = None,
    ) -> None:
        self._access = access or Access()
        self._registry = registry
        self._notices = notices
        self._groups = groups
        self._topics = topics
        self._clock = clock
        self._rules = rules
        self._created = False
        """Whether heartbeats created something since the last write."""
        self._rest_until_ms = 0

    def follow(self, rules: HeartbeatConfig) -> None:
        """Let clients in by other settings from now on."""
        self._rules = rules

    @property
    def timers(self) -> tuple[Timer, ...]:
        """Housekeeping, the notices that were gathered, and what heartbeats created."""
        return (
            Timer("client housekeeping", self.expire, 10.0, 10.0),
            Timer("gathered group notices", self._notices.flush, 15.0, 30.0),
            Timer("save groups of heartbeats", self.save_created, CREATED_EVERY_S, CREATED_EVERY_S),
        )

    async def start(self) -> None:
        """Nothing to acquire: clients come by themselves."""

    async def stop(self) -> None:
        """Nothing to release: who is here is learnt anew from heartbeats."""

    # --- heartbeat -------------------------------------------------------------------------------

    async def heartbeat(self, data: HeartbeatData, client: Client, caller: Caller) -> bool:
        """Register the groups of a client; return whether it must send its subscriptions again.

        Raises Refusal; the groups that were let in until then stay.
        """
        secret = self._access.secret(caller)
        async for needs in in_slices(heartbeat_needs(data), GROUPS_AT_ONCE):
            self._access.require(caller, needs)
        self._check_limits(client.peer.key, data, caller.access_key)
        consumers, full = await self._known_consumers(data)
        client = dataclasses.replace(client, secret=secret)
        # Others had their turn; nobody is let in who has hung up meanwhile.
        changed = await self._register(client, data, consumers)
        if full is not None:
            # Those that were let in stay; who it is that was not is in the text.
            raise Refusal(Reason.FAILED, str(full)) from full
        # A V1 heartbeat always carries all, so nothing is lost by telling it to: Java does.
        return data.fingerprint == 0 or changed

    def _check_limits(self, key: int, data: HeartbeatData, account: str) -> None:
        if len(data.client_id or "") > CLIENT_ID_LENGTH_MAX:
            raise _invalid(f"clientID is longer than {CLIENT_ID_LENGTH_MAX} characters")
        if len(data.consumers) + len(data.producers) > GROUPS_MAX:
            raise _invalid(f"a heartbeat may name {GROUPS_MAX} groups")
        if self._registry.groups_of(key) > GROUPS_MAX:
            raise _invalid(f"a connection may be in {GROUPS_MAX} groups")
        self._check_room(key, data, account)
        for group in data.producers:
            if not group or len(group) > PRODUCER_GROUP_LENGTH_MAX:
                raise _invalid("a producer group has 1 to 255 characters")
        for consumer in data.consumers:
            if len(consumer.subscriptions) > SUBSCRIPTIONS_MAX:
                raise _invalid(f"a group may subscribe to {SUBSCRIPTIONS_MAX} topics")
            for wanted in consumer.subscriptions:
                if len(wanted.expression) > tags.EXPRESSION_LENGTH_MAX:
                    raise _invalid(f"the expression for topic {wanted.topic[:127]} is too long")

    def _check_room(self, key: int, data: HeartbeatData, account: str) -> None:
        """Raise Refusal when all connections, or those of one account, are in too many groups.

        A connection without an account is bounded by itself.
        """
        known = self._registry.memberships
        mine = known.of(account) if account else 0
        if may_hold(mine + GROUPS_MAX, known.total + GROUPS_MAX, MEMBERSHIPS_MAX):
            return
        named = [consumer.group for consumer in data.consumers]
        joins = self._registry.joins(key, named, data.producers)
        if not joins:
            return
        if known.total + joins > MEMBERSHIPS_MAX:
            what = f"connections are in {MEMBERSHIPS_MAX} groups: there is no room for more"
            raise Refusal(Reason.BUSY, what)
        if account and not may_hold(mine + joins, known.total + joins, MEMBERSHIPS_MAX):
            what = f"connections of account {account} are in {mine} groups, which is its share"
            raise Refusal(Reason.BUSY, what)

    def _check_subscriptions(self, consumer: ConsumerData) -> None:
        """Raise Refusal when all groups together would subscribe to too much."""
        growth = self._registry.growth(consumer.group, consumer.subscriptions)
        if growth > 0 and self._registry.subscribed + growth > SUBSCRIBED_MAX:
            what = f"groups subscribe to {SUBSCRIBED_MAX} topics: there is no room for more"
            raise Refusal(Reason.BUSY, what)

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
            self._created = True
        return let_in, full

    async def save_created(self) -> None:
        """Write down what heartbeats created, if that is possible: the action of a timer.

        No heartbeat waits for it: what is forgotten by a restart, the next one creates again, and
        no retry topic takes a message before it is durable. So clients that come one by one have
        the tables written once for many of them, and with a full disk consumers go on reading.
        """
        began_ms = self._clock.steady_ms()
        if not self._created or began_ms < self._rest_until_ms:
            return
        self._created = False
        try:
            await self._groups.persist()
            await self._topics.persist()
        except (DiskFull, OSError) as error:
            log.warning("groups and retry topics of heartbeats are not written down: %s", error)
        ended_ms = self._clock.steady_ms()
        self._rest_until_ms = ended_ms + REST_FACTOR * (ended_ms - began_ms)

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
        self, client: Client, data: HeartbeatData, consumers: list[ConsumerData]
    ) -> bool:
        """Put a client into its groups and tell the others; tell whether it must send all again.

        One that has hung up, also between two slices, is let in no more.
        """
        now_ms = self._clock.steady_ms()
        is_v2 = data.fingerprint != 0
        without_sub = is_v2 and data.without_sub
        resend = False
        async for consumer in in_slices(consumers, GROUPS_AT_ONCE):
            if not client.peer.is_open:
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
            if not client.peer.is_open:
                return False
            self._registry.register_producer(group, client, now_ms)
        return resend

    # --- the rest --------------------------------------------------------------------------------

    def unregister(self, key: int, producer_group: str | None, consumer_group: str | None) -> None:
        """Take a connection out of the groups named; `key` is the connection's own number."""
        if producer_group is not None:
            self._registry.unregister_producer(producer_group, key)
        if consumer_group is not None:
            # Java looks the group up here too, and so creates one that it does not know.
            self._groups.find(consumer_group)
            if self._registry.unregister_consumer(consumer_group, key):
                self._notices.changed((consumer_group,))

    def check_subscription(self, asked: CheckClient, caller: Caller) -> None:
        """Raise Refusal when a consumer's subscription cannot be served."""
        self._access.require(caller, check_needs(asked))
        wanted = asked.subscription
        if wanted is None or wanted.expression_type in ("", ExpressionType.TAG):
            return
        if not self._rules.sql_filters or wanted.expression_type != ExpressionType.SQL92:
            raise Refusal(
                Reason.FAILED,
                "The broker does not support consumer to filter message by "
                f"{wanted.expression_type[:40]}",
            )
        try:
            compiled(wanted.expression)
        except tags.ExpressionError as error:
            raise Refusal(Reason.UNPARSABLE_FILTER, str(error)) from error

    def members(self, group: str, caller: Caller) -> list[str]:
        """Return the client ids of a group's members, in order. Raises Refusal without any."""
        del caller
        known = self._registry.consumer(group)
        ids = [] if known is None else known.client_ids
        if not ids:
            raise Refusal(Reason.FAILED, f"no consumer for this group, {group}")
        return ids

    def left(self, key: int) -> None:
        """Forget a connection that has ended and tell those left in its groups."""
        self._notices.changed(self._registry.drop(key))

    async def expire(self) -> None:
        """Close connections that have sent no heartbeat for two minutes."""
        departed = self._registry.expire(self._clock.steady_ms())
        for peer in departed.peers:
            log.info("%s has sent no heartbeat for two minutes", peer.address)
            peer.close("no heartbeat")
        self._notices.changed(departed.consumer_groups)


def _invalid(text: str) -> Refusal:
    return Refusal(Reason.INVALID_ARGUMENT, text)
