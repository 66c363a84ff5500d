"""Requests to brokers of a cluster, and what their refusals mean to the front."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, RequestTooLong, Unreachable
from roquet.broker.api.refusal import Reason, Refusal
from roquet.client.fronts import CALL_S
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.proxy.cluster.silence import Silence
from roquet.proxy.rules.codes import Code, Rejected
from roquet.remoting.refusals import refused
from roquet.service.http.health import Health
from roquet.service.ratelog import RateLog, one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from roquet.client.fronts import FrontClient
    from roquet.protocol.header import Header

log = logging.getLogger(__name__)

BROKERS = "brokers"
"""What a proxy needs before it may be sent clients."""
_SUCCESS = frozenset({int(ResponseCode.SUCCESS)})
_REASONS = {
    int(ResponseCode.SYSTEM_BUSY): Reason.BUSY,
    int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED): Reason.UNSUPPORTED,
    int(ResponseCode.TOPIC_NOT_EXIST): Reason.UNKNOWN_TOPIC,
    int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST): Reason.UNKNOWN_GROUP,
    int(ResponseCode.SUBSCRIPTION_PARSE_FAILED): Reason.UNPARSABLE_FILTER,
    int(ResponseCode.MESSAGE_ILLEGAL): Reason.ILLEGAL_MESSAGE,
    int(ResponseCode.LMQ_QUOTA_EXCEEDED): Reason.LIGHT_QUEUES_FULL,
    int(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED): Reason.LIGHT_SUBSCRIPTIONS_FULL,
}
"""What the front tells apart; every other code of a broker is a failure."""
_CLOSED = re.compile(
    r"(the )?(broker|topic|consumer group|subscription group|recall failed)\b", re.IGNORECASE
)
"""How refusals begin that are about what is read or written, and not about who asks."""


class Calls:
    """Asks brokers by name; what they refuse is a Refusal, what they do not answer is Rejected.

    The log says who does not answer, and who does not let the proxy in.
    """

    def __init__(self, client: FrontClient, health: Health | None = None) -> None:
        """Ask by this client; `health` hears whether there are brokers."""
        self._client = client
        self.clock = client.clock
        self._health = health or Health()
        self._log = RateLog(log, client.clock)
        self._silence = Silence(client.clock)
        self._alone: str | None = None
        """Why no broker is known, as the log has it; empty when there are some."""

    async def ask(
        self,
        broker: str,
        code: RequestCode,
        header: Header | None,
        *,
        body: bytes = b"",
        timeout_s: float = CALL_S,
        passed: Collection[int] = _SUCCESS,
        short: bool = False,
        waits: bool = False,
    ) -> Command:
        """Return an answer whose code is one of `passed`. Raises Refusal and Rejected.

        A broker that has answered nothing lately is not asked, unless the call `waits` anyway.
        """
        if self._silence.has(broker) and not waits:
            text = f"{broker} did not answer in time: it has answered nothing since a call before"
            raise Rejected(Code.PROXY_TIMEOUT, text)
        began_ms = self._silence.now_ms()
        ext = None if header is None else header.encode(short=short)
        command = Command(code=int(code), ext=ext, body=body)
        try:
            answer = await self._client.call(broker, command, timeout_s)
        except RequestTooLong as error:
            raise Rejected(Code.PAYLOAD_TOO_LARGE, str(error)) from error
        except (OutcomeUnknown, Unreachable) as error:
            raise self.unanswered(broker, began_ms, timeout_s, error) from error
        self._silence.answered(broker)
        self.judge(broker, answer, passed)
        return answer

    def is_silent(self, broker: str) -> bool:
        """Tell whether a broker has answered nothing lately."""
        return self._silence.has(broker)

    def answered(self, broker: str) -> None:
        """Note that a broker has answered what was not asked here."""
        self._silence.answered(broker)

    def unanswered(
        self, broker: str, began_ms: int, timeout_s: float, error: OutcomeUnknown | Unreachable
    ) -> Rejected:
        """Return what a client is told of a call that began at a steady time."""
        self._silence.failed(broker, began_ms, timeout_s, error)
        return self.away(broker, error)

    def judge(self, broker: str, answer: Command, passed: Collection[int] = _SUCCESS) -> None:
        """Raise Refusal unless the code of an answer is one of `passed`."""
        if answer.code not in passed:
            raise self.refusal(broker, refused(answer.code, answer.remark))

    async def look(self) -> None:
        """Look whether there are brokers; the log says when there are none, and when there are."""
        masters: Mapping[str, str] = {}
        try:
            masters = await self._client.masters()
            why = "" if masters else "no master broker is registered at the name servers"
        except (OutcomeUnknown, Unreachable) as error:
            why = str(error)
        if why and why != self._alone:
            log.warning("clients cannot be served: %s", one_line(why))
        elif self._alone and not why:
            log.info("there are brokers: %s", ", ".join(sorted(masters)[:10]))
        self._alone = why
        if why:
            self._health.not_ready(BROKERS, one_line(why))
        else:
            self._health.ready(BROKERS)

    def away(self, who: str, error: OutcomeUnknown | Unreachable) -> Rejected:
        """Return what a client is told of a server that does not answer."""
        if isinstance(error, OutcomeUnknown):
            told = Rejected(Code.PROXY_TIMEOUT, f"{who} did not answer in time: {error}")
        else:
            told = Rejected(Code.INTERNAL_SERVER_ERROR, f"{who} cannot be reached: {error}")
        self._log.warning(("away", who), told.text)
        return told

    def refusal(self, who: str, error: Refused) -> Refusal:
        """Return a server's refusal as services make them."""
        found = refusal_of(error)
        if found.reason is Reason.ACCOUNT_REFUSED:
            text = f"{who} does not let this proxy in: {error.remark}"
            self._log.warning(("account", who), text)
        return found


def refusal_of(error: Refused) -> Refusal:
    """Return a broker's refusal as services make them."""
    reason = _REASONS.get(error.code, Reason.FAILED)
    if error.code == ResponseCode.NO_PERMISSION:
        reason = Reason.FORBIDDEN if _CLOSED.match(error.remark) else Reason.ACCOUNT_REFUSED
    return Refusal(Reason.ACCOUNT_REFUSED if error.about_account else reason, error.remark)
