"""Clients: their settings, their telemetry streams, their places in groups."""

from __future__ import annotations

import dataclasses
import functools
import logging
from typing import TYPE_CHECKING, Any, Protocol

from roquet.base.errors import Unreachable
from roquet.broker.api.refusal import Refusal
from roquet.broker.clients.registry import Client
from roquet.model.group import RetryPolicyType
from roquet.model.message import ATTEMPTS_MAX
from roquet.model.subscription import ConsumeType, ExpressionType
from roquet.protocol import properties as props
from roquet.protocol import tags
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.hosts import host_of
from roquet.protocol.messages.compression import CompressionError
from roquet.proxy import messages as pb
from roquet.proxy.brokers.api import light_of
from roquet.proxy.rules.checks import check_group, check_topic
from roquet.proxy.rules.codes import Code, Rejected
from roquet.proxy.rules.context import check_current, is_current
from roquet.proxy.services.convert import message_of, set_millis
from roquet.proxy.services.produce import transaction_id
from roquet.proxy.services.settle import check_bound, told_quota
from roquet.remoting.connections.connection import KEYS
from roquet.service.shares import Shares, may_hold

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from roquet.model.group import RetryPolicy, SubscriptionGroupConfig
    from roquet.protocol.command import Command
    from roquet.proxy.brokers.api import Brokers
    from roquet.proxy.rules.context import Context
    from roquet.proxy.rules.limits import ProxyLimits
    from roquet.proxy.services.routes import Routes
    from roquet.store.records import Record

log = logging.getLogger(__name__)

PRODUCER, PUSH, SIMPLE, LITE_PUSH, LITE_SIMPLE = 1, 2, 3, 5, 6
CONSUMERS = frozenset({PUSH, SIMPLE, LITE_PUSH})
PUSHED = frozenset({PUSH, LITE_PUSH})
"""Consumers whose messages are kept invisible while they work on them."""
SQL = 2
TOPICS_MAX = 2_000
IDLE_MS = 120_000
"""A client without a telemetry stream is forgotten after it."""
NO_SETTINGS = "cannot find client settings for this client"
_DEFAULT_PAUSES_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800)
_DEFAULT_PAUSES_MS = tuple(s * 1000 for s in (*_DEFAULT_PAUSES_S, 3600, 7200))
_INITIAL_MS, _LONGEST_MS, _TIMES = 5_000, 7_200_000, 2


class Stream(Protocol):
    """The way to a client."""

    def send(self, message: bytes) -> bool:
        """Send a message; false when the stream has ended."""
        ...

    def end(self, rejected: Rejected) -> None:
        """End the stream for this reason."""
        ...


def _always() -> bool:
    return True


@dataclasses.dataclass(slots=True, kw_only=True)
class Session:
    """One client. The broker knows it as the other end of a connection."""

    key: int
    client_id: str
    access_key: str
    owner: tuple[str, str]
    """For whose share it counts: the account's, or without one the host's."""
    address: str
    language: str
    seen_ms: int
    stream: Stream | None = None
    """The latest of its telemetry streams that is open."""
    is_current: Callable[[], bool] = _always
    """Whether that stream could be begun now: its account may sign otherwise since."""
    kind: int = 0
    group: str = ""
    topics: tuple[str, ...] = ()
    """Those that a producer sends to."""
    consumer: ConsumerData | None = None
    request_timeout_ms: int = 0
    version: int = 0
    settings: bytes = b""
    """As it has shown them last."""
    broker: str = ""
    """The one that there is, if it is alone."""
    ended: Callable[[Session], None]

    @property
    def shape(self) -> _Shape:
        """What its settings say of its groups and topics."""
        return self.kind, self.group, self.topics, self.consumer

    @shape.setter
    def shape(self, shape: _Shape) -> None:
        self.kind, self.group, self.topics, self.consumer = shape

    @property
    def consumed(self) -> tuple[str, ...]:
        """The topics that a consumer subscribes to."""
        if self.consumer is None:
            return ()
        return tuple(entry.topic for entry in self.consumer.subscriptions)

    @property
    def is_open(self) -> bool:
        """Whether the client can be told something."""
        return self.stream is not None and self.is_current()

    def tell(self, command: Any) -> None:
        """Send a command, unless nobody listens who may hear it."""
        if self.stream is not None and self.is_current():
            self.stream.send(command.SerializeToString())

    def send_one_way(self, command: Command) -> None:
        """Pass over: requests of frames have no form here."""

    async def call(self, command: Command, timeout_s: float) -> Command:
        """Raise Unreachable: requests of frames have no form here."""
        del command, timeout_s
        raise Unreachable(f"{self.client_id[:255]} is a client of gRPC")

    def close(self, why: str) -> None:
        """Forget the client."""
        del why
        self.ended(self)

    def ask_about(self, half: Record, properties: dict[str, str], broker: str = "") -> None:
        """Ask a producer what becomes of a half message; `broker` has it, else the only one."""
        topic = properties.get(props.REAL_TOPIC, "")
        try:
            message = message_of(half, topic)
        except CompressionError:
            log.warning("the half message at %d cannot be shown", half.physical_offset)
            return
        command = pb.TelemetryCommand()
        asked = command.recover_orphaned_transaction_command
        asked.message.CopyFrom(message)
        place = half.physical_offset, half.queue_offset, broker or self.broker
        asked.transaction_id = transaction_id(*place)
        asked.message.system_properties.ClearField("receipt_handle")
        self.tell(command)


