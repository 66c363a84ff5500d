"""A connection to a cluster, and what is made of it."""

from __future__ import annotations

import dataclasses
import os
import random
import socket
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Self, TypeGuard

from roquet.acl.credentials import Credentials, from_environment
from roquet.admin import Admin
from roquet.base.clock import SystemClock
from roquet.base.config import env_name
from roquet.base.errors import UsageError
from roquet.client import _target
from roquet.client._admin import SessionCalls
from roquet.client._answers import Answers
from roquet.client._balancer import Balancer
from roquet.client._broker_calls import BrokerCalls
from roquet.client._give_back import GiveBack, TryHere
from roquet.client._local_offsets import LocalOffsets
from roquet.client._members import Members
from roquet.client._name_servers import NameServers
from roquet.client._namespace import Namespace
from roquet.client._offsets import Offsets
from roquet.client._options import ConsumerOptions, ProducerOptions
from roquet.client._producer import Producer
from roquet.client._pull_consumer import PullConsumer
from roquet.client._push_consumer import Consumer, Helpers
from roquet.client._replies import Replies
from roquet.client._routes import RouteBook
from roquet.client._session import Session
from roquet.client._signals import until_signal
from roquet.client._simple_consumer import SimpleConsumer
from roquet.client._transactions import TransactionProducer
from roquet.model.subscription import ExpressionType, SubscriptionData
from roquet.protocol import names, tags
from roquet.protocol.message_id import UniqueIds
from roquet.protocol.sql92.compiler import compile_sql
from roquet.remoting.client import Client
from roquet.remoting.tls import TLS_ENABLE, TlsOptions, client_tls, environment_options
from roquet.service.address_server import AddressLookup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from roquet.admin.calls import Calls
    from roquet.base.clock import Clock
    from roquet.client._offsets import Start
    from roquet.client._transactions import Check
    from roquet.remoting.router import Peer

    _Made = Producer | Consumer | PullConsumer | SimpleConsumer
    Subscriptions = Mapping[str, "str | Sql | None"] | Iterable[str] | str


@dataclasses.dataclass(frozen=True, slots=True)
class Sql:
    """A subscription by SQL92 expression over properties instead of tags."""

    expression: str


