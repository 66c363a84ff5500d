"""Lite topics (light topics here): SyncLiteSubscription, and what their consumers receive."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from roquet.broker.api.pop import Action, LightSubscribe, Start, StartKind
from roquet.broker.light.facts import QUOTA_TOLERANCE, quota_of
from roquet.proxy import messages as pb
from roquet.proxy.brokers.api import Subscriber, light_of
from roquet.proxy.rules import checks
from roquet.proxy.rules.codes import Code, Rejected
from roquet.proxy.services.clients import LITE_PUSH
from roquet.proxy.services.settle import check_bound

if TYPE_CHECKING:
    from roquet.proxy.brokers.api import Brokers
    from roquet.proxy.rules.context import Context
    from roquet.proxy.rules.limits import ProxyLimits
    from roquet.proxy.services.clients import Session, Sessions
    from roquet.proxy.services.routes import Routes

_ACTIONS = (
    Action.PARTIAL_ADD,
    Action.PARTIAL_REMOVE,
    Action.COMPLETE_ADD,
    Action.COMPLETE_REMOVE,
)
"""By their numbers."""
_STARTS = {
    "policy": StartKind.POLICY,
    "offset": StartKind.OFFSET,
    "tail_n": StartKind.TAIL_N,
    "timestamp": StartKind.TIMESTAMP,
}
NAMES_MAX = 10_000
"""Lite topics of one request."""


class Lights:
    """Keeps the subscriptions of consumers of lite topics."""

    def __init__(
        self, brokers: Brokers, routes: Routes, sessions: Sessions, rules: ProxyLimits
    ) -> None:
        self._brokers = brokers
        self._routes = routes
        self._sessions = sessions
        self._rules = rules
        self._second = 0
        self._synced = 0
        sessions.listen_streams(self._left)

    async def sync(self, context: Context, request: Any) -> Any:
        """Change what a consumer subscribes to."""
        topic, group = request.topic.name, request.group.name
        checks.check_topic(topic)
        checks.check_group(group)
        number: int = request.action
        if not 0 <= number < len(_ACTIONS):
            raise Rejected(Code.BAD_REQUEST, f"unknown LiteSubscriptionAction: {number}")
        action = _ACTIONS[number]
        names = tuple(request.lite_topic_set)
        if len(names) > NAMES_MAX:
            raise Rejected(Code.BAD_REQUEST, f"a request may name {NAMES_MAX} lite topics")
        light = light_of(self._brokers)
        if action is Action.PARTIAL_ADD:
            for name in names:
                checks.check_light(name, self._rules)
            self._check_rate()
        config = await self._routes.group(context, group)
        check_bound(config, topic, group)
        quota = quota_of({} if config is None else config.attributes)
        if quota is not None and len(names) > quota:
            text = f"lite subscription quota exceeded {quota - QUOTA_TOLERANCE}"
            raise Rejected(Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, text)
        wanted = LightSubscribe(
            action=action,
            client_id=context.client_id,
            group=group,
            topic=topic,
            names=names,
            start=_start_of(request),
        )
        session = self._sessions.find(context)
        subscriber = Subscriber(
            who=context.client_id if session is None else session.key,
            lost=functools.partial(self._lost, context),
            is_member=session is not None and (session.kind, session.group) == (LITE_PUSH, group),
        )
        await light.subscribe(wanted, context.caller, subscriber)
        return pb.SyncLiteSubscriptionResponse()

    def _check_rate(self) -> None:
        """Raise Rejected when too much is subscribed to in this second."""
        second = self._brokers.clock.steady_ms() // 1000
        if second != self._second:
            self._second, self._synced = second, 0
        self._synced += 1
        if self._synced > self._rules.light_sync_rate:
            raise Rejected(Code.TOO_MANY_REQUESTS, "lite subscriptions change too often")

    def _lost(self, context: Context, name: str) -> None:
        """Tell a client that another one took a lite topic from it."""
        session = self._sessions.known(context)
        if session is not None:
            command = pb.TelemetryCommand()
            command.notify_unsubscribe_lite_command.lite_topic = name
            session.tell(command)

    def _left(self, session: Session) -> None:
        """Give what a client subscribes to back: its stream has ended, or it has gone."""
        if session.kind == LITE_PUSH and self._brokers.light is not None:
            client = session.client_id, session.group
            self._brokers.light.close(client, session.consumed)


def _start_of(request: Any) -> Start | None:
    """Return where the group begins in what is added; None where that is not said."""
    if not request.HasField("offset_option"):
        return None
    kind = request.offset_option.WhichOneof("offset_type")
    if kind is None:
        return None
    return Start(kind=_STARTS[kind], value=int(getattr(request.offset_option, kind)))
