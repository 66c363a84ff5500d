"""Strict queue locks: a majority of a broker's replicas has to grant one (`lockInStrictMode`).

The replicas are those that a name server knows under this broker's name. Each is asked with
`onlyThisBroker`, so that it looks at its own leases alone (spec: broker (b) "Lock/unlock batch").
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.base.config import setting
from roquet.base.errors import RoquetError
from roquet.protocol.bodies.locks import LockRequest, decode_locked
from roquet.protocol.bodies.routes import decode_member_group
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers.client import LockBatchMqRequest, UnlockBatchMqRequest
from roquet.protocol.headers.namesrv import GetBrokerMemberGroupRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roquet.broker.state import Identity
    from roquet.model.queue import MessageQueue

log = logging.getLogger(__name__)

ASK_S = 1.0
ALL_S = 2.0
MEMBERS_MAX = 64
"""Replicas asked at most."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LockConfig:
    """Settings of queue locks."""

    strict: bool = setting(
        "lockInStrictMode",
        False,
        "Whether a majority of the replicas has to grant a queue lock.",
        live=True,
    )
    replicas: int = setting(
        "totalReplicas",
        1,
        "Brokers of this name, this one among them.",
        low=1,
        high=MEMBERS_MAX,
        live=True,
    )

    @property
    def quorum(self) -> int:
        """How many have to grant a lock; 1 is this broker alone."""
        return self.replicas // 2 + 1 if self.strict else 1


class Caller(Protocol):
    """What is needed of the remoting client."""

    async def call(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
        """Ask the peer at `host:port`."""
        ...

    async def call_one_way(self, address: str, command: Command) -> None:
        """Tell the peer at `host:port`."""
        ...


class LockVotes:
    """Asks the other replicas."""

    def __init__(
        self,
        caller: Caller,
        identity: Identity,
        name_servers: Sequence[str],
        rules: LockConfig,
    ) -> None:
        self._caller = caller
        self._identity = identity
        self._name_servers = tuple(name_servers)
        self._rules = rules

    def follow(self, rules: LockConfig) -> None:
        """Count by other rules from now on."""
        self._rules = rules

    @property
    def needed(self) -> bool:
        """Whether this broker's own grant is not enough."""
        return self._rules.quorum > 1

    async def confirm(
        self, asked: LockRequest, granted: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Return those of the queues granted here that a majority grants."""
        votes = collections.Counter(granted)
        request = dataclasses.replace(asked, only_this_broker=True)
        try:
            async with asyncio.timeout(ALL_S):
                members = await self._members()
                answers = await asyncio.gather(*(self._vote(it, request) for it in members))
        except TimeoutError:
            answers = []
        for queues in answers:
            votes.update(queue for queue in queues if queue in asked.queues)
        return sorted(queue for queue, count in votes.items() if count >= self._rules.quorum)

    async def release(self, asked: LockRequest) -> None:
        """Tell the other replicas that queues are given back; a lost word costs a minute."""
        request = dataclasses.replace(asked, only_this_broker=True)
        command = Command(
            RequestCode.UNLOCK_BATCH_MQ, ext=UnlockBatchMqRequest().encode(), body=request.encode()
        )
        for address in await self._members():
            try:
                await self._caller.call_one_way(address, dataclasses.replace(command))
            except RoquetError as error:
                log.info("%s is not told of unlocked queues: %s", address, error)

    async def _vote(self, address: str, request: LockRequest) -> frozenset[MessageQueue]:
        command = Command(
            RequestCode.LOCK_BATCH_MQ, ext=LockBatchMqRequest().encode(), body=request.encode()
        )
        try:
            answer = await self._caller.call(address, command, ASK_S)
            if answer.code == ResponseCode.SUCCESS:
                return decode_locked(answer.body)
            log.info("%s grants no lock: %d %s", address, answer.code, answer.remark)
        except (RoquetError, JsonError) as error:
            log.info("%s grants no lock: %s", address, error)
        return frozenset()

    async def _members(self) -> list[str]:
        """Return the addresses of the other replicas, by the first name server that answers."""
        header = GetBrokerMemberGroupRequest(
            cluster_name=self._identity.cluster, broker_name=self._identity.name
        )
        for address in self._name_servers:
            command = Command(RequestCode.GET_BROKER_MEMBER_GROUP, ext=header.encode())
            try:
                answer = await self._caller.call(address, command, ASK_S)
                found = decode_member_group(answer.body) if answer.body else None
            except (RoquetError, JsonError) as error:
                log.info("%s does not say who the replicas are: %s", address, error)
                continue
            if found is not None:
                own = self._identity.broker_id
                others = (it for id_, it in sorted(found[2].items()) if id_ != own)
                return list(others)[:MEMBERS_MAX]
        return []
