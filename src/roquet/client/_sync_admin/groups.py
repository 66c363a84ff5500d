"""Blocking administration of groups: written by `python -m tools.sync_admin`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet import admin
    from roquet.admin.groups import Place, SeekStep
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.queue import MessageQueue
    from roquet.model.request_mode import GroupRequestMode
    from roquet.protocol.bodies.clients import Connection, ConsumerConnection
    from roquet.protocol.bodies.stats import ConsumeOffset, RunningInfo
    from roquet.service.loop_thread import LoopThread


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

    def table(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        """Return all groups of one broker, named by its name, with those of the system.

        Raises as `get` does.
        """
        return self._loop.run(self._inner.table(broker))

    def put(
        self,
        group: str | SubscriptionGroupConfig,
        *,
        brokers: Iterable[str] | None = None,
        removed: Iterable[str] = (),
    ) -> None:
        """Create a group or change it to this. Raises UsageError, Refused, Unreachable.

        Attributes are added to those that it has; `removed` are the names of those to take away.
        """
        self._loop.run(self._inner.put(group, brokers=brokers, removed=removed))

    def put_all(
        self, configs: Iterable[SubscriptionGroupConfig], *, brokers: Iterable[str] | None = None
    ) -> None:
        """Create groups or change them to these, all with one request. Raises as `put` does."""
        self._loop.run(self._inner.put_all(configs, brokers=brokers))

    def delete(
        self, group: str, *, offsets: bool = False, brokers: Iterable[str] | None = None
    ) -> None:
        """Delete a group, with `offsets` also what it had committed. Raises as `put` does."""
        self._loop.run(self._inner.delete(group, offsets=offsets, brokers=brokers))

    def set_mode(self, mode: GroupRequestMode, *, brokers: Iterable[str] | None = None) -> None:
        """Say whether a group's members pull or pop a topic. Raises as `put` does."""
        self._loop.run(self._inner.set_mode(mode, brokers=brokers))

    def set_readable(self, group: str, topic: str, *, readable: bool) -> None:
        """Allow or forbid a group to read a topic. Raises as `put` does."""
        self._loop.run(self._inner.set_readable(group, topic, readable=readable))

    def offsets(self, group: str, topic: str | None = None) -> dict[MessageQueue, ConsumeOffset]:
        """Return how far a group is in each queue, of one topic or of all that it consumes.

        Queues of these topics in which it has no offset yet are there too. Raises Refused,
        Unreachable, OutcomeUnknown.
        """
        return self._loop.run(self._inner.offsets(group, topic))

    def progress(
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
        return self._loop.run(self._inner.progress(group, topic, brokers=brokers, retries=retries))

    def lag(self, group: str, topic: str | None = None) -> int:
        """Return how many messages a group has not consumed yet."""
        return self._loop.run(self._inner.lag(group, topic))

    def topics(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets, in order."""
        return self._loop.run(self._inner.topics(group))

    def connection(self, group: str, *, broker: str | None = None) -> ConsumerConnection | None:
        """Return how a group is connected, its members once each; None when nobody is online.

        With `broker`, a name or an address, as this one alone knows.
        """
        return self._loop.run(self._inner.connection(group, broker=broker))

    def committed(self, broker: str) -> Mapping[str, Mapping[int, int]]:
        """Return what all groups have committed on a broker: `topic@group` -> queue id -> offset.

        The broker is given by its name or an address. Raises UsageError, Refused, Unreachable,
        OutcomeUnknown.
        """
        return self._loop.run(self._inner.committed(broker))

    def members(self, group: str, broker: str) -> tuple[Connection, ...]:
        """Return the members of a group that a broker knows. Raises as `committed` does."""
        return self._loop.run(self._inner.members(group, broker))

    def running_info(
        self, group: str, client_id: str, *, stacks: bool = False, broker: str | None = None
    ) -> RunningInfo:
        """Return what a member says of itself; `stacks`: of its threads, too.

        With `broker`, a name or an address, by this one alone. Raises Refused when no broker has
        the member.
        """
        return self._loop.run(
            self._inner.running_info(group, client_id, stacks=stacks, broker=broker)
        )

    def preview_seek(
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
        return self._loop.run(self._inner.preview_seek(group, topic, to, by=by, queue=queue))

    def seek(self, group: str, topic: str, to: Place) -> list[SeekStep]:
        """Let a group go on elsewhere in a topic, online or not; return what was done.

        A broker that knows no member of the group gets the offsets as commits. Raises as
        `preview_seek` does.
        """
        return self._loop.run(self._inner.seek(group, topic, to))

    def take_steps(self, group: str, topic: str, steps: Iterable[SeekStep]) -> None:
        """Do what `preview_seek` has shown. Raises Refused, Unreachable, OutcomeUnknown."""
        self._loop.run(self._inner.take_steps(group, topic, steps))

    def clone_offsets(
        self, source: str, target: str, topic: str | None = None, *, offline: bool = True
    ) -> None:
        """Give one group the offsets of another, of one topic or of all.

        With `offline` also of topics that the source is not subscribed to now.
        """
        self._loop.run(self._inner.clone_offsets(source, target, topic, offline=offline))
