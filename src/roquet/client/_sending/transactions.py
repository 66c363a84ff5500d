"""Transactions: a message that consumers see once the producer's own work is done.

The broker keeps the message aside. `commit` lets consumers see it, `rollback` drops it; when it
hears neither, the broker asks, and the producer's `check` says how the work ended.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
from typing import TYPE_CHECKING, Self

from roquet.base.errors import Refused, RoquetError, UsageError
from roquet.base.overriding import override
from roquet.client._cluster.requests import request
from roquet.client._sending.choosing import choose_by
from roquet.client._sending.encode import encode_one
from roquet.client._sending.producer import Producer
from roquet.client._sending.receipt import CODE_OF_STATUS, SendReceipt
from roquet.protocol import properties
from roquet.protocol.codes import RequestCode
from roquet.protocol.headers.message import EndTransactionRequest
from roquet.protocol.messages import message_id, sys_flag
from roquet.protocol.properties import read as read_properties
from roquet.protocol.properties import write as properties_text

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from roquet.client._cluster.session import Session
    from roquet.client._options import ProducerOptions
    from roquet.client._replies import Replies
    from roquet.client._sending.encode import Encoded
    from roquet.client.codecs.base import Codec
    from roquet.model.message import Message, StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.protocol.command import Command
    from roquet.protocol.headers.client import CheckTransactionStateRequest
    from roquet.protocol.messages.message_id import UniqueIds

    Check = Callable[[StoredMessage], Awaitable["TransactionState"]]

log = logging.getLogger(__name__)


class TransactionState(enum.Enum):
    """How the producer's own work ended."""

    COMMIT = sys_flag.TRANSACTION_COMMIT
    ROLLBACK = sys_flag.TRANSACTION_ROLLBACK
    UNKNOWN = sys_flag.TRANSACTION_NONE
    """Not known yet: the broker asks again later."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Half:
    """Which half message an end is about."""

    topic: str
    message_id: str
    log_offset: int
    half_offset: int
    broker: str
    """Which has it; empty where only its address is known, that of a broker which asked."""
    own: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Its properties, for the trace; none where only its place is known."""


class Transaction:
    """One message that is not decided yet. Leaving its `async with` block commits it.

    An exception in the block decides nothing: the work may have been done before it, so the
    producer's `check` is asked. Say `rollback` where it is known that the work was not done.
    """

    def __init__(
        self, receipt: SendReceipt, end: Callable[[TransactionState], Awaitable[None]]
    ) -> None:
        """Take what `TransactionProducer.begin` gives."""
        self.receipt = receipt
        """Where the half message is; consumers will see another queue offset."""
        self.state: TransactionState | None = None
        """What was told to the broker; None while nothing was."""
        self._end = end

    async def __aenter__(self) -> Self:
        """Begin the work."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit, unless it is decided or an exception leaves it to the check."""
        if kind is None and self.state is None:
            await self.commit()

    async def commit(self) -> None:
        """Let consumers see the message.

        Raises Refused, Unreachable and OutcomeUnknown: then the broker will ask later.
        """
        await self._decide(TransactionState.COMMIT)

    async def rollback(self) -> None:
        """Drop the message. Raises as `commit` does."""
        await self._decide(TransactionState.ROLLBACK)

    def leave_open(self) -> None:
        """Say nothing now: the broker will ask `check`."""
        self.state = TransactionState.UNKNOWN

    async def _decide(self, state: TransactionState) -> None:
        if self.state not in (None, TransactionState.UNKNOWN, state):
            raise UsageError(f"the transaction is decided: {self.state}")
        await self._end(state)
        self.state = state


