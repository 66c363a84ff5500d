"""END_TRANSACTION 37, and RESUME_CHECK_HALF_MESSAGE 323 (spec: broker (b), wire §9.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

from roquet.base.errors import Refused
from roquet.broker.transactions import drafts
from roquet.broker.transactions.verdict import immunity_ms
from roquet.protocol import message_id, names, sys_flag
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.admin import ResumeCheckHalfMessageRequest
from roquet.protocol.headers.message import EndTransactionRequest
from roquet.remoting.router import Request, Route
from roquet.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.base.clock import Clock
    from roquet.broker.proof import ProvenMessages
    from roquet.broker.services.topic_checks import SendChecks
    from roquet.broker.state import BrokerState
    from roquet.broker.traffic import Traffic
    from roquet.broker.transactions.members import ProducerMembers
    from roquet.broker.transactions.seams import TransactionStore
    from roquet.broker.transactions.service import Transactions
    from roquet.broker.transactions.verdict import TransactionRules
    from roquet.store.records import Record
    from roquet.store.results import Draft, PutResult

LANE = "end_transaction"

_NOT_FOUND = "Find prepared transaction message failed"
_NOT_PUT_BACK = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."


class Rules(Protocol):
    """Gives the settings of the moment."""

    def __call__(self) -> TransactionRules:
        """Return them."""
        ...


class HalfDoor:
    """Lets half messages in, or refuses them."""

    def __init__(self, rules: Rules, checks: SendChecks, transactions: Transactions) -> None:
        self._rules = rules
        self._checks = checks
        self._transactions = transactions

    def divert(self, draft: Draft, producer_group: str) -> None:
        """Send a draft to the half queue. Raises Refused(16) when half messages are not taken."""
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


class EndTransaction:
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
    ) -> None:
        self._messages = messages
        self._members = members
        self._transactions = transactions
        self._body_max = body_max
        self._store = store
        self._traffic = traffic
        self._rules = rules
        self._state = state
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the codes served here."""
        return [
            Route((RequestCode.END_TRANSACTION,), self.end, LANE),
            Route((RequestCode.RESUME_CHECK_HALF_MESSAGE,), self.resume, "admin"),
        ]

    async def end(self, request: Request) -> Command | None:
        """Commit (8) or roll back (12); 0 is a producer that does not know, and gets no answer."""
        command = request.command
        header = EndTransactionRequest.decode(command.ext)
        if self._state.is_slave:
            return reply_to(command, ResponseCode.SLAVE_NOT_AVAILABLE)
        if header.commit_or_rollback == sys_flag.TRANSACTION_NONE:
            return None
        if header.commit_or_rollback not in (
            sys_flag.TRANSACTION_COMMIT,
            sys_flag.TRANSACTION_ROLLBACK,
        ):
            raise Refused(ResponseCode.SYSTEM_ERROR, "commitOrRollback field wrong")
        record = await self._half(header.commit_log_offset)
        properties = props.read(record.properties)
        if self._is_late(header, record, properties):
            # A check is the only one to be believed by now.
            return reply_to(command, ResponseCode.ILLEGAL_OPERATION)
        _compare(header, record, properties)
        real_topic = properties.get(props.REAL_TOPIC, "")
        self._members.check_end(request, header.producer_group, record, real_topic)
        if header.commit_or_rollback == sys_flag.TRANSACTION_ROLLBACK:
            await self._transactions.settle(record, None, real_topic)
            if not command.is_one_way:
                # Whoever waits for the answer is not asked again, not even after a crash.
                await self._transactions.ops.write()
            return reply_to(command)
        draft = drafts.commit_draft(record, properties)
        if draft is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        topic, queue_id = draft.topic, draft.queue_id
        result = await self._transactions.settle(record, draft, real_topic)
        if result is not None:
            if not result.status.is_stored:
                _refuse(result, self._body_max)
            self._traffic.stored(topic, queue_id, result)
        return reply_to(command)

    def follow_size(self, body_max: int) -> None:
        """Name another longest body in refusals from now on."""
        self._body_max = body_max

    async def resume(self, request: Request) -> Command:
        """Have a half message asked about again that was put aside, or is asked about too often."""
        if self._state.is_slave:
            return reply_to(request.command, ResponseCode.SLAVE_NOT_AVAILABLE)
        header = ResumeCheckHalfMessageRequest.decode(request.command.ext)
        try:
            _, offset = message_id.parse_offset_id(header.msg_id or "")
        except ValueError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        await self._transactions.wait_loaded()
        record = await self._messages.record(offset)
        if record is None or record.topic not in (
            drafts.HALF_TOPIC,
            names.TRANS_CHECK_MAX_TIME_TOPIC,
        ):
            raise Refused(ResponseCode.SYSTEM_ERROR, _NOT_PUT_BACK)
        is_half = record.topic == drafts.HALF_TOPIC
        if is_half and self._transactions.book.living(record.queue_offset) != record.queue_offset:
            raise Refused(ResponseCode.SYSTEM_ERROR, _NOT_PUT_BACK)
        result = await self._store.put(drafts.checked_copy(record, 0), wait=True)
        if not result.status.is_stored:
            raise Refused(ResponseCode.SYSTEM_ERROR, _NOT_PUT_BACK)
        if is_half:
            # The copy counts from now on; were both open, it could be committed twice.
            self._transactions.moved(record.queue_offset, result.queue_offset)
        else:
            topic = props.read(record.properties).get(props.REAL_TOPIC, "")
            self._transactions.revived(topic, result.queue_offset)
        return reply_to(request.command)

    async def _half(self, offset: int) -> Record:
        record = await self._messages.record(offset)
        if record is None or record.topic != drafts.HALF_TOPIC:
            raise Refused(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        return record

    def _is_late(
        self, header: EndTransactionRequest, record: Record, properties: Mapping[str, str]
    ) -> bool:
        """Tell whether a producer speaks up unasked after the time that it had asked for."""
        text = properties.get(props.CHECK_IMMUNITY_TIME_IN_SECONDS)
        if header.from_transaction_check or not text:
            return False
        age_ms = self._clock.now_ms() - record.born_timestamp
        return age_ms > immunity_ms(text, self._rules().timeout_ms)


def _compare(header: EndTransactionRequest, record: Record, properties: Mapping[str, str]) -> None:
    """Check that a request means the half message that it names; texts are Java's."""
    if header.producer_group != properties.get(props.PRODUCER_GROUP):
        raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if header.tran_state_table_offset != record.queue_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    if header.commit_log_offset != record.physical_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")


_ILLEGAL = (
    "The message is illegal, maybe msg body or properties length not matched. msg body length limit"
    " {size}B, msg properties length limit 32KB."
)
_OUTCOMES = {
    PutStatus.CREATE_MAPPED_FILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "Create mapped file failed.",
    ),
    PutStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, _ILLEGAL),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (ResponseCode.MESSAGE_ILLEGAL, _ILLEGAL),
    PutStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "Service not available now.",
    ),
    PutStatus.OS_PAGE_CACHE_BUSY: (
        ResponseCode.SYSTEM_ERROR,
        "OS page cache busy, please try another machine",
    ),
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, "timer message illegal"),
    PutStatus.WHEEL_TIMER_NOT_ENABLE: (
        ResponseCode.SYSTEM_ERROR,
        "accurate timer message is not enabled, timerWheelEnable is false",
    ),
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: (
        ResponseCode.SYSTEM_ERROR,
        "in-sync replicas not enough",
    ),
    PutStatus.UNKNOWN_ERROR: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
}
_OTHER = (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR DEFAULT")


def _refuse(result: PutResult, body_max: int) -> NoReturn:
    code, remark = _OUTCOMES.get(result.status, _OTHER)
    remark = remark.format(size=body_max)
    raise Refused(code, f"{remark} ({result.why})" if result.why else remark)