class Sessions:
    """All clients that have shown their settings. An id is an account's own."""

    def __init__(self, brokers: Brokers, routes: Routes, rules: ProxyLimits) -> None:
        self._brokers = brokers
        self._routes = routes
        self._rules = rules
        self._known: dict[tuple[str, str], Session] = {}
        self._shares = Shares()
        """Sessions by account, and without one by the host at which they were shown first."""
        self._secrets: Mapping[str, bytes] | None = None
        """What accounts signed with when clients were last compared with them."""
        self._listeners: list[Callable[[Session], None]] = []
        self._of_streams: list[Callable[[Session], None]] = []
        self._of_groups: list[Callable[[Session, ConsumerData | None], None]] = []

    def __len__(self) -> int:
        return len(self._known)

    def all(self) -> Collection[Session]:
        """Return the clients that there are."""
        return self._known.values()

    def listen(self, listener: Callable[[Session], None]) -> None:
        """Have `listener(session)` called for each client that has gone."""
        self._listeners.append(listener)

    def listen_groups(self, listener: Callable[[Session, ConsumerData | None], None]) -> None:
        """Have `listener(session, consumer)` called for each client that is put into groups."""
        self._of_groups.append(listener)

    def listen_streams(self, listener: Callable[[Session], None]) -> None:
        """Have `listener(session)` called for each client whose stream has ended."""
        self._of_streams.append(listener)

    def known(self, context: Context) -> Session | None:
        """Return the client of a call that was made before, None when it has gone."""
        return self._known.get((context.access_key, context.client_id))

    def find(self, context: Context) -> Session | None:
        """Return the client that calls, None when it has shown no settings that were taken."""
        return self.seen(context.access_key, context.client_id)

    def seen(self, access_key: str, client_id: str) -> Session | None:
        """Return a client that calls, None when it has shown no settings that were taken."""
        session = self._known.get((access_key, client_id))
        if session is None or not session.kind:
            return None
        session.seen_ms = self._brokers.clock.steady_ms()
        return session

    # --- telemetry -------------------------------------------------------------------------------

    async def take(self, context: Context, stream: Stream, command: Any) -> Any:
        """Return the answer to a message of a telemetry stream, None when there is none.

        Raises Rejected and Refusal.
        """
        check_current(context, self._brokers.guard)
        kind = command.WhichOneof("command")
        if kind != "settings":
            # Answers to questions that this front does not ask are passed over.
            return None
        settings = command.settings
        if settings.WhichOneof("pub_sub") is None:
            text = "there is no publishing or subscription data in settings"
            raise Rejected(Code.BAD_REQUEST, text)
        shape = _shape(settings)
        session = self._shown(context, settings)
        session.stream = stream
        session.is_current = functools.partial(is_current, context, self._brokers.guard)
        before, session.settings = session.settings, settings.SerializeToString()
        try:
            await self._register(session, shape, context)
        except (Rejected, Refusal):
            session.settings = before
            # Settings that are refused take no place, nor memory.
            if not session.kind:
                self.forget(session)
            raise
        # Not before: what ends with a session may be nobody's but the client's own.
        session.shape = shape
        answer = pb.TelemetryCommand()
        answer.status.code, answer.status.message = Code.OK, "OK"
        answer.settings.CopyFrom(settings)
        await self._merge(answer.settings, context)
        return answer

    def left(self, context: Context, stream: Stream) -> None:
        """Note that a telemetry stream has ended."""
        session = self.known(context)
        if session is not None and session.stream is stream:
            session.seen_ms = self._brokers.clock.steady_ms()
            session.stream = None
            self._stream_ended(session)

    def send_away(self) -> None:
        """Ask all clients to connect elsewhere: this port is about to close."""
        for session in self._known.values():
            if session.stream is not None:
                command = pb.TelemetryCommand()
                command.reconnect_endpoints_command.nonce = str(session.key)
                session.tell(command)

    def _stream_ended(self, session: Session) -> None:
        for listener in self._of_streams:
            listener(session)

    def _take_place(self, context: Context) -> tuple[str, str]:
        """Count a client more, and return for whom. Raises Rejected."""
        rules, host = self._rules, host_of(context.remote)
        owner = (context.access_key, "") if context.access_key else ("", host)
        held, total = self._shares.of(owner) + 1, self._shares.total + 1
        if total > rules.clients_max:
            raise Rejected(Code.TOO_MANY_REQUESTS, "there is no room for more clients")
        if context.access_key and held > rules.account_clients_max:
            text = f"the account has {held - 1} clients: there is no room for more"
            raise Rejected(Code.TOO_MANY_REQUESTS, text)
        if not context.access_key and not may_hold(held, total, rules.clients_max):
            text = f"{host} has {held - 1} clients: there is no room for more"
            raise Rejected(Code.TOO_MANY_REQUESTS, text)
        self._shares.add(owner)
        return owner

    def _shown(self, context: Context, settings: Any) -> Session:
        """Return the session of a client; one that is made anew has no shape yet."""
        key = context.access_key, context.client_id
        session = self._known.get(key)
        if session is None:
            owner = self._take_place(context)
            session = self._known[key] = Session(
                key=next(KEYS),
                client_id=context.client_id,
                access_key=context.access_key,
                owner=owner,
                address=context.remote,
                language=context.language or "JAVA",
                seen_ms=0,
                broker=self._brokers.name,
                ended=self.forget,
            )
        session.seen_ms = self._brokers.clock.steady_ms()
        session.address = context.remote
        session.request_timeout_ms = int(settings.request_timeout.seconds) * 1000
        return session

    async def _register(self, session: Session, shape: _Shape, context: Context) -> None:
        """Put a client into its groups. A producer's group is called like its topic."""
        kind, group_name, topics, consumer = shape
        for topic in topics:
            await self._routes.topic(context, topic)
        group = None if consumer is None else await self._routes.group(context, group_name)
        if kind == LITE_PUSH and consumer is not None:
            light_of(self._brokers)
            for entry in consumer.subscriptions:
                check_bound(group, entry.topic, group_name)
        consumers = () if consumer is None else (consumer,)
        data = HeartbeatData(client_id=session.client_id, producers=topics, consumers=consumers)
        client = Client(
            peer=session,
            client_id=session.client_id,
            language=session.language,
            version=context.caller.version,
            access_key=session.access_key,
            heard_at_ms=self._brokers.clock.now_ms(),
            # Members of groups of this front need not share queues out.
            balances=False,
        )
        await self._brokers.register(data, client, context.caller)
        session.version = context.caller.version
        if self._known.get((session.access_key, session.client_id)) is session:
            for listener in self._of_groups:
                listener(session, consumer)

    async def _merge(self, settings: Any, context: Context) -> None:
        """Add what the broker's side says of settings."""
        rules = self._rules
        if settings.WhichOneof("pub_sub") == "publishing":
            settings.publishing.max_body_size = rules.message_max
            settings.publishing.validate_message_type = rules.check_type
            settings.backoff_policy.max_attempts = rules.send_attempts
            backoff = settings.backoff_policy.exponential_backoff
            set_millis(backoff.initial, rules.send_backoff_ms)
            set_millis(backoff.max, rules.send_backoff_max_ms)
            backoff.multiplier = rules.send_backoff_times
        else:
            subscription = settings.subscription
            group = await self._routes.group(context, subscription.group.name)
            if group is not None:
                subscription.fifo = group.consume_message_orderly
                subscription.receive_batch_size = rules.batch_max
                set_millis(subscription.long_polling_timeout, rules.polling_max_ms)
                _set_policy(settings.backoff_policy, group)
            if settings.client_type == LITE_PUSH:
                subscription.lite_subscription_quota = told_quota(group)
                subscription.max_lite_topic_size = rules.light_bytes_max
        settings.metric.on = False

    # --- heartbeat and termination ---------------------------------------------------------------

    async def heartbeat(self, context: Context, request: Any) -> Any:
        """Keep a client in its groups."""
        session = self._required(context)
        if session.kind in CONSUMERS:
            check_group(request.group.name)
        session.address = context.remote
        await self._register(session, session.shape, context)
        return pb.HeartbeatResponse()

    async def terminate(self, context: Context, request: Any) -> Any:
        """Take a client out of its groups."""
        session = self._required(context)
        if session.kind in CONSUMERS:
            check_group(request.group.name)
        self.forget(session)
        return pb.NotifyClientTerminationResponse()

    def _required(self, context: Context) -> Session:
        session = self.find(context)
        if session is None:
            raise Rejected(Code.UNRECOGNIZED_CLIENT_TYPE, NO_SETTINGS)
        return session

    def forget(self, session: Session) -> None:
        """Forget a client."""
        if self._known.get((session.access_key, session.client_id)) is not session:
            return
        del self._known[session.access_key, session.client_id]
        self._shares.add(session.owner, -1)
        session.stream = None
        self._stream_ended(session)
        self._brokers.left(session)
        for listener in self._listeners:
            listener(session)

    async def sweep(self) -> None:
        """Forget clients that are silent, or sign otherwise now: the action of a timer."""
        self._end_expired()
        oldest_ms = self._brokers.clock.steady_ms() - IDLE_MS
        silent = [each for each in self._known.values() if each.seen_ms < oldest_ms]
        for session in silent:
            if not session.is_open:
                self.forget(session)

    def _end_expired(self) -> None:
        """Forget clients whose account is gone or signs otherwise, and end their streams."""
        guard = self._brokers.guard
        secrets = None if guard is None else guard.secrets
        if secrets is self._secrets:
            return
        self._secrets = secrets
        for session in [each for each in self._known.values() if not each.is_current()]:
            stream = session.stream
            self.forget(session)
            if stream is not None:
                stream.end(Rejected(Code.UNAUTHORIZED, "the account signs otherwise now"))


