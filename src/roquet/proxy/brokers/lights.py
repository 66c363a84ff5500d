"""Light topics of the broker of this process, and handles of messages of light topics anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from roquet.protocol import properties as props
from roquet.protocol.light import light_queues, light_topics
from roquet.protocol.pop.handle import ReceiptHandle, retry_flag
from roquet.protocol.pop.topics import ORDER_REVIVE_QUEUE
from roquet.proxy.brokers.api import Found
from roquet.store.records import read_records

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from roquet.broker.api.caller import Caller
    from roquet.broker.api.pop import (
        LightAckRequest,
        LightInvisible,
        LightInvisibleRequest,
        LightPopRequest,
        LightSubscribe,
    )
    from roquet.broker.operations.light import LightOperations
    from roquet.broker.pop.receive.polls import Waiting
    from roquet.model.subscription import SubscriptionData
    from roquet.proxy.brokers.api import Source, Subscriber
    from roquet.remoting.router import Peer
    from roquet.store.records import Record


class LocalLights:
    """Light topics, by the operations of one broker."""

    def __init__(self, light: LightOperations, name: str) -> None:
        """`name` is the broker's."""
        self._light = light
        self._name = name

    async def subscribe(
        self, wanted: LightSubscribe, caller: Caller, subscriber: Subscriber
    ) -> None:
        """Change what a client subscribes to."""

        def tell(_: LightSubscribe) -> Callable[[str], None]:
            return subscriber.lost

        await self._light.subscribe([wanted], caller, tell, subscriber.who)

    def source(self, broker: str, wanted: LightPopRequest) -> Source:
        """Return what gives messages of the light topics of a client."""
        del broker
        return _LightSource(self._light, self._name, wanted)

    async def ack(self, broker: str, request: LightAckRequest, caller: Caller) -> None:
        """End the flight of a message."""
        del broker
        self._light.ack(request, caller)

    async def change_invisible(
        self, broker: str, request: LightInvisibleRequest, caller: Caller
    ) -> LightInvisible | None:
        """Have a message come back at another time; None when it was settled meanwhile."""
        del broker
        return self._light.change_invisible(request, caller)

    def close(self, client: tuple[str, str], topics: Collection[str]) -> None:
        """Forget a client that has gone."""
        del topics
        self._light.close(client)


class _LightSource:
    """The light topics that a client subscribes to."""

    def __init__(self, light: LightOperations, name: str, wanted: LightPopRequest) -> None:
        self._light = light
        self._name = name
        self.wanted = wanted

    async def take(self, caller: Caller, now_ms: int) -> list[Found]:
        """Return what is there. Raises Refusal."""
        # One that has waited is as good as new: how long it may wait is judged here alone.
        wanted = msgspec.structs.replace(self.wanted, born_ms=now_ms)
        result = await self._light.pop(wanted, caller)
        records = read_records(result.records, check_crc=False)
        found = light_in_flight(records, result.counts, result.pop_time_ms, wanted, self._name)
        return list(found)

    def pack(self, takes: SubscriptionData, attempts_max: int) -> None:
        """Have every message looked at."""
        del takes, attempts_max

    async def wait(self, peer: Peer) -> Waiting:
        """Return HELD when it is time to look again."""
        return await self._light.waits.wait(self.wanted, peer)


def light_in_flight(
    records: Sequence[Record],
    counts: Sequence[int],
    pop_time_ms: int,
    wanted: LightPopRequest,
    broker: str,
) -> Iterator[Found]:
    """Yield each message of a pop with its handle and its light topic.

    Raises ValueError for one that is of no light topic, or has no count.
    """
    for record, count in zip(records, counts, strict=True):
        found = props.read(record.properties)
        name = found.get(props.LITE_TOPIC, "")
        offset = light_queues.offset_in(light_topics.queue_of(wanted.topic, name), found)
        if offset is None:
            raise ValueError(f"a message of {wanted.topic} is of none of its light topics")
        handle = ReceiptHandle(
            start_offset=offset,
            pop_time_ms=pop_time_ms,
            invisible_ms=wanted.invisible_ms,
            revive_queue=ORDER_REVIVE_QUEUE,
            retry_flag=retry_flag(wanted.topic),
            broker_name=broker,
            queue_id=light_topics.QUEUE_ID,
            queue_offset=offset,
        )
        counted = record._replace(reconsume_times=count)
        yield Found(counted, f"{handle.encode()} {record.physical_offset}", name)
