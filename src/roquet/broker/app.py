"""The broker put together: which parts there are, in what order, with which timers.

`build` wires and starts nothing; entering the App starts the parts from top to bottom, leaving it
stops them from bottom to top: the name servers forget the broker first, then its ports close, the
requests in hand are finished, the store is flushed and closed, and the tables are saved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import random
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import RoquetError
from roquet.base.limits import FRAME_SIZE_MAX
from roquet.broker.boot import boot_lines
from roquet.broker.clients.expressions import Expressions
from roquet.broker.fastpath.admission import FastIngest
from roquet.broker.fastpath.inline_sync import InlineSyncPolicy
from roquet.broker.messages.put_hooks import put_hooks
from roquet.broker.messages.schedule import DelayLevels
from roquet.broker.network.routes import Routed, all_routes, explain_routes
from roquet.broker.remoting.clients.heartbeats import ClientAdapter
from roquet.broker.remoting.clients.queue_locks import LockAdapter
from roquet.broker.remoting.rpc_hooks import hooked
from roquet.broker.wiring.base import make_base, make_broker_properties
from roquet.broker.wiring.duties import RoleDoor, make_duties
from roquet.broker.wiring.fronts.administration import make_administration
from roquet.broker.wiring.fronts.remoting import make_adapters
from roquet.broker.wiring.fronts.services import make_services
from roquet.broker.wiring.fronts.wrappers import make_fronts, with_light
from roquet.broker.wiring.light import make_light_service
from roquet.broker.wiring.messages import (
    make_admission,
    make_appender,
    make_clients,
    make_fast_fail,
    make_light_queues,
    make_locks,
    make_schedule,
    share_holds,
)
from roquet.broker.wiring.network import (
    make_answers,
    make_listeners,
    make_registration,
    make_routers,
)
from roquet.broker.wiring.parts import list_parts
from roquet.broker.wiring.pop import make_assignments, make_pop, make_revive
from roquet.broker.wiring.replication import make_pair, make_replicas
from roquet.broker.wiring.timers import make_timers
from roquet.broker.wiring.transactions import make_transactions
from roquet.remoting.connections.fast_ingest import FastPath
from roquet.remoting.connections.native import threads_here
from roquet.service.lifecycle import App
from roquet.service.process import runtime
from roquet.service.process.supervisor import supervised

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from roquet.base.clock import Clock
    from roquet.broker.config import BrokerConfig
    from roquet.broker.metadata import Metadata
    from roquet.broker.network.ports import Listeners
    from roquet.broker.operations.local import LocalBroker
    from roquet.broker.operations.table import Operations
    from roquet.broker.replication.duties import Duties
    from roquet.broker.services.bundle import Services
    from roquet.broker.state import BrokerState, Identity
    from roquet.broker.wiring.replication import Pair
    from roquet.remoting.router import Route, Router
    from roquet.service.http.health import Health
    from roquet.store.store import MessageStore

log = logging.getLogger(__name__)

START_FAILED = -3


@dataclasses.dataclass(frozen=True, slots=True)
class Broker:
    """A broker that is built but not started: enter `app` to run it."""

    app: App
    identity: Identity
    listeners: Listeners
    router: Router
    routes: Sequence[Route]
    store: MessageStore
    metadata: Metadata
    health: Health
    path: FastPath
    state: BrokerState
    pair: Pair
    services: Services
    operations: Operations
    """What further fronts call."""
    local: LocalBroker
    """The same, and what else such a front needs."""
    duties: Duties
    """Changes what the broker is charged with while it runs."""


def build(
    config: BrokerConfig, clock: Clock | None = None, rng: random.Random | None = None
) -> Broker:
    """Wire a broker. Nothing is opened or read before the app is entered."""
    base = make_base(config, clock or SystemClock(), rng or random.Random())  # noqa: S311
    delays = DelayLevels(config.store.delay_levels)
    schedule = make_schedule(base, delays)
    clients, replicas = make_clients(base), make_replicas(base)
    timers, lights = make_timers(base), make_light_queues(base)
    hooks = put_hooks(base.state, delays, timers=timers.conversion, lights=lights)
    appender = make_appender(base, hooks, replicas)
    transactions = make_transactions(base, appender.inner)
    revive = make_revive(base, appender.inner, timers)
    pop = make_pop(base, appender.inner, lights, revive)
    door, fast_fail, expressions = RoleDoor(), make_fast_fail(base), Expressions()
    services = make_services(
        base, appender, fast_fail, transactions, expressions=expressions, timers=timers, pop=pop
    )
    answers, rows = make_answers(base), pop.rows(base, timers)
    remoting, local = make_fronts(base, services, pop, answers, clients)
    adapters = make_adapters(base, services, remoting, appender, make_broker_properties(base).ext)
    client_adapter = ClientAdapter(clients, base.callers, base.clock)
    routed: list[Routed] = [
        *adapters.all,
        client_adapter,
        *pop.routed,
        *make_administration(base, schedule, transactions, timers, door),
    ]
    asked = (base, fast_fail, expressions, delays, answers)
    admission = make_admission(*asked, hooks=hooks, halves=transactions.door, pop=rows)
    path = FastPath(
        *(admission, base.held_clock, base.rng.getrandbits(64)),
        threads=threads_here(base.config.server.io_threads),
        rest=base.rest,
    )
    pop.use(path, rows)
    pair = make_pair(base, replicas, path)
    locks, assignments = make_locks(base, pair.client), make_assignments(base, pair.client)
    light = make_light_service(base, pop.light, pair.client)
    routed += [pair.admin, LockAdapter(locks, base.callers), assignments, *light.routed]
    routes = hooked(all_routes(routed), base.hooks)
    routers = make_routers(base, routes)
    leavers = [base.holds.drop_peer, pop.drop_peer, client_adapter.peer_closed]
    listeners = make_listeners(base, routers, path, leavers, answers)
    path.deliver_by(listeners.write)
    disk = InlineSyncPolicy(config.server.sync_in_place_us if config.store.sync_flush else 0)
    fast = FastIngest(path, admission, base.store, FRAME_SIZE_MAX, disk)
    share_holds(base, path, listeners, adapters.receive, pop)
    registration = make_registration(base, pair.client, pair.on_master)
    duties = door.duties = make_duties(base, pair, registration, pop, services.sequenced)
    parts = list_parts(
        *(base, schedule, clients, fast_fail),
        (fast, listeners),
        locks=locks,
        transactions=transactions,
        timers=timers,
        revive=revive,
        pop=pop,
        light=light,
        pair=pair,
        registration=registration,
        topics=services.topics,
    )
    app = duties.of(App(parts, base.clock, duties.role.duties))
    seen = (base.store, base.metadata, base.health, path, base.state, pair, services)
    fronts = (local.operations, with_light(local, base, light, path, answers), duties)
    return Broker(app, base.identity, listeners, routers[0], routes, *seen, *fronts)


def explain(config: BrokerConfig, what: str = "all") -> str:
    """Return the parts in order and the request codes: what `--explain` prints.

    `what` may be `parts` or `routes`: one of the two alone.
    """
    broker = build(config)
    if what == "routes":
        return explain_routes(broker.routes)
    if what == "parts":
        return broker.app.explain()
    return f"role {config.identity.role}\n\n{broker.app.explain()}\n\n{broker.router.explain()}"


async def serve(
    config: BrokerConfig,
    stop: asyncio.Event,
    say: Callable[[str], None] = print,
    beside: Callable[[Broker], AbstractAsyncContextManager[list[str]]] | None = None,
) -> int:
    """Run a broker until `stop` is set; return the exit code of the process.

    `beside` runs a further front as long as the broker, and yields lines to be said.
    """
    broker = build(config)
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(broker.app)
            more = [] if beside is None else await stack.enter_async_context(beside(broker))
        except (RoquetError, OSError) as error:
            say(f"the broker cannot start: {error}")
            return START_FAILED
        runtime.settle()
        for line in [*boot_lines(config, broker.identity, broker.listeners), *more]:
            say(line)
        async with supervised(os.environ, SystemClock()):
            await stop.wait()
    return 0
