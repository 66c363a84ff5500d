"""Administration by the blocking client: written by `python -m tools.sync_admin`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin.messages import FOREVER_MS
from roquet.model.topic import READ_WRITE

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from roquet import admin
    from roquet.admin.accounts import AccountInfo
    from roquet.admin.groups import Place, SeekStep
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.model.request_mode import GroupRequestMode
    from roquet.model.route import TopicRoute
    from roquet.model.topic import TopicConfig
    from roquet.protocol.bodies.clients import Connection, ConsumerConnection, ProducerInfo
    from roquet.protocol.bodies.replication import HaStatusBody
    from roquet.protocol.bodies.routes import ClusterInfo
    from roquet.protocol.bodies.stats import (
        BrokerStatsItem,
        ConsumedDirectly,
        ConsumeOffset,
        RunningInfo,
        TopicOffset,
    )
    from roquet.protocol.bodies.timers import TimerMetricsBody
    from roquet.service.loop_thread import LoopThread


class Topics:
    """Topics of a cluster, on every master unless brokers are named."""

    def __init__(self, inner: admin.Topics, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def names(self, *, system: bool = True) -> list[str]:
        """Return the names of all topics, in order; without `system` only those that users made.

        Retry and dead-letter topics of groups count as the system's. Raises Refused, Unreachable.
        """
        return self._loop.run(self._inner.names(system=system))

    def system(self) -> frozenset[str]:
        """Return names that are topics of the system: clusters, brokers and a broker's own."""
        return self._loop.run(self._inner.system())

    def get(
        self, topic: str, *, brokers: Iterable[str] | None = None, cluster: str | None = None
    ) -> dict[str, TopicConfig]:
        """Return broker name -> configuration, of the masters that have the topic.

        Raises UsageError, Refused, Unreachable.
        """
        return self._loop.run(self._inner.get(topic, brokers=brokers, cluster=cluster))

    def route(self, topic: str) -> TopicRoute:
        """Return where a topic is. Raises Refused with code 17 when it is nowhere, Unreachable."""
        return self._loop.run(self._inner.route(topic))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read, in order. Raises as `route` does."""
        return self._loop.run(self._inner.queues(topic))

    def offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the bounds of every queue of a topic, in order. Raises as `route` does."""
        return self._loop.run(self._inner.offsets(topic))

    def offsets_at(self, topic: str, time_ms: int) -> dict[MessageQueue, int]:
        """Return each queue's offset of the first message stored at `time_ms` or later.

        `time_ms` is Unix milliseconds. Raises as `route` does.
        """
        return self._loop.run(self._inner.offsets_at(topic, time_ms))

    def groups(self, topic: str) -> list[str]:
        """Return the names of all groups that consume a topic. Raises as `route` does."""
        return self._loop.run(self._inner.groups(topic))

    def create(
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
        return self._loop.run(
            self._inner.create(
                name,
                queues,
                perm=perm,
                order=order,
                attributes=attributes,
                brokers=brokers,
                cluster=cluster,
            )
        )

    def put(
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
        self._loop.run(self._inner.put(config, brokers=brokers, cluster=cluster, removed=removed))

    def alter(
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
        return self._loop.run(
            self._inner.alter(
                name,
                queues=queues,
                perm=perm,
                order=order,
                attributes=attributes,
                brokers=brokers,
                cluster=cluster,
            )
        )

    def delete(self, name: str) -> None:
        """Delete a topic from every broker and name server.

        Raises UsageError, Refused, Unreachable; a name server that is away raises its error when
        all others have deleted.
        """
        self._loop.run(self._inner.delete(name))


class Groups:
    """Consumer groups of a cluster, on every master unless brokers are named."""

    def __init__(self, inner: admin.Groups, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def names(self, *, system: bool = True) -> list[str]:
        """Return the names of all groups, in order; without `system` only those of users."""
        return self._loop.run(self._inner.names(system=system))

    def get(
        self, group: str, *, brokers: Iterable[str] | None = None
    ) -> dict[str, SubscriptionGroupConfig]:
        """Return broker name -> configuration, of the masters that have the group.

        It is looked for in the whole table: the request for one group creates it where brokers
        create groups by themselves. Raises UsageError, Refused, Unreachable.
        """
        return self._loop.run(self._inner.get(group, brokers=brokers))

    def put(
        self, group: str | SubscriptionGroupConfig, *, brokers: Iterable[str] | None = None
    ) -> None:
        """Create a group or change it to this. Raises UsageError, Refused, Unreachable."""
        self._loop.run(self._inner.put(group, brokers=brokers))

    def delete(self, group: str, *, offsets: bool = False) -> None:
        """Delete a group, with `offsets` also what it had committed. Raises as `put` does."""
        self._loop.run(self._inner.delete(group, offsets=offsets))

    def set_mode(self, mode: GroupRequestMode) -> None:
        """Say whether a group's members pull or pop a topic. Raises as `put` does."""
        self._loop.run(self._inner.set_mode(mode))

    def set_readable(self, group: str, topic: str, *, readable: bool) -> None:
        """Allow or forbid a group to read a topic. Raises as `put` does."""
        self._loop.run(self._inner.set_readable(group, topic, readable=readable))

    def offsets(self, group: str, topic: str | None = None) -> dict[MessageQueue, ConsumeOffset]:
        """Return how far a group is in each queue, of one topic or of all that it consumes.

        Queues of these topics in which it has no offset yet are there too. Raises Refused,
        Unreachable, OutcomeUnknown.
        """
        return self._loop.run(self._inner.offsets(group, topic))

    def lag(self, group: str, topic: str | None = None) -> int:
        """Return how many messages a group has not consumed yet."""
        return self._loop.run(self._inner.lag(group, topic))

    def topics(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets, in order."""
        return self._loop.run(self._inner.topics(group))

    def connection(self, group: str) -> ConsumerConnection | None:
        """Return how a group is connected, its members once each; None when nobody is online."""
        return self._loop.run(self._inner.connection(group))

    def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> RunningInfo:
        """Return what a member says of itself; `stacks`: of its threads, too.

        Raises Refused when no broker has the member.
        """
        return self._loop.run(self._inner.running_info(group, client_id, stacks=stacks))

    def preview_seek(self, group: str, topic: str, to: Place) -> list[SeekStep]:
        """Return what `seek` would do, queue by queue, and do nothing.

        `to` is `earliest`, `latest`, a time in Unix milliseconds, or offsets by queue. Raises
        UsageError for an offset that its queue does not have, Refused with code 17, Unreachable.
        """
        return self._loop.run(self._inner.preview_seek(group, topic, to))

    def seek(self, group: str, topic: str, to: Place) -> list[SeekStep]:
        """Let a group go on elsewhere in a topic, online or not; return what was done.

        A broker that knows no member of the group gets the offsets as commits. Raises as
        `preview_seek` does.
        """
        return self._loop.run(self._inner.seek(group, topic, to))

    def clone_offsets(
        self, source: str, target: str, topic: str | None = None, *, offline: bool = True
    ) -> None:
        """Give one group the offsets of another, of one topic or of all.

        With `offline` also of topics that the source is not subscribed to now.
        """
        self._loop.run(self._inner.clone_offsets(source, target, topic, offline=offline))


class Messages:
    """Messages of a cluster."""

    def __init__(self, inner: admin.Messages, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def by_offset_id(self, offset_id: str) -> StoredMessage:
        """Return a message by its offset id (`SendReceipt.offset_id`).

        Raises Refused when it is not there, UsageError for what is no such id and for one of a
        broker that is not ours: an id holds an address, and nobody is to make us connect just
        anywhere.
        """
        return self._loop.run(self._inner.by_offset_id(offset_id))

    def by_key(
        self, topic: str, key: str, *, count: int = 64, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[StoredMessage]:
        """Return messages with a key, the oldest first, at most `count` from each broker.

        `begin_ms` and `end_ms` bound the store time, Unix milliseconds. Raises Refused with code
        17 for an unknown topic, Unreachable.
        """
        return self._loop.run(
            self._inner.by_key(topic, key, count=count, begin_ms=begin_ms, end_ms=end_ms)
        )

    def by_id(self, topic: str, unique_id: str) -> list[StoredMessage]:
        """Return the copies of a message by the id that its producer made. Raises as `by_key`."""
        return self._loop.run(self._inner.by_id(topic, unique_id))

    def at(self, queue: MessageQueue, offset: int, count: int = 1) -> list[StoredMessage]:
        """Return up to `count` messages of a queue from an offset on; none beyond its end.

        Raises Refused, Unreachable, OutcomeUnknown.
        """
        return self._loop.run(self._inner.at(queue, offset, count))

    def between(
        self, topic: str, begin_ms: int, end_ms: int, *, count: int = 1000
    ) -> Generator[StoredMessage]:
        """Yield the messages of a topic stored from `begin_ms` to before `end_ms`, by queue.

        At most `count` of each queue. Raises as `at` does.
        """
        yield from self._loop.iterate(self._inner.between(topic, begin_ms, end_ms, count=count))

    def consume_directly(
        self, group: str, client_id: str, message: StoredMessage
    ) -> ConsumedDirectly:
        """Have one member of a group consume a message now; return what it said.

        Raises Refused when the member is not online.
        """
        return self._loop.run(self._inner.consume_directly(group, client_id, message))


class Brokers:
    """Brokers of a cluster: one is named by its name (then its master) or its address."""

    def __init__(self, inner: admin.Brokers, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def cluster(self) -> ClusterInfo:
        """Return all brokers that the name server knows. Raises Unreachable."""
        return self._loop.run(self._inner.cluster())

    def runtime(self, broker: str) -> dict[str, str]:
        """Return what a broker says about itself, by key. Raises UsageError, Refused, Unreachable.

        The keys are those of RocketMQ's `brokerStatus`.
        """
        return self._loop.run(self._inner.runtime(broker))

    def config(self, broker: str) -> dict[str, str]:
        """Return a broker's settings, by Java name. Raises as `runtime` does."""
        return self._loop.run(self._inner.config(broker))

    def set_config(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of a running broker, all or none. Raises as `runtime` does."""
        self._loop.run(self._inner.set_config(broker, changes))

    def ha_status(self, broker: str) -> HaStatusBody:
        """Return a broker's replication at this moment. Raises as `runtime` does."""
        return self._loop.run(self._inner.ha_status(broker))

    def statistics(self, broker: str, name: str, key: str) -> dict[str, BrokerStatsItem]:
        """Return sums of the last minute, hour and day of one set, `TOPIC_PUT_NUMS` say, and key.

        The keys are statsMinute, statsHour and statsDay. Raises as `runtime` does.
        """
        return self._loop.run(self._inner.statistics(broker, name, key))

    def timers(self, broker: str) -> TimerMetricsBody:
        """Return how many timer messages wait, by topic. Raises as `runtime` does."""
        return self._loop.run(self._inner.timers(broker))

    def producers(self, broker: str) -> dict[str, tuple[ProducerInfo, ...]]:
        """Return the producers that are connected, by group. Raises as `runtime` does."""
        return self._loop.run(self._inner.producers(broker))

    def producer_connections(self, broker: str, group: str) -> tuple[Connection, ...]:
        """Return the members of one producer group. Raises as `runtime` does."""
        return self._loop.run(self._inner.producer_connections(broker, group))

    def drain(self, broker_name: str) -> int:
        """Have all name servers say that nobody writes to a broker; return how many topics.

        Consumers go on. The change is lost when the broker or a name server starts anew. Raises
        UsageError for an unknown name, Refused, Unreachable.
        """
        return self._loop.run(self._inner.drain(broker_name))

    def is_drained(self, broker_name: str) -> bool:
        """Tell whether name servers say that nobody writes to a broker. Raises Unreachable."""
        return self._loop.run(self._inner.is_drained(broker_name))

    def undrain(self, broker_name: str) -> int:
        """Undo `drain`; return how many topics. Raises as `drain` does."""
        return self._loop.run(self._inner.undrain(broker_name))

    def clean_queues(self, broker: str) -> None:
        """Delete consume-queue files whose messages are gone. Raises as `runtime` does."""
        self._loop.run(self._inner.clean_queues(broker))

    def clean_topics(self, broker: str) -> None:
        """Delete queues of topics that are not there any more. Raises as `runtime` does."""
        self._loop.run(self._inner.clean_topics(broker))

    def delete_expired(self, broker: str) -> None:
        """Delete files of the log that are older than the store keeps. Raises as `runtime` does."""
        self._loop.run(self._inner.delete_expired(broker))


class NameServers:
    """The name servers of a cluster. Each has its own tables: changes go to all of them."""

    def __init__(self, inner: admin.NameServers, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses, the one in use first."""
        return self._inner.addresses

    def config(self) -> dict[str, dict[str, str]]:
        """Return address -> settings by Java name. Raises Refused, Unreachable, OutcomeUnknown."""
        return self._loop.run(self._inner.config())

    def set_config(self, changes: Mapping[str, str]) -> None:
        """Change settings of every running name server, all or none at each.

        Raises UsageError for no change, else as `config` does.
        """
        self._loop.run(self._inner.set_config(changes))

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value of the key-value table. Raises Refused with code 22 for none."""
        return self._loop.run(self._inner.get(namespace, key))

    def items(self, namespace: str) -> dict[str, str]:
        """Return all of a namespace. Raises Refused with code 22 for an unknown one."""
        return self._loop.run(self._inner.items(namespace))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value at every name server. Raises Refused, Unreachable, OutcomeUnknown."""
        self._loop.run(self._inner.put(namespace, key, value))

    def delete(self, namespace: str, key: str) -> None:
        """Delete one value at every name server. Raises Refused, Unreachable, OutcomeUnknown."""
        self._loop.run(self._inner.delete(namespace, key))


class Accounts:
    """Accounts of a cluster."""

    def __init__(self, inner: admin.Accounts, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def list_of(self, broker: str) -> tuple[AccountInfo, ...]:
        """Return the accounts that a broker has. Raises UsageError, Refused, Unreachable."""
        return self._loop.run(self._inner.list_of(broker))

    def put(self, ext: Mapping[str, str]) -> None:
        """Make or change an account; `ext` has the fields of `mqadmin updateAclConfig`.

        accessKey, secretKey, admin, defaultTopicPerm, defaultGroupPerm, topicPerms, groupPerms,
        whiteRemoteAddress. Raises Refused, Unreachable, OutcomeUnknown.
        """
        self._loop.run(self._inner.put(ext))

    def delete(self, access_key: str) -> None:
        """Delete an account. Raises Refused with code 210 where there is none, as `put` else."""
        self._loop.run(self._inner.delete(access_key))

    def set_white_list(self, addresses: tuple[str, ...]) -> None:
        """Replace the addresses that need no account. Raises as `put` does."""
        self._loop.run(self._inner.set_white_list(addresses))


class Admin:
    """The families of administration, blocking."""

    def __init__(self, inner: admin.Admin, loop: LoopThread) -> None:
        """Wrap."""
        self.topics = Topics(inner.topics, loop)
        self.groups = Groups(inner.groups, loop)
        self.messages = Messages(inner.messages, loop)
        self.brokers = Brokers(inner.brokers, loop)
        self.name_servers = NameServers(inner.name_servers, loop)
        self.accounts = Accounts(inner.accounts, loop)
