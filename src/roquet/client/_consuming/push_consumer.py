"""Consuming: queues shared among the group's members, messages fetched ahead, offsets kept."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, Self

from roquet.base.arguments import checked
from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable
from roquet.client._cluster.trouble import Troubles, not_started
from roquet.client._consuming.direct import NOWHERE, consume_directly
from roquet.client._consuming.drain import Given
from roquet.client._consuming.handout import Handout
from roquet.client._consuming.listener import Listener
from roquet.client._consuming.loops import check_count, handle_batches, handle_each
from roquet.client._consuming.ordered import InOrder
from roquet.client._consuming.report import consumer_data, running_info
from roquet.client._queues.assigned_queue import AssignedQueue
from roquet.client._queues.fetch import Fetcher, OffsetMoved
from roquet.client._queues.locks import RENEW_EVERY_S, Locks
from roquet.client._queues.process_queue import ProcessQueue
from roquet.client._queues.shares import Shares
from roquet.client._received import DEAD_LETTER, Outcome, Received
from roquet.protocol import names, tags
from roquet.service.background import Tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from roquet.client._consuming.helpers import Helpers
    from roquet.client._options import ConsumerOptions
    from roquet.client._queues.offsets import Start
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.model.subscription import SubscriptionData
    from roquet.protocol.bodies.clients import ConsumerData
    from roquet.protocol.bodies.stats import ConsumedDirectly, RunningInfo

log = logging.getLogger(__name__)

_UNBALANCED_PAUSE_S = 1.0
_GIVE_BACK_PAUSE_S = 5.0


@checked
class Consumer:
    """Receives the messages of a group. Use it with `async with`, then `async for`."""

    def __init__(
        self,
        *,
        group: str,
        subscriptions: Sequence[SubscriptionData],
        helpers: Helpers,
        options: ConsumerOptions,
        ordered: bool,
        start: Start,
    ) -> None:
        """Take what `MQ.consumer` gives."""
        self.group = group
        self._session = helpers.session
        self._calls = helpers.calls
        self._offsets = helpers.offsets
        self._balancer = helpers.balancer
        self._give_back = helpers.give_back
        self._options = options
        self._ordered = ordered
        self._locks = Locks(helpers.calls, group, helpers.session.clock)
        self._listener = Listener(options)
        tracer = helpers.session.tracer
        given = None if tracer is None else tracer.consumed_by(group)
        self._handout = Handout(self._is_ours, given)
        self._settlings = asyncio.Event()
        self._in_order = InOrder(
            session=self._session,
            locks=self._locks,
            give_back=self._give_back,
            handout=self._handout,
            finish=self._finish,
            news=self._settlings,
            codec=options.codec,
            retry_s=options.order_retry_s,
        )
        self._start = start
        self._subscriptions = {it.topic: it for it in subscriptions}
        self._lanes: dict[MessageQueue, AssignedQueue] = {}
        self._tasks = Tasks()
        self._returning = Tasks()
        self._changed = asyncio.Event()
        self._balancing = asyncio.Lock()
        self._open = False
        self._started_ms = 0
        self._troubles = Troubles(group, self._session, options.on_error, self._fail)
        self._shares = Shares(helpers.balancer, self._troubles, group)
        self._fetcher = Fetcher(
            session=self._session,
            calls=self._calls,
            offsets=self._offsets,
            options=options,
            group=group,
            ordered=ordered,
            deliver=self._fetched,
            broken=self._broken,
            troubles=self._troubles,
        )

    # --- life --------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.close()

    async def start(self) -> None:
        """Join the group and begin to fetch."""
        if self._open:
            return
        session = self._session
        self._started_ms = session.clock.now_ms()
        session.members.add_consumer(self.group, self)
        self._open = True
        self._handout.open()
        first = next(iter(self._subscriptions))
        self._tasks.spawn(
            self._troubles.say_when_silent(lambda: bool(self._lanes), first),
            f"first answer for {self.group}",
        )
        for topic in tuple(self._subscriptions):
            try:
                await session.route(topic)
            except (Refused, Unreachable, OutcomeUnknown) as error:
                await self._troubles.met(f"topic {topic}", error, topic=topic)
        if not self._options.broadcast:
            retry = names.retry_topic(self.group)
            version = session.clock.now_ms()
            self._subscriptions[retry] = tags.subscribe(retry, "*", version=version)
        await session.beat()
        self._changed.set()
        self._tasks.spawn(self._balance_forever(), f"balance {self.group}")
        options, clock = self._options, session.clock
        every = options.rebalance_every_s
        self._tasks.repeat(
            self.rebalance_soon, clock, name="balance now", every_s=every, first_after_s=every
        )
        every = options.commit_every_s
        self._tasks.repeat(self.commit, clock, name="commit", every_s=every, first_after_s=every)
        if self._ordered:
            self._tasks.repeat(
                self._relock, clock, name="lock", every_s=RENEW_EVERY_S, first_after_s=1.0
            )

    async def close(self) -> None:
        """Stop fetching, let what is being sent back go, commit, leave the group. Twice is once."""
        if not self._open:
            return
        self._open = False
        await self._tasks.stop()
        await self._listener.revoked(self._lanes)
        for lane in tuple(self._lanes.values()):
            await lane.tasks.stop()
        # A fetch that failed meanwhile may have begun to take its queue anew.
        await self._tasks.stop()
        await self._returning.stop(within_s=self._options.drain_s)
        await self._offsets.write(self._lanes, wait=True, again=True)
        for lane in self._lanes.values():
            lane.held.dropped = True
        if self._ordered:
            await self._locks.unlock(self._lanes)
        self._lanes.clear()
        self._handout.end()
        self._session.members.remove_consumer(self.group)
        await self._session.unregister(consumer=self.group)

    # --- what the application does -----------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[Received]:
        """Give messages until the consumer is closed.

        Raises what keeps every message away and does not heal by itself: no such topic, no
        permission, a wrong secret, a filter that the broker does not serve.

        Asking for the next message acknowledges the one before if nothing was said about it. An
        exception in the loop's body ends the loop without that: the message comes again. Several
        loops may run at once, each with its own messages; then order is kept only where the
        consumer is an ordered one.
        """
        self._check_open()
        while (received := await self._handout.next()) is not None:
            yield received
            received.ack()

    async def receive(self, timeout_s: float | None = None) -> Received | None:
        """Return the next message, or None when none comes in time; nothing is acknowledged.

        Raises as the loop does.
        """
        self._check_open()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._handout.next()
        except TimeoutError:
            return None

    def ready(self) -> Received | None:
        """Return a message that is here already, if there is one; any thread may ask."""
        self._check_open()
        return self._handout.ready()

    async def receive_many(
        self, max_messages: int = 32, timeout_s: float | None = None, *, linger_s: float = 0.0
    ) -> list[Received]:
        """Return the next messages, at most `max_messages` (1 to 1024); none is acknowledged.

        Waits up to `timeout_s` for the first, then `linger_s` longer to fill the batch; an empty
        list: none in time, or closed. Ordered: one message a queue under way. Raises as the loop.
        """
        self._check_open()
        check_count(max_messages)
        return await self._handout.next_many(max_messages, timeout_s, linger_s)

    async def run(
        self, handler: Callable[[Received], Awaitable[None]], *, concurrency: int = 20
    ) -> None:
        """Give each message to `handler`, up to `concurrency` at a time, until closed.

        A return acknowledges, an exception means `retry`. Raises as the loop does.
        """
        await handle_each(self, handler, concurrency)

    async def run_batches(
        self,
        handler: Callable[[Sequence[Received]], Awaitable[None]],
        *,
        size: int = 32,
        linger_s: float = 0.0,
        concurrency: int = 1,
    ) -> None:
        """Give messages to `handler` in batches, until closed.

        A return acknowledges those of the batch about which nothing was said, an exception means
        `retry` for them. `size`, `linger_s` and what is raised are as in `receive_many`.
        """
        check_count(size)
        await handle_batches(
            lambda: self.receive_many(size, linger_s=linger_s), handler, concurrency
        )

    async def drain(self, timeout_s: float = 30.0) -> bool:
        """Give out nothing more, wait until what was given out is settled, commit and close.

        Returns whether all was settled in time; what was not comes again to another member.
        """
        withheld = self._handout.withdraw()
        given = Given(self._lanes.values(), withheld, ordered=self._ordered)
        done = await given.settled(self._settlings, timeout_s)
        await self.close()
        return done

    def stop(self) -> None:
        """Give out no more messages: loops end after the one in hand; `close` commits."""
        self._handout.stop()

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The queues that are ours now, those of the retry topic included."""
        return frozenset(self._lanes)

    async def commit(self) -> None:
        """Commit what is acknowledged; happens by itself every few seconds and at close."""
        await self._offsets.write(tuple(self._lanes))

    def _is_ours(self, received: Received) -> bool:
        lane = self._lanes.get(received.queue)
        if lane is None:
            return received.queue.broker_name == NOWHERE  # given directly by a tool
        if not lane.held.holds(received.queue_offset):
            return False
        lane.held.last_consume_ms = self._session.clock.now_ms()
        return True

    # --- what happens to messages ------------------------------------------------------------

    def _fetched(self, held: ProcessQueue, messages: list[StoredMessage]) -> None:
        lane = self._lanes.get(held.queue)
        if lane is None or lane.held is not held:
            return
        for message in messages:
            if self._ordered:
                lane.waiting.put_nowait(message)
            else:
                self._hand_out(lane, message)

    def _hand_out(self, lane: AssignedQueue, message: StoredMessage) -> None:
        def settled(_: Received, outcome: Outcome, delay_level: int) -> None:
            self._settled(lane, message, outcome, delay_level)

        shown = self._session.namespace.shown(message)
        self._handout.put(Received(shown, lane.held.queue, settled, self._options.codec))

    def _broken(self, held: ProcessQueue, message: StoredMessage) -> None:
        lane = self._lanes.get(held.queue)
        if lane is not None:
            self._returning.spawn(self._give(lane, message, DEAD_LETTER), "dead letter")

    def _settled(
        self,
        lane: AssignedQueue,
        message: StoredMessage,
        outcome: Outcome,
        delay_level: int,
    ) -> None:
        if lane.held.dropped:
            return  # somebody else has it, or will
        if outcome is Outcome.ACK:
            self._finish(lane, message.queue_offset)
        else:
            self._returning.spawn(self._give(lane, message, delay_level), "give back")

    def _finish(self, lane: AssignedQueue, offset: int) -> None:
        commit = lane.held.remove(offset)
        self._settlings.set()
        if commit >= 0 and not lane.held.dropped:
            self._offsets.move(lane.held.queue, commit)

    async def _give(self, lane: AssignedQueue, message: StoredMessage, delay_level: int) -> None:
        if await self._give_back.give(message, delay_level):
            self._finish(lane, message.queue_offset)
            return
        await self._session.clock.sleep(_GIVE_BACK_PAUSE_S)
        if not lane.held.dropped:
            again = message.reconsume_times + 1
            self._hand_out(lane, dataclasses.replace(message, reconsume_times=again))

    # --- who has which queue -----------------------------------------------------------------

    def rebalance_soon(self) -> None:
        """Look at the group's members again now."""
        self._changed.set()

    async def _balance_forever(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            balanced = False
            try:
                balanced = await self._balance()
            except Exception:
                # Whatever a broker answered: a consumer that stops balancing stops consuming.
                log.exception("balancing of %s failed", self.group)
            if not balanced:
                self._tasks.spawn(self._wake_later(), "balance again")

    async def _wake_later(self) -> None:
        await self._session.clock.sleep(_UNBALANCED_PAUSE_S)
        self._changed.set()

    async def _balance(self) -> bool:
        async with self._balancing:
            # Whoever gets a queue of ours next begins at what is committed by then.
            await self._offsets.write(tuple(self._lanes), wait=True)
            topics = tuple(self._subscriptions)
            shares = {topic: await self._shares.of(topic, topics) for topic in topics}
            known = {topic: share for topic, share in shares.items() if share is not None}
            lost = [
                queue
                for queue in self._lanes
                if queue.topic in known and queue not in known[queue.topic]
            ]
            await self._listener.revoked(lost)
            for queue in lost:
                await self._drop(queue)
            wanted = [queue for share in known.values() for queue in share]
            missing = [queue for queue in wanted if queue not in self._lanes]
            if missing and self._balancer.has_others and not self._ordered:
                # The member that has them now was told when we were: it commits meanwhile.
                await self._session.clock.sleep(self._options.handover_s)
            taken = [it for queue in missing if (it := await self._take(queue)) is not None]
            await self._listener.assigned(lane.held.queue for lane, _ in taken)
            for lane, offset in taken:
                self._begin(lane, offset)
            return len(known) == len(shares) and len(taken) == len(missing)

    def _fail(self, error: RoquetError) -> None:
        if self._handout.fail(error):
            log.info("consumer %s ends: %s", self.group, error)

    async def _take(self, queue: MessageQueue) -> tuple[AssignedQueue, int] | None:
        held = ProcessQueue(queue, self._session.clock.now_ms())
        lane = AssignedQueue(held, Tasks(), asyncio.Queue())
        if self._ordered and not await self._locks.lock(lane.held):
            return None
        try:
            offset = await self._offsets.first(queue)
        except (Refused, Unreachable, OutcomeUnknown) as error:
            await self._troubles.met(f"topic {queue.topic}", error, topic=queue.topic)
            return None
        return lane, offset

    def _begin(self, lane: AssignedQueue, offset: int) -> None:
        if not self._open:
            return
        queue = lane.held.queue
        self._lanes[queue] = lane
        lane.tasks.spawn(self._fetch(lane, offset), f"fetch {queue}")
        if self._ordered:
            lane.tasks.spawn(self._in_order.run(lane), f"order {queue}")
        log.info("%s takes %s from offset %d", self.group, queue, offset)

    async def _drop(self, queue: MessageQueue) -> None:
        lane = self._lanes.pop(queue)
        await lane.tasks.stop()
        lane.held.dropped = True
        self._settlings.set()
        await self._offsets.write([queue], wait=True, again=True)
        self._offsets.forget(queue)
        if self._ordered:
            await self._locks.unlock([queue])
        log.info("%s gives %s away", self.group, queue)

    async def _relock(self) -> None:
        await self._locks.renew([lane.held for lane in self._lanes.values()])

    async def _fetch(self, lane: AssignedQueue, offset: int) -> None:
        queue = lane.held.queue
        try:
            await self._fetcher.run(lane.held, lambda: self._subscriptions[queue.topic], offset)
        except OffsetMoved as moved:
            log.warning("the broker moves %s of %s to %d", queue, self.group, moved.offset)
            self._tasks.spawn(self._jump(lane, moved.offset), f"jump {queue}")
        except Exception:
            log.exception("fetching of %s failed: the queue is taken anew", queue)
            await self._session.clock.sleep(self._options.pause_after_error_s)
            self._tasks.spawn(self._jump(lane, None), f"anew {queue}")

    async def _jump(self, lane: AssignedQueue, offset: int | None) -> None:
        """Drop a queue and take it again, at the corrected offset if one is given."""
        queue = lane.held.queue
        async with self._balancing:
            if self._lanes.get(queue) is not lane:
                return
            lane.held.dropped = True
            await lane.tasks.stop()
            del self._lanes[queue]
            if offset is not None:
                self._offsets.set(queue, offset)
            await self._offsets.write([queue], wait=True, again=True)
        self._changed.set()

    # --- what brokers ask (_members.Consumer) ------------------------------------------------

    def describe(self) -> ConsumerData:
        """Return what heartbeats say of the group."""
        return consumer_data(
            self.group,
            tuple(self._subscriptions.values()),
            self._start,
            broadcast=self._options.broadcast,
        )

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on from other offsets, as an administrator ordered."""
        for queue, offset in offsets.items():
            lane = self._lanes.get(queue)
            if queue.topic == topic and lane is not None:
                await self._jump(lane, offset)

    def progress(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the offsets of our queues of a topic."""
        return {
            queue: offset
            for queue in self._lanes
            if queue.topic == topic and (offset := self._offsets.get(queue)) is not None
        }

    def running_info(self) -> RunningInfo:
        """Return what tools show of us."""
        return running_info(
            name_servers=self._session.name_servers.addresses,
            started_ms=self._started_ms,
            ordered=self._ordered,
            subscriptions=tuple(self._subscriptions.values()),
            queues=[(lane.held, self._offsets.get(queue)) for queue, lane in self._lanes.items()],
        )

    async def consume_directly(self, message: StoredMessage) -> ConsumedDirectly:
        """Give one message to the application, outside of any queue; offsets do not move."""
        give, clock = self._handout.put, self._session.clock
        shown = self._session.namespace.shown(message)
        codec = self._options.codec
        return await consume_directly(shown, give, clock, codec, ordered=self._ordered)

    def _check_open(self) -> None:
        if not self._open:
            raise not_started("consumer")
