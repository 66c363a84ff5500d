"""What keeps a consumer from getting messages, and who hears of it.

What cannot heal ends the consumer: its loops raise. What may heal is logged and given to `on_error`
once, until it is over. So nobody waits in silence where nothing can arrive.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable, UsageError
from roquet.client._cluster.requests import request
from roquet.protocol.bodies.routes import ClusterInfo
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.fastjson import JsonError
from roquet.protocol.names import AUTO_CREATE_TOPIC
from roquet.remoting.refusals import cannot_heal

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from roquet.client._cluster.session import Session

log = logging.getLogger(__name__)

FIRST_ANSWER = "the first answer"
FIRST_ANSWER_S = 2.5
"""After so long without any queue and any reason a consumer says that it still waits."""
_HEARTBEAT_MENDS = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)
_PATIENCE = 3
"""How often a queue is refused for what a heartbeat mends before that counts."""


class Troubles:
    """The reasons why one consumer gets nothing now."""

    def __init__(
        self,
        group: str,
        session: Session,
        on_error: Callable[[RoquetError], None] | None,
        fail: Callable[[RoquetError], None],
    ) -> None:
        """`fail` ends the consumer; `on_error` is the application's."""
        self._group = group
        self._session = session
        self._on_error = on_error
        self._fail = fail
        self._known: set[Hashable] = set()
        self._refusals: dict[Hashable, int] = {}

    async def met(
        self,
        subject: Hashable,
        error: RoquetError,
        *,
        topic: str,
        may_end: bool = True,
        is_sure: bool = False,
    ) -> None:
        """Say that `subject` (a topic, a broker) is in trouble.

        `may_end` False: never for good. `is_sure`: no heartbeat will mend it.
        """
        if isinstance(error, Refused) and error.code in _HEARTBEAT_MENDS and not is_sure:
            self._refusals[subject] = self._refusals.get(subject, 0) + 1
            if self._refusals[subject] < _PATIENCE:
                return
        if isinstance(error, Refused) and error.code == ResponseCode.TOPIC_NOT_EXIST and may_end:
            error = await why_no_route(self._session, topic)
        if may_end and cannot_heal(error):
            self._fail(error)
        elif subject not in self._known and FIRST_ANSWER not in self._known:
            self._known.add(subject)
            log.warning("consumer %s waits: %s", self._group, error)
            self._tell(error)

    def over(self, subject: Hashable) -> None:
        """Say that `subject` works."""
        self._refusals.pop(subject, None)
        if subject in self._known:
            self._known.discard(subject)
            log.info("consumer %s: no more trouble with %s", self._group, subject)

    async def say_when_silent(self, has_queues: Callable[[], bool], topic: str) -> None:
        """Say that the consumer still waits when there is neither a queue nor a reason soon."""
        await self._session.clock.sleep(FIRST_ANSWER_S)
        if not has_queues() and not self.is_known:
            asked = ", ".join(self._session.name_servers.addresses)
            reason = Unreachable(
                f"no queue after {FIRST_ANSWER_S:g} s: {asked} or brokers are slow"
            )
            await self.met(FIRST_ANSWER, reason, topic=topic)

    @property
    def is_known(self) -> bool:
        """Whether something is in trouble, and was told."""
        return bool(self._known)

    def _tell(self, error: RoquetError) -> None:
        if self._on_error is None:
            return
        try:
            self._on_error(error)
        except Exception:
            log.exception("on_error of %s failed", self._group)


async def why_no_route(session: Session, topic: str) -> RoquetError:
    """Return what it means that the name server has no route of a topic."""
    try:
        await session.name_servers.route(AUTO_CREATE_TOPIC)
    except Refused as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            return error
    except (Unreachable, OutcomeUnknown) as error:
        return error
    else:
        return Unreachable(
            f"there is no topic {topic} yet: its first message makes it, or type:"
            f" roquet topic create {topic}"
        )
    return await no_broker(session, topic) or Refused(
        ResponseCode.TOPIC_NOT_EXIST,
        f"there is no topic {topic}, and the brokers make none by themselves; type:"
        f" roquet topic create {topic}",
    )


async def no_broker(session: Session, topic: str) -> Unreachable | None:
    """Return the error of a cluster without brokers, or of one that names none; else None."""
    try:
        answer = await session.name_servers.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO))
        brokers = ClusterInfo.decode(answer.body).brokers
    except (RoquetError, JsonError) as error:
        return Unreachable(f"there is no topic {topic} now, and no list of brokers: {error}")
    if brokers:
        return None
    where = ", ".join(session.name_servers.addresses)
    return Unreachable(f"no broker is registered at {where}: is one running?")


def not_started(what: str) -> UsageError:
    """Return the error for a call on a producer or consumer that nobody entered."""
    return UsageError(
        f"the {what} is not started: use it within `async with`, or `with` when it is blocking"
    )