class TransactionProducer(Producer):
    """A producer whose messages may depend on work of its own."""

    def __init__(
        self,
        *,
        session: Session,
        group: str,
        options: ProducerOptions,
        ids: UniqueIds,
        rng: random.Random,
        replies: Replies,
        check: Check,
    ) -> None:
        """Take what `MQ.transaction_producer` gives."""
        super().__init__(
            session=session, group=group, options=options, ids=ids, rng=rng, replies=replies
        )
        self._check = check

    @override
    async def start(self) -> None:
        """Join the producer group, and answer the brokers' checks for it. Raises UsageError."""
        self._session.members.add_checker(self.group, self)
        await super().start()

    @override
    async def close(self) -> None:
        """Leave the group; checks then go to its other members."""
        self._session.members.remove_checker(self.group, self)
        await super().close()

    async def begin(
        self,
        topic: str | Message,
        body: object = b"",
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        codec: Codec | None = None,
        order_key: str | None = None,
        queue: MessageQueue | None = None,
        check_after_s: int | None = None,
        timeout_s: float | None = None,
    ) -> Transaction:
        """Send a message that nobody sees before its commit.

        `check_after_s` asks the broker for more time before it asks how the work ended. Raises as
        `send` does; a message that the broker did not keep as it promised is rolled back and
        refused.
        """
        message = self.composed(topic, body, tag, keys, user_properties=properties, codec=codec)
        if message.delay_level or not _TIMERS.isdisjoint(message.properties):
            raise UsageError("a transaction has no delayed messages")
        unique = self._next_id()
        system = {
            _PREPARED: "true",
            _GROUP: self.group,
            _TRANSACTION_ID: unique,
        }
        if check_after_s is not None:
            system[_IMMUNITY] = str(check_after_s)
        encoded = encode_one(message, unique, self._options, system)
        encoded = dataclasses.replace(
            encoded, sys_flag=encoded.sys_flag | sys_flag.TRANSACTION_PREPARED
        )
        chooser = choose_by(message, order_key, queue, None)
        (receipt,) = await self._deliver(encoded, chooser, timeout_s)
        _, log_offset = message_id.parse_offset_id(receipt.offset_id)
        own = {} if self._session.tracer is None else read_properties(encoded.properties)
        broker = receipt.queue.broker_name
        half = _Half(encoded.topic, unique, log_offset, receipt.queue_offset, broker, own)

        async def end(state: TransactionState) -> None:
            address = self._session.master(broker)
            await self._session.ask(address, self._end_command(state, half))
            self._trace(state, half, address)

        if not receipt.is_durable:
            await end(TransactionState.ROLLBACK)
            raise Refused(CODE_OF_STATUS[receipt.status], f"half message: {receipt.status}")
        return Transaction(receipt, end)

    async def send_half(
        self, encoded: Encoded, *, queue: MessageQueue, timeout_s: float | None = None
    ) -> SendReceipt:
        """Send a message that is encoded already, which nobody sees before its `end`.

        Its `offset_id` and `queue_offset` are what `end` needs. Raises as `begin` does.
        """
        (key,) = encoded.message_ids
        system = {_PREPARED: "true", _GROUP: self.group, _TRANSACTION_ID: key}
        half = dataclasses.replace(
            encoded,
            properties=encoded.properties + properties_text(system),
            sys_flag=encoded.sys_flag | sys_flag.TRANSACTION_PREPARED,
        )
        (receipt,) = await self.send_encoded(half, queue=queue, timeout_s=timeout_s)
        if not receipt.is_durable:
            raise Refused(CODE_OF_STATUS[receipt.status], f"half message: {receipt.status}")
        return receipt

    async def end(  # noqa: PLR0917  (what names a half message on the wire)
        self,
        topic: str,
        broker_name: str,
        message_id: str,
        log_offset: int,
        half_offset: int,
        state: TransactionState,
    ) -> None:
        """Commit or roll back a half message that any member of the group sent.

        A commit that is made twice makes two messages. Raises Refused, Unreachable, OutcomeUnknown.
        """
        await self.queues(topic)
        # Brokers take an end from a member of the group alone.
        await self._session.beat_new()
        half = _Half(topic, message_id, log_offset, half_offset, broker_name)
        address = self._session.master(broker_name)
        await self._session.ask(address, self._end_command(state, half))
        self._trace(state, half, address)

    async def asked(
        self, address: str, header: CheckTransactionStateRequest, message: StoredMessage
    ) -> None:
        """Tell a broker how the work for a message ended."""
        try:
            state = await self._check(self._session.namespace.shown(message))
        except Exception:
            log.exception("the check of %s failed: the broker will ask again", message.unique_key)
            return
        if state is TransactionState.UNKNOWN:
            return
        half = _Half(
            message.topic,
            header.msg_id or message.msg_id,
            header.commit_log_offset,
            header.tran_state_table_offset,
            header.broker_name or "",
            message.properties,
        )
        try:
            await self._session.tell(address, self._end_command(state, half, checked=True))
            unique = message.unique_key or half.message_id
            seen = dataclasses.replace(half, message_id=unique)
            self._trace(state, seen, address, checked=True)
        except RoquetError as error:
            log.warning("the end of %s was not told: %s", message.unique_key, error)

    def _trace(
        self, state: TransactionState, half: _Half, address: str, *, checked: bool = False
    ) -> None:
        if self._session.tracer is not None:
            self._session.tracer.ended(
                self.group,
                half.topic,
                half.message_id,
                half.own,
                address,
                f"{state.name}_MESSAGE",
                from_check=checked,
            )

    def _end_command(
        self, state: TransactionState, half: _Half, *, checked: bool = False
    ) -> Command:
        header = EndTransactionRequest(
            topic=half.topic,
            producer_group=self.group,
            tran_state_table_offset=half.half_offset,
            commit_log_offset=half.log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=checked,
            msg_id=half.message_id,
            transaction_id=half.message_id,
        )
        return request(RequestCode.END_TRANSACTION, header, broker=half.broker)


_TIMERS = properties.TIMER_DELAYS
_PREPARED = properties.TRANSACTION_PREPARED
_GROUP = properties.PRODUCER_GROUP
_TRANSACTION_ID = properties.TRANSACTION_ID
_IMMUNITY = properties.CHECK_IMMUNITY_TIME_IN_SECONDS
