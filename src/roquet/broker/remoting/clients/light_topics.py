"""Light topics over remoting: subscriptions (200071), pops (200070), and the notice 200073.

Acknowledgements are those of other pops, with the name of the light topic (`remoting/pop.py`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from roquet.broker.api.pop import (
    Action,
    LightPopRequest,
    LightSubscribe,
    Start,
    StartKind,
)
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.pop.receive.orders import ATTEMPT_LENGTH_MAX
from roquet.broker.pop.receive.polls import Poll, Waiting
from roquet.broker.remoting.bodies import body_of
from roquet.broker.remoting.clients.waiting_pops import (
    WokenPop,
    may_still,
    pledge,
    unheld_code,
    waiting_request,
)
from roquet.broker.remoting.refusals import refusal_reply
from roquet.protocol.bodies.light_topics import decode_subscriptions
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import FLAG_ONE_WAY, Command, reply_to
from roquet.protocol.headers import light as headers
from roquet.protocol.light import light_topics
from roquet.protocol.pop.topics import ORDER_REVIVE_QUEUE
from roquet.remoting.router import Ports, Request, Route
from roquet.store.results import GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.clock import Clock
    from roquet.broker.api.pop import LightPopResult
    from roquet.broker.light.control import LightControl
    from roquet.broker.light.pops import LightPops
    from roquet.broker.pop.receive.polls import PopPolls
    from roquet.broker.remoting.callers import Callers, Readers
    from roquet.protocol.bodies.light_topics import SubscriptionEntry
    from roquet.remoting.router import Peer
    from roquet.service.lanes import Lane


class LightSubscriptionAdapter:
    """Takes changes of subscriptions."""

    def __init__(self, control: LightControl, callers: Callers) -> None:
        self._control = control
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [Route((RequestCode.LITE_SUBSCRIPTION_CTL,), self.change, "client_manage")]

    async def change(self, request: Request) -> Command:
        """Answer 200071 when the subscriptions are as wanted."""
        command, peer = request.command, request.peer
        if not command.body:
            raise Refusal(Reason.ILLEGAL_OPERATION, "Request body is null.")
        entries = await body_of(command, decode_subscriptions, Reason.FAILED)
        wanted = [_wanted(entry) for entry in entries]

        def tell(entry: LightSubscribe) -> Callable[[str], None]:
            return functools.partial(_unsubscribed, peer, entry.group, entry.client_id)

        await self._control.change(wanted, self._callers.of(request), tell, peer.key)
        return reply_to(command)


class LightPopAdapter:
    """Answers pops of light topics, and has those wait that find nothing."""

    def __init__(
        self,
        service: LightPops,
        polls: PopPolls,
        *,
        has_events: Callable[[tuple[str, str]], bool],
        lane: Lane,
        clock: Clock,
        readers: Readers,
    ) -> None:
        """`lane` runs the pops that were woken; `has_events` tells of a client's events."""
        self._service = service
        self._polls = polls
        self._has_events = has_events
        self._lane = lane
        self._clock = clock
        self._readers = readers

    def routes(self) -> list[Route]:
        """Return the codes this answers; the fast port does not serve them."""
        return [Route((RequestCode.POP_LITE_MESSAGE,), self.pop, "pull", Ports.MAIN)]

    async def pop(self, request: Request) -> Command | None:
        """Answer 200070 now, or let it wait and return None."""
        header = headers.PopLightRequest.decode(request.command.ext)
        attempt = header.attempt_id
        wanted = LightPopRequest(
            client_id=header.client_id,
            group=header.consumer_group,
            topic=header.topic,
            max_messages=header.max_msg_num,
            invisible_ms=header.invisible_time,
            poll_ms=header.poll_time,
            born_ms=header.born_time or self._clock.now_ms(),
            attempt_id=None if attempt is None else attempt[:ATTEMPT_LENGTH_MAX],
            may_read=self._readers.of(request),
            check_waiting=pledge(self._readers, request, header),
        )
        return await self._answer(request, wanted)

    async def _answer(self, request: Request, wanted: LightPopRequest) -> Command | None:
        try:
            result = await self._service.pop(wanted)
        except Refusal as refusal:
            ext = headers.PopLightResponse().encode()
            return refusal_reply(request.command, refusal, ext=ext)
        if result.messages:
            return _popped(request.command, wanted, result, ResponseCode.SUCCESS)
        waiting = Waiting.LATE
        if wanted.poll_ms > 0:
            waiting = self._polls.hold(self._poll(request, wanted))
        if waiting is Waiting.HELD:
            if self._has_events((wanted.client_id, wanted.group)):
                # They came while this pop went through others.
                wake(self._polls, (wanted.client_id, wanted.group))
            return None
        return _popped(request.command, wanted, result, unheld_code(waiting))

    def _poll(self, request: Request, wanted: LightPopRequest) -> Poll:
        return Poll(
            topic=wanted.client_id,
            group=wanted.group,
            queue_id=light_topics.QUEUE_ID,
            peer=request.peer,
            expires_ms=wanted.born_ms + wanted.poll_ms,
            resume=functools.partial(self._resume, waiting_request(request), wanted),
        )

    def _resume(self, request: Request, wanted: LightPopRequest) -> None:
        refused = headers.PopLightResponse().encode()
        if request.peer.is_open and may_still(request, wanted.check_waiting, refused):
            self._lane.submit(WokenPop(request, wanted, self._answer, self._clock.now_ms()))


def wake(polls: PopPolls, client: tuple[str, str]) -> None:
    """Have a pop of a client tried again that waits."""
    polls.wake(*client, light_topics.QUEUE_ID)


def _wanted(entry: SubscriptionEntry) -> LightSubscribe:
    start = None
    if entry.start is not None:
        kind, value = entry.start
        start = Start(kind=StartKind(kind), value=value)
    return LightSubscribe(
        action=Action(entry.action),
        client_id=entry.client_id,
        group=entry.group,
        topic=entry.topic,
        names=entry.names,
        start=start,
    )


def _unsubscribed(peer: Peer, group: str, client_id: str, name: str) -> None:
    """Tell a client that it lost a light topic."""
    header = headers.NotifyUnsubscribeLightRequest(
        lite_topic=name, consumer_group=group, client_id=client_id
    )
    code = RequestCode.NOTIFY_UNSUBSCRIBE_LITE
    peer.send_one_way(Command(code, ext=header.encode(), flag=FLAG_ONE_WAY, language="JAVA"))


def _popped(
    command: Command, wanted: LightPopRequest, result: LightPopResult, code: ResponseCode
) -> Command:
    found = code is ResponseCode.SUCCESS
    ext = headers.PopLightResponse.written(
        pop_time=result.pop_time_ms,
        invisible_time=wanted.invisible_ms,
        revive_qid=ORDER_REVIVE_QUEUE,
        order_count_info=";".join(map(str, result.counts)),
    )
    status = GetStatus.FOUND if found else GetStatus.NO_MESSAGE_IN_QUEUE
    return reply_to(command, code, remark=status.name, ext=ext, body=result.records)
