"""Which queues a member of a group consumes and whether it pulls or pops (spec: broker (b) 400)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

from roquet.acl import needs
from roquet.base.config import setting
from roquet.base.errors import TableFull
from roquet.broker.api.assignments import AssignmentResult
from roquet.broker.api.refusal import Reason, Refusal
from roquet.model.balance import STRATEGIES, pop_share
from roquet.model.queue import MessageQueue
from roquet.model.request_mode import GroupRequestMode, RequestMode
from roquet.protocol import names

if TYPE_CHECKING:
    from roquet.broker.api.assignments import AssignmentRequest
    from roquet.broker.api.caller import Caller
    from roquet.broker.clients.registry import Registry
    from roquet.broker.services.access import Access
    from roquet.broker.state import Identity
    from roquet.protocol.bodies.assignments import RequestModeTable
    from roquet.store.tables.groups import GroupTable
    from roquet.store.tables.request_modes import RequestModes
    from roquet.store.tables.topics import TopicTable

LIGHT_QUEUE = 0
"""The one queue of a light queue."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentConfig:
    """Settings of the assignment of queues by the broker."""

    default_mode: str = setting(
        "defaultMessageRequestMode",
        "PULL",
        "How groups fetch messages for which nothing was set.",
        choices=tuple(map(str, RequestMode)),
        live=True,
    )
    default_pop_share: int = setting(
        "defaultPopShareQueueNum",
        -1,
        "How many other members' queues a member also pops then; 0 or less: all queues.",
        low=-1,
        high=1_000_000,
        live=True,
    )
    balances: bool = setting(
        "serverLoadBalancerEnable",
        True,
        "Whether the broker shares queues among members; otherwise each is told all queues.",
        live=True,
    )
    routes_ms: int = setting(
        "loadBalancePollNameServerInterval",
        30_000,
        "How long a topic's queues count that a name server told.",
        unit="ms",
        low=1,
        high=3_600_000,
        live=True,
    )


class QueuesOfTopic(Protocol):
    """Knows a topic's queues on all brokers."""

    async def of(self, topic: str) -> frozenset[MessageQueue] | None:
        """Return the queues; None when nobody can say which there are."""
        ...


class Assignments:
    """Shares queues, and keeps how groups fetch them."""

    def __init__(
        self,
        queues: QueuesOfTopic,
        registry: Registry,
        modes: RequestModes,
        *,
        tables: tuple[TopicTable, GroupTable],
        identity: Identity,
        access: Access,
        rules: AssignmentConfig,
    ) -> None:
        self.rules = rules
        self._access = access
        self._queues = queues
        self._registry = registry
        self._modes = modes
        self._topics, self._groups = tables
        self._identity = identity

    async def of(self, request: AssignmentRequest, caller: Caller) -> AssignmentResult:
        """Return the queues of a member. Raises Refusal."""
        if not request.topic or not request.group:
            raise Refusal(Reason.INVALID_ARGUMENT, "topic and consumerGroup are needed")
        asked = (*needs.know(request.topic), needs.group(request.group))
        self._access.require(caller, asked)
        set_mode = self._modes.get(request.topic, request.group) or self._default(request)
        queues = await self._share(request, set_mode)
        return AssignmentResult(queues=queues, mode=set_mode.mode)

    def _default(self, request: AssignmentRequest) -> GroupRequestMode:
        mode, share = RequestMode(self.rules.default_mode), self.rules.default_pop_share
        if names.is_retry(request.topic):
            # Whoever pops gets redelivered messages from the topic itself.
            mode = RequestMode.PULL
        return GroupRequestMode(
            topic=request.topic, group=request.group, mode=mode, pop_share=share
        )

    async def _share(
        self, request: AssignmentRequest, set_mode: GroupRequestMode
    ) -> frozenset[MessageQueue] | None:
        queues: frozenset[MessageQueue] | None
        if names.is_lmq(request.topic) and not request.is_broadcasting:
            queues = frozenset({MessageQueue(request.topic, self._identity.name, LIGHT_QUEUE)})
        else:
            queues = await self._queues.of(request.topic)
        if queues is None or request.is_broadcasting or not self.rules.balances:
            return queues
        group = self._registry.consumer(request.group)
        strategy = STRATEGIES.get(request.strategy)
        if group is None or strategy is None or not queues or not request.client_id.strip():
            return None
        members, me = group.client_ids, request.client_id
        if set_mode.mode is RequestMode.POP:
            shared = pop_share(strategy, tuple(queues), members, me, set_mode.pop_share)
            return frozenset(shared)
        return frozenset(strategy(queues, members, me))

    async def set_mode(self, mode: GroupRequestMode, caller: Caller) -> None:
        """Set how a group fetches a topic, durably. Raises Refusal."""
        del caller
        if names.is_retry(mode.topic):
            raise Refusal(Reason.FORBIDDEN, "retry topic is not allowed to set mode")
        if self._topics.get(mode.topic) is None:
            raise Refusal(Reason.UNKNOWN_TOPIC, f"topic[{mode.topic[:255]}] not exist")
        if self._groups.find(mode.group) is None:
            raise Refusal(Reason.UNKNOWN_GROUP, "subscription group does not exist")
        try:
            self._modes.put(mode)
        except TableFull as error:
            raise Refusal(Reason.FAILED, str(error)) from error
        await self._modes.persist()

    def modes(self) -> RequestModeTable:
        """Return what was set for all topics and groups."""
        return self._modes.export()
