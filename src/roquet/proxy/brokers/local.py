"""Local mode: the broker of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from roquet.broker.api.transactions import FindHalfRequest
from roquet.model.attributes import MESSAGE_TYPE
from roquet.protocol.pop.handle import ReceiptHandle, retry_flag
from roquet.proxy.brokers.api import HALF_INDEXED_S, Found, HalfPlace, Place, Topic
from roquet.proxy.brokers.lights import LocalLights
from roquet.proxy.brokers.queues import LocalQueues
from roquet.proxy.rules.codes import Code, Rejected
from roquet.store.records import read_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.acl.rights import RequestGuard
    from roquet.base.clock import Clock
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.pop import (
        ChangeInvisibleRequest,
        PopAckRequest,
        PopRequest,
        PopResult,
    )
    from roquet.broker.api.send import (
        RecallRequest,
        SendBackRequest,
        SendBatchRequest,
        SendRequest,
        SendResult,
    )
    from roquet.broker.api.transactions import EndTransactionRequest
    from roquet.broker.clients.registry import Client
    from roquet.broker.operations.local import LocalBroker
    from roquet.broker.pop.receive.polls import Waiting
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.subscription import SubscriptionData
    from roquet.protocol.bodies.clients import HeartbeatData
    from roquet.proxy.brokers.api import LightBrokers, Packed, QueueBrokers, Source
    from roquet.remoting.router import Peer
    from roquet.service.metrics import Metrics


class FastPops(Protocol):
    """Answers receives without a look at each message."""

    def pack(self, wanted: PopRequest, takes: SubscriptionData, attempts_max: int) -> Packed | None:
        """Return a whole answer; None when an operation has to look."""
        ...


class LocalBrokers:
    """One broker, by its operations."""

    def __init__(self, broker: LocalBroker, fast: FastPops | None = None) -> None:
        self._broker = broker
        self._fast = fast
        self._operations = broker.operations
        found = broker.light
        self._light = None if found is None else LocalLights(found, broker.identity.name)
        self._queues = LocalQueues(broker.operations)

    @property
    def name(self) -> str:
        """The name of the broker."""
        return self._broker.identity.name

    @property
    def clock(self) -> Clock:
        """What the time is."""
        return self._broker.clock

    @property
    def metrics(self) -> Metrics:
        """Where figures are counted."""
        return self._broker.metrics

    @property
    def guard(self) -> RequestGuard | None:
        """Knows whose signature is good; None where nobody needs an account."""
        return self._broker.guard

    @property
    def light(self) -> LightBrokers | None:
        """Who serves light topics; None where nobody does."""
        return self._light

    @property
    def queues(self) -> QueueBrokers:
        """Who serves single queues."""
        return self._queues

    async def topic(self, name: str, caller: Caller) -> Topic:
        """Return a topic."""
        found = self._operations.topic(name, caller)
        place = Place(self.name, found.read_queues, found.write_queues, found.perm)
        return Topic(name, found.attributes.get(MESSAGE_TYPE) or "NORMAL", (place,))

    async def group(self, name: str, caller: Caller) -> SubscriptionGroupConfig:
        """Return a group, which may be made by that."""
        return await self._operations.group(name, caller)

    async def has(self, broker: str, topic: str) -> bool:
        """Tell whether a broker is this one."""
        del topic
        return broker == self.name

    async def send(self, broker: str, request: SendRequest, caller: Caller) -> SendResult:
        """Store one message."""
        del broker
        return await self._operations.send(request, caller)

    async def send_batch(
        self, broker: str, request: SendBatchRequest, caller: Caller
    ) -> SendResult:
        """Store several messages for one queue."""
        del broker
        return await self._operations.send_batch(request, caller)

    async def recall(self, request: RecallRequest, caller: Caller) -> str:
        """Take a message back that is not due yet; return its id."""
        return await self._operations.recall(request, caller)

    async def end_transaction(
        self, broker: str, request: EndTransactionRequest, caller: Caller
    ) -> None:
        """Commit a half message or roll it back."""
        if broker not in {"", self.name}:
            raise Rejected(Code.INTERNAL_SERVER_ERROR, "cannot found transaction data")
        await self._operations.end_transaction(request, caller)

    async def find_half(self, topic: str, transaction: str, caller: Caller) -> HalfPlace | None:
        """Return where the half message of a transaction is that another proxy has begun."""
        request = FindHalfRequest(topic=topic, message_id=transaction)
        for pause_s in HALF_INDEXED_S:
            await self.clock.sleep(pause_s)
            found = self._operations.find_half(request, caller)
            if found is not None:
                return HalfPlace(found.physical_offset, found.half_offset, self.name)
        return None

    def source(self, broker: str, wanted: PopRequest) -> Source:
        """Return what gives messages of a topic."""
        del broker
        return _TopicSource(self._broker, wanted, self._fast)

    async def ack(self, broker: str, request: PopAckRequest, caller: Caller) -> None:
        """End the flight of a message."""
        del broker
        await self._operations.ack(request, caller)

    async def change_invisible(
        self, broker: str, request: ChangeInvisibleRequest, caller: Caller
    ) -> ReceiptHandle:
        """Have a message come back at another time; return its handle from now on."""
        del broker
        return (await self._operations.change_invisible(request, caller)).handle

    async def send_back(
        self, broker: str, topic: str, request: SendBackRequest, caller: Caller
    ) -> None:
        """Have a message of a topic delivered again later, or put among the dead letters."""
        del broker, topic
        await self._operations.send_back(request, caller)

    async def register(self, data: HeartbeatData, client: Client, caller: Caller) -> None:
        """Put a client into its groups, or keep it there."""
        await self._broker.clients.heartbeat(data, client, caller)

    def left(self, peer: Peer) -> None:
        """Take a client out of its groups."""
        self._broker.waits.drop(peer)
        self._broker.clients.left(peer.key)


class _TopicSource:
    """The queues of a topic."""

    def __init__(self, broker: LocalBroker, wanted: PopRequest, fast: FastPops | None) -> None:
        self._broker = broker
        self._fast = fast
        self.wanted = wanted

    def pack(self, takes: SubscriptionData, attempts_max: int) -> Packed | None:
        """Return a whole answer; None when `take` has to look."""
        return None if self._fast is None else self._fast.pack(self.wanted, takes, attempts_max)

    async def take(self, caller: Caller, now_ms: int) -> list[Found]:
        """Return what is there. Raises Refusal."""
        # One that has waited is as good as new: how long it may wait is judged here alone.
        wanted = msgspec.structs.replace(self.wanted, born_ms=now_ms)
        result = await self._broker.operations.pop(wanted, caller)
        if result.messages and result.rest > 0:
            self._broker.waits.wake(self.wanted)
        return list(_in_flight(result, wanted, self._broker.identity.name))

    async def wait(self, peer: Peer) -> Waiting:
        """Return HELD when it is time to look again."""
        return await self._broker.waits.wait(self.wanted, peer)


def _in_flight(result: PopResult, wanted: PopRequest, broker_name: str) -> Iterator[Found]:
    """Yield each message of a pop with its handle."""
    records = iter(read_records(result.records, check_crc=False))
    for taken in result.taken:
        for offset, record in zip(taken.offsets, records, strict=False):
            handle = ReceiptHandle(
                start_offset=taken.start_offset,
                pop_time_ms=result.pop_time_ms,
                invisible_ms=wanted.invisible_ms,
                revive_queue=result.revive_queue,
                retry_flag=retry_flag(taken.topic),
                broker_name=broker_name,
                queue_id=taken.queue_id,
                queue_offset=offset,
            )
            yield Found(record, f"{handle.encode()} {record.physical_offset}")