_Shape = tuple[int, str, tuple[str, ...], ConsumerData | None]


def _shape(settings: Any) -> _Shape:
    """Return (kind, group, topics, consumer) of settings. Raises Rejected."""
    kind = settings.client_type
    if settings.WhichOneof("pub_sub") == "publishing":
        names = tuple(dict.fromkeys(topic.name for topic in settings.publishing.topics))
        if len(names) > TOPICS_MAX:
            raise Rejected(Code.BAD_REQUEST, f"a producer may name {TOPICS_MAX} topics")
        for name in names:
            check_topic(name)
        return PRODUCER, "", names, None
    if kind not in CONSUMERS:
        shown = pb.name_of("ClientType", kind) or str(kind)
        raise Rejected(Code.UNRECOGNIZED_CLIENT_TYPE, f"clients of type {shown} are not served")
    group = settings.subscription.group.name
    check_group(group)
    subscriptions = settings.subscription.subscriptions
    if len(subscriptions) > TOPICS_MAX:
        raise Rejected(Code.BAD_REQUEST, f"a consumer may name {TOPICS_MAX} topics")
    consumer = ConsumerData(
        group=group,
        consume_type=ConsumeType.PASSIVELY if kind in PUSHED else ConsumeType.ACTIVELY,
        subscriptions=tuple(subscription_of(entry) for entry in subscriptions),
    )
    return kind, group, (), consumer


