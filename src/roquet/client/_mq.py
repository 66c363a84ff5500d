"""A connection to a cluster, and what is made of it."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
import socket
import weakref
from typing import TYPE_CHECKING, Literal, Self

from roquet.acl.credentials import Credentials, from_environment
from roquet.admin import Admin
from roquet.base.arguments import a_function, a_text, an_instance
from roquet.base.clock import SystemClock
from roquet.base.config import env_name
from roquet.base.errors import UsageError
from roquet.client._answers import Answers
from roquet.client._cluster.admin import SessionCalls
from roquet.client._cluster.broker_calls import BrokerCalls
from roquet.client._cluster.events import Events
from roquet.client._cluster.members import Members
from roquet.client._cluster.name_servers import NameServers
from roquet.client._cluster.namespace import Namespace
from roquet.client._cluster.routes import RouteBook
from roquet.client._cluster.session import Session
from roquet.client._cluster.target import parse
from roquet.client._consuming.give_back import GiveBack, TryHere
from roquet.client._consuming.helpers import Helpers
from roquet.client._consuming.pull_consumer import PullConsumer
from roquet.client._consuming.push_consumer import Consumer
from roquet.client._consuming.subscribers import Subscribers
from roquet.client._options import ConsumerOptions, ProducerOptions
from roquet.client._popping.simple_consumer import SimpleConsumer
from roquet.client._queues.balancer import Balancer
from roquet.client._queues.local_offsets import LocalOffsets
from roquet.client._queues.offsets import Offsets
from roquet.client._replies import Replies
from roquet.client._sending.producer import Producer
from roquet.client._sending.sequences import Sequences
from roquet.client._sending.transactions import TransactionProducer
from roquet.client._signals import until_signal
from roquet.client._subscriptions import subscribed
from roquet.client._tracing.tracer import Tracer
from roquet.protocol import names
from roquet.protocol.messages.message_id import UniqueIds
from roquet.remoting.client import Client
from roquet.remoting.tls import TLS_ENABLE, TlsOptions, client_tls, environment_options
from roquet.service.http.address_server import AddressLookup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from roquet.admin.calls import Calls
    from roquet.base.clock import Clock
    from roquet.base.errors import RoquetError
    from roquet.client._queues.offsets import Start
    from roquet.client._received import Received
    from roquet.client._sending.transactions import Check
    from roquet.client._subscriptions import Subscriptions
    from roquet.model.subscription import SubscriptionData
    from roquet.remoting.router import Peer

    Handler = Callable[[Received], Awaitable[None]]
    BatchHandler = Callable[[Sequence[Received]], Awaitable[None]]
    _Made = Producer | Consumer | PullConsumer | SimpleConsumer


class MQ:
    """A client of one cluster. Get it from `roquet.connect` and use it with `async with`."""

    def __init__(
        self,
        url: str,
        *,
        tls: TlsOptions | None = None,
        credentials: Credentials | None = None,
        events: Events | None = None,
        trace: bool | str = False,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Connect to nothing yet. Raises UsageError for a bad URL."""
        target = parse(url)
        if target.credentials is not None and credentials is not None:
            raise UsageError("give credentials in the URL or as an argument, not both")
        credentials = credentials or target.credentials
        if target.is_tls and tls is None:
            tls = TlsOptions()
        self._namespace = Namespace(target.namespace)
        self._events = events or Events()
        self._subscribers = Subscribers()
        self._checks: dict[str, Check] = {}
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
            events=self._events,
        )
        self._calls = BrokerCalls(self._session)
        self._ids = UniqueIds(socket.inet_aton(address), os.getpid(), self._rng.getrandbits(32))
        if trace:
            topic = names.TRACE_TOPIC if trace is True else self._namespace.topic(trace)
            self._session.tracer = Tracer(self._session, topic, self._ids, self._rng)
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
            if self._session.tracer is not None:
                self._session.tracer.start()

    async def close(self) -> None:
        """Close producers and consumers still open, then all connections. Twice is once."""
        if self._started:
            self._started = False
            for made in tuple(self._made):
                await made.close()
            if self._session.tracer is not None:
                await self._session.tracer.stop()
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
        an_instance("options", options, ProducerOptions, optional=True)
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
        self, group: str, check: Check | None = None, *, options: ProducerOptions | None = None
    ) -> TransactionProducer:
        """Make a producer of transactions. `check(message)` says how one ended, when brokers ask.

        It is asked about every open transaction of the group, also about those of members that
        have died; without it the group's `transaction_checker` is. Raises UsageError for a bad
        group name, and where there is neither.
        """
        group = self._group(group)
        an_instance("options", options, ProducerOptions, optional=True)
        a_function("check", check)
        check = check or self._checks.get(group)
        if check is None:
            raise UsageError(f"transactions of {group} need a check, or a `transaction_checker`")
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

    def sequences(self, group: str) -> Sequences:
        """Return sends in sequence, for brokers of ours. Raises UsageError for a bad name."""
        return Sequences(self._session, self._group(group))

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
        an_instance("options", options, ConsumerOptions, optional=True)
        chosen = options or ConsumerOptions()
        if chosen.on_error is None:
            chosen = dataclasses.replace(chosen, on_error=self._events.on_error)
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
        an_instance("options", options, ConsumerOptions, optional=True)
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
        an_instance("options", options, ConsumerOptions, optional=True)
        made = SimpleConsumer(
            session=self._session,
            group=group,
            subscriptions=self._subscriptions(subscriptions),
            options=options or ConsumerOptions(),
            starts_latest=start == "latest",
        )
        self._made.add(made)
        return made

    def subscriber(
        self,
        subscriptions: Subscriptions,
        *,
        group: str,
        concurrency: int = 20,
        start: Start = "latest",
        ordered: bool = False,
        options: ConsumerOptions | None = None,
    ) -> Callable[[Handler], Handler]:
        """Decorate the function that handles each message of a group; `run` or `serve` starts it.

        A return acknowledges, an exception means `retry`. Up to `concurrency` run at a time; the
        other arguments are those of `consumer`. Raises UsageError.

        @mq.subscriber("orders", group="billing")
        async def bill(message: roquet.Received) -> None: ...
        """

        def register(handler: Handler) -> Handler:
            made = self.consumer(
                group, subscriptions, start=start, ordered=ordered, options=options
            )
            self._subscribers.add(made, lambda: made.run(handler, concurrency=concurrency))
            return handler

        return register

    def batch_subscriber(
        self,
        subscriptions: Subscriptions,
        *,
        group: str,
        size: int = 32,
        linger_s: float = 0.0,
        concurrency: int = 1,
        start: Start = "latest",
        options: ConsumerOptions | None = None,
    ) -> Callable[[BatchHandler], BatchHandler]:
        """Decorate the function that handles batches of a group; `run` or `serve` starts it.

        Arguments are those of `Consumer.run_batches` and of `consumer`. Raises UsageError.
        """

        def register(handler: BatchHandler) -> BatchHandler:
            made = self.consumer(group, subscriptions, start=start, options=options)

            async def run() -> None:
                await made.run_batches(
                    handler, size=size, linger_s=linger_s, concurrency=concurrency
                )

            self._subscribers.add(made, run)
            return handler

        return register

    def transaction_checker(self, group: str) -> Callable[[Check], Check]:
        """Decorate the check of a group's transactions; see `transaction_producer`."""
        group = self._group(group)

        def register(check: Check) -> Check:
            self._checks[group] = check
            return check

        return register

    async def serve(self) -> None:
        """Consume for all subscribers until they are stopped. Raises what ends one of them."""
        await self._subscribers.serve()

    async def drain(self, timeout_s: float = 30.0) -> bool:
        """End in good order: wait for what was submitted and for what consumers gave out; close.

        Returns whether all was done in `timeout_s`; messages that were not settled come again.
        """
        consumers = [made for made in self._made if isinstance(made, Consumer)]
        done = await asyncio.gather(*(made.drain(timeout_s) for made in consumers))
        await self.close()
        return all(done)

    async def run(self, *work: Awaitable[object], drain_s: float = 30.0) -> None:
        """Run subscribers and `work` to their end, or until SIGTERM or SIGINT.

        Without either it waits for the signal.

        At the signal consumers give out no more messages: their loops end after the message in
        hand, they commit and leave their groups. What still runs after `drain_s` is cancelled, and
        at a second signal at once. Call it on the main thread. Raises what `work` raises.

        await mq.run(consumer.run(handle))
        """
        every = (*work, self.serve()) if self._subscribers else work
        await until_signal(every, self.stop_consumers, drain_s)
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
        a_text("group", group)
        wrapped = self._namespace.group(group)
        wrong = names.check_group(wrapped)
        if wrong is not None:
            raise UsageError(wrong)
        return wrapped

    def _subscriptions(self, given: Subscriptions) -> list[SubscriptionData]:
        return subscribed(given, self._namespace, self._clock.now_ms())

    def _nanos(self) -> int:
        return self._clock.now_ms() * 1_000_000 + self._rng.randrange(1_000_000)