class MQ:
    """A client of one cluster. Get it from `roquet.connect` and use it with `async with`."""

    def __init__(
        self,
        url: str,
        *,
        tls: TlsOptions | None = None,
        credentials: Credentials | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Connect to nothing yet. Raises UsageError for a bad URL."""
        target = _target.parse(url)
        if target.credentials is not None and credentials is not None:
            raise UsageError("give credentials in the URL or as an argument, not both")
        credentials = credentials or target.credentials
        if target.is_tls and tls is None:
            tls = TlsOptions()
        self._namespace = Namespace(target.namespace)
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()  # noqa: S311  (spreads load, guards nothing)
        address = _local_address(target.probe)
        self._members = Members(f"{address}@{os.getpid()}#{self._nanos()}")
        self._replies = Replies(self._rng)
        # `handlers` need the members, the session needs the client: hence the small knot.
        client = Client(
            clock=self._clock,
            handlers=Answers(self._members, self._replies, self._clock).routes(),
            on_close=self._connection_closed,
            tls=client_tls(tls, self._clock),
            sign=None if credentials is None else credentials.sign,
            explain_tls=True,
        )
        name_servers = NameServers(client, target.name_servers, self._rng)
        lookup = None
        if target.lookup is not None:
            lookup = AddressLookup(target.lookup, name_servers.use, self._clock)
        self._session = Session(
            client=client,
            name_servers=name_servers,
            book=RouteBook(),
            members=self._members,
            clock=self._clock,
            lookup=lookup,
            namespace=self._namespace,
        )
        self._calls = BrokerCalls(self._session)
        self._ids = UniqueIds(socket.inet_aton(address), os.getpid(), self._rng.getrandbits(32))
        self._made: weakref.WeakSet[_Made] = weakref.WeakSet()
        self._started = False

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def start(self) -> None:
        """Begin the background work; connections are made when they are needed."""
        if not self._started:
            self._started = True
            await self._session.start()

    async def close(self) -> None:
        """Close producers and consumers still open, then all connections. Twice is once."""
        if self._started:
            self._started = False
            for made in tuple(self._made):
                await made.close()
            await self._session.stop()

    @property
    def client_id(self) -> str:
        """How brokers know this client: `ip@pid#nanoseconds`."""
        return self._members.client_id

    def producer(
        self, group: str = names.DEFAULT_PRODUCER_GROUP, *, options: ProducerOptions | None = None
    ) -> Producer:
        """Make a producer. Raises UsageError for a bad group name."""
        group = self._group(group)
        made = Producer(
            session=self._session,
            group=group,
            options=options or ProducerOptions(),
            ids=self._ids,
            rng=self._rng,
            replies=self._replies,
        )
        self._made.add(made)
        return made

    def transaction_producer(
        self, group: str, check: Check, *, options: ProducerOptions | None = None
    ) -> TransactionProducer:
        """Make a producer of transactions. `check(message)` says how one ended, when brokers ask.

        It is asked about every open transaction of the group, also about those of members that
        have died. Raises UsageError for a bad group name.
        """
        group = self._group(group)
        made = TransactionProducer(
            session=self._session,
            group=group,
            options=options or ProducerOptions(),
            ids=self._ids,
            rng=self._rng,
            replies=self._replies,
            check=check,
        )
        self._made.add(made)
        return made

    def consumer(
        self,
        group: str,
        subscriptions: Subscriptions,
        *,
        start: Start = "latest",
        ordered: bool = False,
        options: ConsumerOptions | None = None,
    ) -> Consumer:
        """Make a consumer: `{topic: "tagA || tagB"}`, a topic, or several.

        `start` is for queues in which the group has no offset yet: `latest`, `earliest`, or a
        time in Unix milliseconds. An ordered consumer gets each queue's messages one by one.
        Raises UsageError.
        """
        group = self._group(group)
        chosen = options or ConsumerOptions()
        if chosen.broadcast and ordered:
            raise UsageError("a broadcasting consumer locks no queues: it cannot be an ordered one")
        helpers = self._helpers(group, start, chosen)
        made = Consumer(
            group=group,
            subscriptions=self._subscriptions(subscriptions),
            helpers=helpers,
            options=chosen,
            ordered=ordered,
            start=start,
        )
        self._made.add(made)
        return made

    def _helpers(self, group: str, start: Start, chosen: ConsumerOptions) -> Helpers:
        session, calls = self._session, self._calls
        if chosen.broadcast:
            folder = chosen.offsets_folder.expanduser()
            return Helpers(
                session=session,
                calls=calls,
                offsets=LocalOffsets(calls, group, start, folder),
                balancer=Balancer(session, calls, group, self._rng, broadcast=True),
                give_back=TryHere(group, chosen.retry_times_max),
            )
        return Helpers(
            session=session,
            calls=calls,
            offsets=Offsets(calls, group, start),
            balancer=Balancer(session, calls, group, self._rng),
            give_back=GiveBack(session, calls, group, chosen.retry_times_max),
        )

    def pull_consumer(self, group: str, *, options: ConsumerOptions | None = None) -> PullConsumer:
        """Make a pull consumer. Raises UsageError for a bad group name."""
        group = self._group(group)
        made = PullConsumer(
            session=self._session,
            calls=self._calls,
            group=group,
            options=options or ConsumerOptions(),
        )
        self._made.add(made)
        return made

    def simple_consumer(
        self,
        group: str,
        subscriptions: Subscriptions,
        *,
        start: Literal["earliest", "latest"] = "latest",
        options: ConsumerOptions | None = None,
    ) -> SimpleConsumer:
        """Make a consumer that receives and acknowledges messages one by one (POP of RocketMQ 5).

        `subscriptions` and `start` are as for `consumer`; members own no queues, and each message
        goes to whoever asks. Raises UsageError.
        """
        group = self._group(group)
        if start not in ("earliest", "latest"):
            raise UsageError("start has to be 'earliest' or 'latest'")
        made = SimpleConsumer(
            session=self._session,
            group=group,
            subscriptions=self._subscriptions(subscriptions),
            options=options or ConsumerOptions(),
            starts_latest=start == "latest",
        )
        self._made.add(made)
        return made

    async def run(self, *work: Awaitable[object], drain_s: float = 30.0) -> None:
        """Run `work` to its end, or until SIGTERM or SIGINT; without `work` until the signal.

        At the signal consumers give out no more messages: their loops end after the message in
        hand, they commit and leave their groups. What still runs after `drain_s` is cancelled, and
        at a second signal at once. Call it on the main thread. Raises what `work` raises.

        await mq.run(consumer.run(handle))
        """
        await until_signal(work, self.stop_consumers, drain_s)
        for made in tuple(self._made):
            if isinstance(made, Consumer):
                await made.close()

    def stop_consumers(self) -> None:
        """Have consumers give out no more messages; `run` does it at a signal."""
        for made in tuple(self._made):
            if isinstance(made, Consumer):
                made.stop()

    def admin(self, around: Callable[[Calls], Calls] | None = None) -> Admin:
        """Return administration: topics, groups, messages, brokers, name servers, accounts.

        `around` may put something around its requests.
        """
        calls: Calls = SessionCalls(self._session)
        return Admin(calls if around is None else around(calls))

    def _connection_closed(self, peer: Peer) -> None:
        self._session.connection_closed(peer)

    def _group(self, group: str) -> str:
        wrapped = self._namespace.group(group)
        wrong = names.check_group(wrapped)
        if wrong is not None:
            raise UsageError(wrong)
        return wrapped

    def _subscriptions(self, given: Subscriptions) -> list[SubscriptionData]:
        if isinstance(given, str):
            table: Mapping[str, str | Sql | None] = {given: "*"}
        elif _is_table(given):
            table = given
        else:
            table = dict.fromkeys(given, "*")
        if not table:
            raise UsageError("a consumer subscribes to at least one topic")
        now_ms = self._clock.now_ms()
        return [
            _subscription(self._namespace.topic(topic), expression, now_ms)
            for topic, expression in table.items()
        ]

    def _nanos(self) -> int:
        return self._clock.now_ms() * 1_000_000 + self._rng.randrange(1_000_000)


def connect(
    url: str, *, tls: TlsOptions | bool | None = None, credentials: Credentials | None = None
) -> MQ:
    """Make a client of the cluster behind name servers: `rmq://host:port[;host:port]`.

    `rmq://key:secret@host?namespace=shop` signs requests and puts `shop%` before names of topics
    and groups; `%40` stands for @ in a secret. `rmqs://` is the same over TLS. An `http://` URL is
    that of an address server's page, which has the list of name servers.

    Use it as `async with roquet.connect(...) as mq:`. `tls` is how connections are secured: True
    for certificates that this system trusts, None for what the environment says (ROQUET_TLS_ENABLE
    and its like; without them, no TLS unless the URL asks for it). `credentials` sign all requests;
    without the argument and those of the URL the environment's do (ROQUET_ACCESS_KEY and
    ROQUET_SECRET_KEY, or ROQUET_CREDENTIALS_FILE), if there are any. Raises UsageError for a bad
    URL or environment; a name server that is away shows at the first use.
    """
    target = _target.parse(url)
    if tls is None:
        # The environment has the certificates, whoever asks for TLS.
        asked = {env_name(TLS_ENABLE): "true"} if target.is_tls else {}
        tls = environment_options({**os.environ, **asked})
    elif tls is False and target.is_tls:
        raise UsageError("a rmqs:// URL asks for TLS, tls=False for none")
    elif isinstance(tls, bool):
        tls = TlsOptions() if tls else None
    if credentials is None and target.credentials is None:
        credentials = from_environment(os.environ)
    return MQ(url, tls=tls, credentials=credentials)


def _local_address(name_server: str) -> str:
    """Return the IPv4 address that this host uses towards a name server; no packet is sent."""
    host, _, port = name_server.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def _subscription(topic: str, expression: str | Sql | None, now_ms: int) -> SubscriptionData:
    wrong = names.check_topic(topic)
    if wrong is not None:
        raise UsageError(wrong)
    kind = ExpressionType.SQL92 if isinstance(expression, Sql) else ExpressionType.TAG
    text = expression.expression if isinstance(expression, Sql) else expression
    try:
        if isinstance(expression, Sql):
            compile_sql(expression.expression)
        return tags.subscribe(topic, text, version=now_ms, expression_type=kind)
    except tags.ExpressionError as error:
        raise UsageError(f"{topic}: {error}") from error


def _is_table(given: object) -> TypeGuard[Mapping[str, str | Sql | None]]:
    return isinstance(given, Mapping)
