"""END_TRANSACTION 37 and RESUME_CHECK_HALF_MESSAGE 323: the adapter of transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Refusal
from roquet.broker.api.transactions import EndTransactionRequest, ResumeChecksRequest, Verdict
from roquet.broker.remoting.refusals import refusal_reply
from roquet.protocol import sys_flag
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers import message as headers
from roquet.protocol.headers.admin import ResumeCheckHalfMessageRequest
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.transactions import TransactionEnds

LANE = "end_transaction"

_VERDICTS = {
    sys_flag.TRANSACTION_NONE: Verdict.UNKNOWN,
    sys_flag.TRANSACTION_COMMIT: Verdict.COMMIT,
    sys_flag.TRANSACTION_ROLLBACK: Verdict.ROLLBACK,
}


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
