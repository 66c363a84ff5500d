"""The ends of transactions, and the door to the half queue (spec: broker (b), wire §9.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.transactions import Verdict
from roquet.broker.services.access import Access
from roquet.broker.transactions import drafts
from roquet.broker.transactions.verdict import immunity_ms
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.messages import message_id
from roquet.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.base.clock import Clock
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.transactions import EndTransactionRequest, ResumeChecksRequest
    from roquet.broker.messages.proof import ProvenMessages
    from roquet.broker.metrics.traffic import Traffic
    from roquet.broker.services.topic_checks import SendChecks
    from roquet.broker.state import BrokerState
    from roquet.broker.transactions.members import ProducerMembers
    from roquet.broker.transactions.seams import TransactionStore
    from roquet.broker.transactions.service import Transactions
    from roquet.broker.transactions.verdict import TransactionConfig
    from roquet.store.records import Record
    from roquet.store.results import Draft, PutResult

_NOT_FOUND = "Find prepared transaction message failed"
_NOT_PUT_BACK = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."


class Rules(Protocol):
    """Gives the settings of the moment."""

    def __call__(self) -> TransactionConfig:
        """Return them."""
        ...


class HalfDoor:
    """Lets half messages in, or refuses them."""

    def __init__(self, rules: Rules, checks: SendChecks, transactions: Transactions) -> None:
        self._rules = rules
        self._checks = checks
        self._transactions = transactions

    def divert(self, draft: Draft, producer_group: str) -> None:
        """Send a draft to the half queue. Raises Refusal when half messages are not taken."""
        if self.place is None:
            self._checks.refuse_sending("sending transaction message")
        drafts.to_half(draft, producer_group)

    @property
    def place(self) -> str | None:
        """Where half messages wait; None when they are not taken."""
        return None if self._rules().reject else drafts.HALF_TOPIC

    def opened(self, topic: str, count: int = 1) -> None:
        """Note that half messages for a topic have been stored."""
        self._transactions.opened(topic, count)


class TransactionEnds:
    """Commits and rolls back, as producers say."""

    def __init__(
        self,
        transactions: Transactions,
        store: TransactionStore,
        traffic: Traffic,
        *,
        rules: Rules,
        state: BrokerState,
        clock: Clock,
        body_max: int,
        messages: ProvenMessages,
        members: ProducerMembers,
        access: Access | None = None,
    ) -> None:
        self._messages = messages
        self._members = members
        self._access = access or Access()
        self._transactions = transactions
        self._body_max = body_max
        self._store = store
        self._traffic = traffic
        self._rules = rules
        self._state = state
        self._clock = clock

    def follow_size(self, body_max: int) -> None:
        """Name another longest body in refusals from now on."""
        self._body_max = body_max

    async def end(self, request: EndTransactionRequest, caller: Caller) -> None:
        """Do what a producer has decided. Raises Refusal when that is not done."""
        self.check_master()
        if request.verdict is Verdict.UNKNOWN:
            return
        if request.verdict is None:
            raise Refusal(Reason.FAILED, "commitOrRollback field wrong")
        record = await self._half(request.physical_offset)
        properties = props.read(record.properties)
        if self._is_late(request, record, properties):
            # A check is the only one to be believed by now.
            raise Refusal(Reason.ILLEGAL_OPERATION, "")
        _compare(request, record, properties)
        real_topic = properties.get(props.REAL_TOPIC, "")
        self._access.require_write(caller, real_topic)
        self._members.check_end(caller, request.producer_group, record)
        if request.verdict is Verdict.ROLLBACK:
            await self._transactions.settle(record, None, real_topic)
            if request.is_awaited:
                # Whoever waits for the answer is not asked again, not even after a crash.
                await self._transactions.ops.write()
            return
        draft = drafts.commit_draft(record, properties)
        if draft is None:
            raise Refusal(Reason.FAILED, _NOT_FOUND)
        topic, queue_id = draft.topic, draft.queue_id
        result = await self._transactions.settle(record, draft, real_topic)
        if result is not None:
            if not result.status.is_stored:
                _refuse(result, self._body_max)
            self._traffic.stored(topic, queue_id, result)

    def check_master(self) -> None:
        """Raise Refusal(NOT_MASTER) on a slave."""
        if self._state.is_slave:
            raise Refusal(Reason.NOT_MASTER, "")

    async def resume_checks(self, request: ResumeChecksRequest, caller: Caller) -> None:
        """Have a half message asked about again. Raises Refusal when that cannot be."""
        del caller
        self.check_master()
        try:
            _, offset = message_id.parse_offset_id(request.message_id)
        except ValueError as error:
            raise Refusal(Reason.FAILED, str(error)) from error
        await self._transactions.wait_loaded()
        record = await self._messages.record(offset)
        if record is None or record.topic not in (
            drafts.HALF_TOPIC,
            names.TRANS_CHECK_MAX_TIME_TOPIC,
        ):
            raise Refusal(Reason.FAILED, _NOT_PUT_BACK)
        is_half = record.topic == drafts.HALF_TOPIC
        if is_half and self._transactions.book.living(record.queue_offset) != record.queue_offset:
            raise Refusal(Reason.FAILED, _NOT_PUT_BACK)
        result = await self._store.put(drafts.checked_copy(record, 0), wait=True)
        if not result.status.is_stored:
            raise Refusal(Reason.FAILED, _NOT_PUT_BACK)
        if is_half:
            # The copy counts from now on; were both open, it could be committed twice.
            self._transactions.moved(record.queue_offset, result.queue_offset)
        else:
            topic = props.read(record.properties).get(props.REAL_TOPIC, "")
            self._transactions.revived(topic, result.queue_offset)

    async def _half(self, offset: int) -> Record:
        record = await self._messages.record(offset)
        if record is None or record.topic != drafts.HALF_TOPIC:
            raise Refusal(Reason.FAILED, _NOT_FOUND)
        return record

    def _is_late(
        self, request: EndTransactionRequest, record: Record, properties: Mapping[str, str]
    ) -> bool:
        """Tell whether a producer decides unasked after the time that it had asked for."""
        text = properties.get(props.CHECK_IMMUNITY_TIME_IN_SECONDS)
        if request.is_answer or not text:
            return False
        age_ms = self._clock.now_ms() - record.born_timestamp
        return age_ms > immunity_ms(text, self._rules().timeout_ms)


def _compare(request: EndTransactionRequest, record: Record, properties: Mapping[str, str]) -> None:
    """Check that a request means the half message at its physical offset; texts are Java's."""
    if request.producer_group != properties.get(props.PRODUCER_GROUP):
        raise Refusal(Reason.FAILED, "The producer group wrong")
    if request.half_offset != record.queue_offset:
        raise Refusal(Reason.FAILED, "The transaction state table offset wrong")