def subscription_of(entry: Any) -> Any:
    """Return the subscription of an entry of settings. Raises Rejected."""
    check_topic(entry.topic.name)
    return wanted_of(entry.topic.name, entry.expression)


def wanted_of(topic: str, expression: Any) -> Any:
    """Return what a filter expression takes. Raises Rejected."""
    kind = ExpressionType.SQL92 if expression.type == SQL else ExpressionType.TAG
    try:
        return tags.subscribe(topic, expression.expression, expression_type=kind)
    except tags.ExpressionError as error:
        raise Rejected(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from error


def _set_policy(target: Any, group: SubscriptionGroupConfig) -> None:
    target.Clear()
    target.max_attempts = min(group.retry_max_times + 1, ATTEMPTS_MAX)
    policy = group.retry_policy
    if policy.type is RetryPolicyType.EXPONENTIAL:
        backoff = target.exponential_backoff
        set_millis(backoff.initial, policy.initial_ms or _INITIAL_MS)
        set_millis(backoff.max, policy.max_ms or _LONGEST_MS)
        backoff.multiplier = policy.multiplier or _TIMES
        return
    for pause_ms in policy.next_ms or _DEFAULT_PAUSES_MS:
        set_millis(target.customized_backoff.next.add(), pause_ms)


def pause_ms(policy: RetryPolicy, attempt: int) -> int:
    """Return how long a message pauses after so many failed deliveries."""
    if policy.type is RetryPolicyType.EXPONENTIAL:
        first = policy.initial_ms or _INITIAL_MS
        most = policy.max_ms or _LONGEST_MS
        times = policy.multiplier or _TIMES
        # More doublings than bits would only cost time.
        return int(min(most, first * times ** min(attempt, 32)))
    pauses = policy.next_ms or _DEFAULT_PAUSES_MS
    return pauses[min(attempt, len(pauses) - 1)]
