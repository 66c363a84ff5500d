"""Appends in sequence: messages that a queue takes once, however often they are sent.

Only brokers of ours know how; others refuse with REQUEST_CODE_NOT_SUPPORTED before anything is
stored. The rules are in `roquet.protocol.messages.sequences`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.client._cluster.requests import request
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.headers.message import (
    GetSequencesRequest,
    GetSequencesResponse,
    SendInSequenceRequest,
    SendInSequenceResponse,
)
from roquet.remoting.refusals import refused

if TYPE_CHECKING:
    from roquet.client._cluster.session import Session
    from roquet.model.queue import MessageQueue
    from roquet.protocol.command import Command

_STORED = frozenset(
    {
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
"""Stored, but not as safe as the broker promises; SLAVE_NOT_AVAILABLE is a slave's answer, too."""


class Known(NamedTuple):
    """How far a producer has come in a queue."""

    epoch: int
    """-1 when the broker knows nothing of it."""
    next: int
    chain: bytes
    since_ms: int
    """Nothing that was stored from then on is forgotten; Unix milliseconds."""


class Appended(NamedTuple):
    """What a send in sequence led to."""

    next: int
    """Number that the queue takes next."""
    chain: bytes
    """In front of it."""
    added: int
    """Messages that were not there before."""


class SequencedPart(NamedTuple):
    """Messages that follow each other in a queue, and which they are."""

    topic: str
    body: bytes
    """Of a batch send."""
    producer: str
    epoch: int
    first: int
    chain: bytes
    """In front of the first."""


class Sequences:
    """Sends in sequence. Any number of tasks may share one, each with queues of its own."""

    def __init__(self, session: Session, group: str) -> None:
        """Take what `MQ.sequences` gives."""
        self._session = session
        self._group = group

    async def known(self, queue: MessageQueue, producer: str, timeout_s: float = 3.0) -> Known:
        """Return how far a producer has come in a queue.

        Raises Refused (REQUEST_CODE_NOT_SUPPORTED: not a broker of ours), Unreachable and
        OutcomeUnknown.
        """
        header = GetSequencesRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            producer=producer,
            broker_name=queue.broker_name,
        )
        answer = await self._ask(queue, request(RequestCode.GET_SEQUENCES, header), timeout_s)
        found = GetSequencesResponse.decode(answer.ext)
        return Known(found.epoch, found.next, bytes.fromhex(found.chain), found.since)

    async def send(
        self, part: SequencedPart, queue: MessageQueue, timeout_s: float = 3.0
    ) -> Appended:
        """Have messages stored that are not yet.

        Of messages far behind the queue's next number the broker does not know which they were: the
        caller compares the chain that it gets. It may be called again after any failure.

        Raises Refused (ILLEGAL_OPERATION: other messages have these numbers; what `known` raises),
        Unreachable, and OutcomeUnknown also for what is not yet as safe as the broker promises.
        """
        header = SendInSequenceRequest(
            producer_group=self._group,
            topic=part.topic,
            queue_id=queue.queue_id,
            born_timestamp=self._session.clock.now_ms(),
            producer=part.producer,
            epoch=part.epoch,
            first=part.first,
            chain=part.chain.hex(),
            broker_name=queue.broker_name,
        )
        command = request(RequestCode.SEND_IN_SEQUENCE, header, part.body)
        found = SendInSequenceResponse.decode((await self._ask(queue, command, timeout_s)).ext)
        return Appended(found.next, bytes.fromhex(found.chain), found.appended)

    async def _ask(self, queue: MessageQueue, command: Command, timeout_s: float) -> Command:
        await self._session.route(queue.topic, timeout_s)
        try:
            address = self._session.master(queue.broker_name)
            answer = await self._session.client.call(address, command, timeout_s)
        except (Unreachable, OutcomeUnknown):
            # It may be somewhere else by now.
            with contextlib.suppress(Refused, Unreachable, OutcomeUnknown):
                await self._session.refresh_route(queue.topic, timeout_s)
            raise
        if answer.code == ResponseCode.SUCCESS:
            return answer
        if answer.code in _STORED and answer.ext:
            raise OutcomeUnknown(f"stored, but not safe yet: {ResponseCode(answer.code).name}")
        raise refused(answer.code, answer.remark, answer.ext)