def connect(
    url: str,
    *,
    tls: TlsOptions | bool | None = None,
    credentials: Credentials | None = None,
    on_error: Callable[[RoquetError], None] | None = None,
    on_disconnect: Callable[[str], None] | None = None,
    trace: bool | str = False,
) -> MQ:
    """Make a client of the cluster behind name servers: `rmq://host:port[;host:port]`.

    `rmq://key:secret@host?namespace=shop` signs requests and puts `shop%` before names of topics
    and groups; `%40` stands for @ in a secret. `rmqs://` is the same over TLS. An `http://` URL is
    that of an address server's page, which has the list of name servers.

    Use it as `async with roquet.connect(...) as mq:`. `tls` is how connections are secured: True
    for certificates that this system trusts, None for what the environment says (ROQUET_TLS_ENABLE
    and its like; without them, no TLS unless the URL asks for it). `credentials` sign all requests;
    without the argument and those of the URL the environment's do (ROQUET_ACCESS_KEY and
    ROQUET_SECRET_KEY, or ROQUET_CREDENTIALS_FILE), if there are any.

    `on_error` is called with what goes wrong in the background: heartbeats that are refused, and
    troubles of consumers that have no `on_error` of their own. `on_disconnect` is called with the
    address of a server whose connection is gone; a new one is made when it is needed.

    With `trace` producers and consumers write what becomes of each message to a topic, as Java's
    clients do: RMQ_SYS_TRACE_TOPIC for True (brokers have it with traceTopicEnable=true), else the
    topic named. `roquet msg trace` and RocketMQ's tools show it.

    Raises UsageError for a bad URL or environment; a name server that is away shows at the first
    use.
    """
    a_text("url", url)
    an_instance("credentials", credentials, Credentials, optional=True)
    if not isinstance(tls, bool):
        an_instance("tls", tls, TlsOptions, optional=True)
    if not isinstance(trace, bool):
        a_text("trace", trace)
    a_function("on_error", on_error)
    a_function("on_disconnect", on_disconnect)
    target = parse(url)
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
    return MQ(
        url, tls=tls, credentials=credentials, events=Events(on_error, on_disconnect), trace=trace
    )


def _local_address(name_server: str) -> str:
    """Return the IPv4 address that this host uses towards a name server; no packet is sent."""
    host, _, port = name_server.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
