"""END_TRANSACTION 37, RESUME_CHECK_HALF_MESSAGE 323, and the questions of the broker (39)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Refusal
from roquet.broker.api.transactions import EndTransactionRequest, ResumeChecksRequest, Verdict
from roquet.broker.remoting.refusals import refusal_reply
from roquet.broker.transactions import drafts
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import FLAG_ONE_WAY, Command, reply_to
from roquet.protocol.headers import message as headers
from roquet.protocol.headers.admin import ResumeCheckHalfMessageRequest
from roquet.protocol.headers.client import CheckTransactionStateRequest
from roquet.protocol.messages import sys_flag
from roquet.protocol.messages.message_id import offset_id
from roquet.protocol.messages.records import encode_record
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.broker.clients.registry import Client
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.transactions import TransactionEnds
    from roquet.store.records import Record

LANE = "end_transaction"

_VERDICTS = {
    sys_flag.TRANSACTION_NONE: Verdict.UNKNOWN,
    sys_flag.TRANSACTION_COMMIT: Verdict.COMMIT,
    sys_flag.TRANSACTION_ROLLBACK: Verdict.ROLLBACK,
}


class ProducerQuestions:
    """Asks producers about their half messages: CHECK_TRANSACTION_STATE 39."""

    def __init__(self, broker_name: str) -> None:
        self._broker_name = broker_name

    def ask(self, producer: Client, half: Record, properties: dict[str, str]) -> None:
        """Ask a producer; its answer comes as the end of the transaction."""
        unique_key = properties.get(props.UNIQ_KEY)
        header = CheckTransactionStateRequest(
            topic=drafts.HALF_TOPIC,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=unique_key,
            transaction_id=unique_key,
            offset_msg_id=offset_id(half.store_host, half.physical_offset),
            broker_name=self._broker_name,
        )
        topic, queue_id = drafts.real_place(properties) or (drafts.HALF_TOPIC, drafts.QUEUE_ID)
        if len(topic) > names.TOPIC_LENGTH_MAX:
            topic = drafts.HALF_TOPIC
        question = Command(
            RequestCode.CHECK_TRANSACTION_STATE,
            ext=header.encode(),
            body=encode_record(half._replace(topic=topic, queue_id=queue_id)),
            flag=FLAG_ONE_WAY,
            language="JAVA",
        )
        producer.peer.send_one_way(question)


class TransactionAdapter:
    """Commits and rolls back, as producers say."""

    def __init__(self, ends: TransactionEnds, callers: Callers) -> None:
        self._ends = ends
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes served here."""
        return [
            Route((RequestCode.END_TRANSACTION,), self.end, LANE),
            Route((RequestCode.RESUME_CHECK_HALF_MESSAGE,), self.resume_checks, "admin"),
        ]

    async def end(self, request: Request) -> Command | None:
        """Answer 37; a producer that does not know what to do gets no answer."""
        command = request.command
        header = headers.EndTransactionRequest.decode(command.ext)
        verdict = _VERDICTS.get(header.commit_or_rollback)
        wanted = EndTransactionRequest(
            producer_group=header.producer_group,
            physical_offset=header.commit_log_offset,
            half_offset=header.tran_state_table_offset,
            verdict=verdict,
            is_answer=bool(header.from_transaction_check),
            is_awaited=not command.is_one_way,
        )
        try:
            await self._ends.end(wanted, self._callers.of(request))
        except Refusal as refusal:
            return refusal_reply(command, refusal)
        return None if verdict is Verdict.UNKNOWN else reply_to(command)

    async def resume_checks(self, request: Request) -> Command:
        """Answer 323."""
        command = request.command
        try:
            # A slave says so whatever the request holds.
            self._ends.check_master()
            header = ResumeCheckHalfMessageRequest.decode(command.ext)
            wanted = ResumeChecksRequest(message_id=header.msg_id or "")
            await self._ends.resume_checks(wanted, self._callers.of(request))
        except Refusal as refusal:
            return refusal_reply(command, refusal)
        return reply_to(command)
