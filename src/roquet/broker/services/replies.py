"""A consumer's reply is pushed to the client that waits for it, and stored for people to read.

The requester is found by its client id among the producers that are connected here. The reply is
stored as well unless that is switched off: nothing reads it back (spec: broker (b) 324/325,
wire §9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.replies import PushedReply, ReplyResult
from roquet.broker.messages.broker_properties import clear_owned
from roquet.broker.services.access import Access
from roquet.protocol import hosts, names
from roquet.protocol import properties as props
from roquet.protocol.messages import sys_flag
from roquet.protocol.messages.message_id import offset_id
from roquet.store.results import Draft

if TYPE_CHECKING:
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.send import SendRequest
    from roquet.broker.messages.appender import Appender
    from roquet.broker.messages.broker_properties import BrokerProperties
    from roquet.broker.metrics.traffic import Traffic
    from roquet.broker.services.send.service import Queues, SendGate
    from roquet.broker.services.topic_checks import SendChecks

log = logging.getLogger(__name__)

_COMPRESSION = sys_flag.COMPRESSED | sys_flag.COMPRESSION_MASK


class Requesters(Protocol):
    """Reaches the clients that wait for replies, whatever front they are connected to."""

    async def push(self, client_id: str, reply: PushedReply) -> bool | None:
        """Give a client its reply: True when it took it, None when it is not connected here."""
        ...


class Replies:
    """Passes replies on."""

    def __init__(
        self,
        *,
        gate: SendGate,
        checks: SendChecks,
        broker_properties: BrokerProperties,
        appender: Appender,
        requesters: Requesters,
        traffic: Traffic,
        queues: Queues,
        access: Access | None = None,
    ) -> None:
        self._access = access or Access()
        self._gate = gate
        self._checks = checks
        self._broker_properties = broker_properties
        self._appender = appender
        self._requesters = requesters
        self._traffic = traffic
        self._queues = queues

    def check_open(self) -> None:
        """Raise Refusal(BUSY) when no reply is taken at the moment; `reply` asks by itself."""
        self._gate.check()

    async def reply(self, request: SendRequest, caller: Caller) -> ReplyResult:
        """Push a reply to its requester, then store it. Raises Refusal when it is not taken."""
        self._gate.check()
        if request.topic != names.reply_topic(self._broker_properties.identity.cluster):
            # Any topic may be named like one for replies; only the cluster's is nobody's.
            self._access.require_write(caller, request.topic)
        if props.INNER_MULTI_DISPATCH in request.properties:
            raise Refusal(Reason.ILLEGAL_MESSAGE, "a reply cannot be in other queues as well")
        config = await self._checks.topic_for(request, caller.address)
        if len(request.body) > self._broker_properties.rules.message_size_max:
            raise Refusal(Reason.ILLEGAL_MESSAGE, "the reply is too long")
        queue_id = request.queue_id
        if queue_id < 0:
            queue_id = self._queues.randrange(max(1, config.write_queues))
        fault = await self._push(request, caller)
        result = ReplyResult(fault=fault, queue_id=queue_id)
        # The topic of replies is nobody's: where accounts count, only what was asked for is kept.
        is_unasked = fault is not None and not self._access.is_open
        if is_unasked or not self._broker_properties.rules.store_replies:
            return result
        # A reply may be for any topic that the caller may send to.
        clear_owned(request.properties)
        draft = Draft(
            topic=request.topic,
            queue_id=queue_id,
            body=request.body,
            properties=request.properties,
            flag=request.flag,
            sys_flag=request.sys_flag & _COMPRESSION,
            born_timestamp=request.born_ms,
            born_host=hosts.host_bytes(caller.address),
            store_host=self._broker_properties.identity.store_host,
            reconsume_times=request.attempts or 0,
        )
        stored = await self._appender.append(draft)
        if not stored.status.is_stored:
            # Whoever asked has the reply; that is what the result is about.
            log.warning("a reply was not stored: %s %s", stored.status.name, stored.why)
            return result
        self._traffic.stored(request.topic, queue_id, stored)
        return ReplyResult(
            fault=fault,
            queue_id=queue_id,
            message_id=offset_id(draft.store_host, stored.physical_offset),
            queue_offset=stored.queue_offset,
        )

    async def _push(self, request: SendRequest, caller: Caller) -> str | None:
        """Give the requester its reply; return why that was not possible."""
        client_id = request.properties.get(props.REPLY_TO_CLIENT)
        if client_id is None:
            return "reply message properties[REPLY_TO_CLIENT] is null"
        now_ms = self._broker_properties.clock.now_ms()
        reply = PushedReply(
            request=request,
            properties={**request.properties, props.PUSH_REPLY_TIME: str(now_ms)},
            born_address=caller.address,
            store_address=self._broker_properties.identity.address,
            store_ms=now_ms,
        )
        taken = await self._requesters.push(client_id, reply)
        if taken is None:
            return f"push reply message fail, channel of <{client_id[:255]}> not found."
        return None if taken else f"push reply message to{client_id[:255]}fail."