_ILLEGAL = (
    "The message is illegal, maybe msg body or properties length not matched. msg body length limit"
    " {size}B, msg properties length limit 32KB."
)
_OUTCOMES = {
    PutStatus.CREATE_MAPPED_FILE_FAILED: (
        Reason.FAILED,
        "Create mapped file failed.",
    ),
    PutStatus.MESSAGE_ILLEGAL: (Reason.ILLEGAL_MESSAGE, _ILLEGAL),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (Reason.ILLEGAL_MESSAGE, _ILLEGAL),
    PutStatus.SERVICE_NOT_AVAILABLE: (
        Reason.STORE_UNAVAILABLE,
        "Service not available now.",
    ),
    PutStatus.OS_PAGE_CACHE_BUSY: (
        Reason.FAILED,
        "OS page cache busy, please try another machine",
    ),
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: (Reason.ILLEGAL_MESSAGE, "timer message illegal"),
    PutStatus.WHEEL_TIMER_NOT_ENABLE: (
        Reason.FAILED,
        "accurate timer message is not enabled, timerWheelEnable is false",
    ),
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: (
        Reason.FAILED,
        "in-sync replicas not enough",
    ),
    PutStatus.UNKNOWN_ERROR: (Reason.FAILED, "UNKNOWN_ERROR"),
}
_OTHER = (Reason.FAILED, "UNKNOWN_ERROR DEFAULT")


def _refuse(result: PutResult, body_max: int) -> NoReturn:
    reason, text = _OUTCOMES.get(result.status, _OTHER)
    text = text.format(size=body_max)
    raise Refusal(reason, f"{text} ({result.why})" if result.why else text)
