"""Where a receive takes its messages from: the queues of a topic, or lite topics of a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from roquet.protocol.pop.handle import ReceiptHandle, retry_flag
from roquet.proxy.services.lights import in_flight
from roquet.proxy.services.settle import light_of
from roquet.store.records import read_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.broker.api.caller import Caller
    from roquet.broker.api.pop import LightPopRequest, PopRequest, PopResult
    from roquet.broker.operations.local import LocalBroker
    from roquet.broker.pop.receive.polls import Waiting
    from roquet.remoting.router import Peer
    from roquet.store.records import Record


class Found(NamedTuple):
    """A message that was taken."""

    record: Record
    handle: str
    light: str = ""
    """The lite topic that it is of, if any."""


class Source(Protocol):
    """Gives messages to one receive."""

    @property
    def wanted(self) -> PopRequest | LightPopRequest:
        """What the receive asks for."""
        ...

    async def take(self, caller: Caller, now_ms: int) -> list[Found]:
        """Return what is there. Raises Refusal."""
        ...

    async def wait(self, peer: Peer) -> Waiting:
        """Return HELD when it is time to look again."""
        ...


class TopicSource:
    """The queues of a topic."""

    def __init__(self, broker: LocalBroker, wanted: PopRequest) -> None:
        self._broker = broker
        self.wanted = wanted

    async def take(self, caller: Caller, now_ms: int) -> list[Found]:
        """Return what is there. Raises Refusal."""
        # One that has waited is as good as new: how long it may wait is judged here alone.
        wanted = msgspec.structs.replace(self.wanted, born_ms=now_ms)
        result = await self._broker.operations.pop(wanted, caller)
        if result.messages and result.rest > 0:
            self._broker.waits.wake(self.wanted)
        name = self._broker.identity.name
        return [Found(*each) for each in _in_flight(result, wanted, name)]

    async def wait(self, peer: Peer) -> Waiting:
        """Return HELD when it is time to look again."""
        return await self._broker.waits.wait(self.wanted, peer)


class LightSource:
    """The lite topics that a client subscribes to."""

    def __init__(self, broker: LocalBroker, wanted: LightPopRequest) -> None:
        self._broker = broker
        self.wanted = wanted

    async def take(self, caller: Caller, now_ms: int) -> list[Found]:
        """Return what is there. Raises Refusal."""
        wanted = msgspec.structs.replace(self.wanted, born_ms=now_ms)
        result = await light_of(self._broker).pop(wanted, caller)
        return [Found(*each) for each in in_flight(result, wanted, self._broker.identity.name)]

    async def wait(self, peer: Peer) -> Waiting:
        """Return HELD when it is time to look again."""
        return await light_of(self._broker).waits.wait(self.wanted, peer)


def _in_flight(
    result: PopResult, wanted: PopRequest, broker_name: str
) -> Iterator[tuple[Record, str]]:
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
            yield record, f"{handle.encode()} {record.physical_offset}"
