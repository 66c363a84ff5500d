"""SEND_REPLY_MESSAGE 324 and 325: a consumer's answer is pushed to the client that waits for it.

The requester is found by its client id among the producers that are connected here, and told by
PUSH_REPLY_MESSAGE_TO_CLIENT (326). The answer is stored as well unless that is switched off: for
people who look for it, nothing reads it back (spec: broker (b) 324/325, wire §9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from roquet.acl.accounts import Perm
from roquet.acl.needs import topic
from roquet.acl.rights import EVERYBODY
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.broker.processors.send import target_of
from roquet.protocol import hosts, names, sys_flag
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.message import (
    ReplyMessageRequest,
    SendMessageRequest,
    SendMessageResponse,
)
from roquet.protocol.message_id import offset_id
from roquet.remoting.router import Request, Route
from roquet.store.results import Draft

if TYPE_CHECKING:
    from roquet.acl.rights import Rights
    from roquet.broker.appender import Appender
    from roquet.broker.checks import SendChecks
    from roquet.broker.processors.send import Gate, Queues
    from roquet.broker.registry import Member
    from roquet.broker.stamps import Stamps
    from roquet.broker.traffic import Traffic

log = logging.getLogger(__name__)

LANE = "reply"
_COMPRESSION = sys_flag.COMPRESSED | sys_flag.COMPRESSION_MASK
PUSH_S = 10.0
"""How long the requester has to take the answer."""


class Requesters(Protocol):
    """Knows who is connected."""

    def producer_with_id(self, client_id: str) -> Member | None:
        """Find a producer by client id in any group."""
        ...


class ReplyProcessor:
    """Passes answers on."""

    def __init__(
        self,
        *,
        gate: Gate,
        checks: SendChecks,
        stamps: Stamps,
        appender: Appender,
        requesters: Requesters,
        traffic: Traffic,
        queues: Queues,
        rights: Rights = EVERYBODY,
    ) -> None:
        self._rights = rights
        self._gate = gate
        self._checks = checks
        self._stamps = stamps
        self._appender = appender
        self._requesters = requesters
        self._traffic = traffic
        self._queues = queues

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        codes = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
        return [Route(codes, self.reply, LANE)]

    async def reply(self, request: Request) -> Command:
        """Push an answer to its requester, then store it; the code says whether it was taken."""
        self._gate.check()
        command = request.command
        short = command.code == RequestCode.SEND_REPLY_MESSAGE_V2
        header = SendMessageRequest.decode(command.ext, short=short)
        try:
            return await self._reply(request, header)
        except Refused as refused:
            return reply_to(command, refused.code, remark=refused.remark, ext=self._stamps.ext)

    async def _reply(self, request: Request, header: SendMessageRequest) -> Command:
        command = request.command
        if header.topic != names.reply_topic(self._stamps.identity.cluster):
            # Any topic may be named like one for replies; only the cluster's is nobody's.
            caller = self._rights.caller(command, request.peer.address)
            self._rights.require(caller, [topic(header.topic, Perm.PUB)])
        config = await self._checks.topic_for(target_of(request, header))
        if len(command.body) > self._stamps.rules.message_size_max:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the reply is too long")
        properties = props.read(header.properties)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._queues.randrange(max(1, config.write_queues))
        fault = await self._push(request, header, properties)
        answer = SendMessageResponse(msg_id="0", queue_id=queue_id, queue_offset=0)
        if self._stamps.rules.store_replies:
            draft = Draft(
                topic=header.topic,
                queue_id=queue_id,
                body=command.body,
                properties=properties,
                flag=header.flag,
                sys_flag=header.sys_flag & _COMPRESSION,
                born_timestamp=header.born_timestamp,
                born_host=hosts.host_bytes(request.peer.address),
                store_host=self._stamps.identity.store_host,
                reconsume_times=header.reconsume_times or 0,
            )
            result = await self._appender.append(draft)
            if result.status.is_stored:
                self._traffic.stored(header.topic, queue_id, result)
                answer = SendMessageResponse(
                    msg_id=offset_id(draft.store_host, result.physical_offset),
                    queue_id=queue_id,
                    queue_offset=result.queue_offset,
                )
            else:
                # Whoever asked has the answer; that is what the code is about.
                log.warning("a reply was not stored: %s %s", result.status.name, result.why)
        code = ResponseCode.SUCCESS if fault is None else ResponseCode.SYSTEM_ERROR
        ext = {**answer.encode(), **self._stamps.ext}
        return reply_to(command, code, remark=fault, ext=ext)

    async def _push(
        self, request: Request, header: SendMessageRequest, properties: dict[str, str]
    ) -> str | None:
        """Tell the requester; return why that was not possible."""
        client_id = properties.get(props.REPLY_TO_CLIENT)
        if client_id is None:
            return "reply message properties[REPLY_TO_CLIENT] is null"
        member = self._requesters.producer_with_id(client_id)
        if member is None:
            return f"push reply message fail, channel of <{client_id[:255]}> not found."
        now_ms = self._stamps.clock.now_ms()
        push = ReplyMessageRequest(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=props.write({**properties, props.PUSH_REPLY_TIME: str(now_ms)}),
            reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode),
            born_host=request.peer.address,
            store_host=self._stamps.identity.address,
            store_timestamp=now_ms,
        )
        command = Command(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ext=push.encode(),
            body=request.command.body,
            language="JAVA",
        )
        try:
            answer = await member.client.peer.call(command, PUSH_S)
        except (Unreachable, OutcomeUnknown) as error:
            log.info("a reply was not taken by %s: %s", client_id, error)
            return f"push reply message to{client_id[:255]}fail."
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to{client_id[:255]}fail."
        return None
