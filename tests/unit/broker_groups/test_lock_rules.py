"""Leases by the rules of the service: on which queues, for whom, and with whose votes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.acl.needs import lock_needs
from roquet.base.errors import Refused, Unreachable
from roquet.broker.api.caller import Caller
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.clients.lock_votes import LockConfig, LockVotes
from roquet.broker.clients.locks import LOCK_EXPIRES_MS, QueueLocks
from roquet.broker.clients.registry import Client, Consuming, Registry
from roquet.broker.services.access import Access
from roquet.broker.services.clients import queue_locks
from roquet.broker.services.clients.queue_locks import Locks
from roquet.model.queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.locks import LockRequest
from roquet.testing.peer import FakePeer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.acl.needs import Need

ME = Caller(address="127.0.0.1:5")
T = [MessageQueue("t", "b", number) for number in range(3)]
"""All queues of the topic `t`."""


def asked(
    queues: Iterable[MessageQueue] = T, client_id: str = "c", group: str = "g", **more: bool
) -> LockRequest:
    return LockRequest(client_id=client_id, group=group, queues=frozenset(queues), **more)


class Votes:
    """Replicas that grant all queues whose number is even."""

    def __init__(self, *, needed: bool = True) -> None:
        self.needed = needed
        self.confirmed: list[tuple[LockRequest, list[MessageQueue]]] = []
        self.released: list[LockRequest] = []

    async def confirm(
        self, asked: LockRequest, granted: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        self.confirmed.append((asked, sorted(granted)))
        return sorted(queue for queue in asked.queues if queue.queue_id % 2 == 0)

    async def release(self, asked: LockRequest) -> None:
        self.released.append(asked)


class World:
    """A broker `b` with the topics `t` and `other`; the client `c` of group `g` reads `t`."""

    def __init__(self, votes: Votes | None = None, **limits: int) -> None:
        self.now_ms = 0
        self.leaves = False
        """Whether the client leaves its group while queues are locked."""
        self.needs: list[Need] = []
        self.leases = QueueLocks(**limits)
        self.registry = Registry()
        self.key = self.join("g", "c")
        topics = {
            "t": TopicConfig(name="t", read_queues=2, write_queues=3),
            "other": TopicConfig(name="other", read_queues=1, write_queues=0),
        }
        self.locks = Locks(
            self.leases,
            self.registry,
            cast("Any", SimpleNamespace(get=topics.get)),
            "b",
            votes,
            now_ms=self._time,
            access=Access(cast("Any", SimpleNamespace(require=self._require))),
        )

    def join(self, group: str, client_id: str, *topics: str) -> int:
        """Have a client join a group over a connection of its own; return its number."""
        peer = FakePeer()
        wanted = [SubscriptionData(topic=topic) for topic in topics or ("t",)]
        client = Client(peer, client_id, "JAVA", 513)
        self.registry.register_consumer(group, client, Consuming(), wanted, 0)
        return peer.key

    def lock(self, wanted: LockRequest, key: int | None = None) -> list[MessageQueue]:
        key = self.key if key is None else key
        return sorted(asyncio.run(self.locks.lock(wanted, key, ME)))

    def unlock(self, wanted: LockRequest, key: int | None = None) -> None:
        asyncio.run(self.locks.unlock(wanted, self.key if key is None else key, ME))

    def _time(self) -> int:
        if self.leaves:
            self.registry.unregister_consumer("g", self.key)
        return self.now_ms

    def _require(self, caller: Caller, needs: list[Need]) -> None:
        assert caller == ME
        self.needs += needs
        if any(need.name == "secret" for need in needs):
            raise Refused(1, "no permission")


# --- which queues --------------------------------------------------------------------------------

ODD = [
    MessageQueue("t", "b", -1),
    MessageQueue("t", "b", 3),
    MessageQueue("t", "elsewhere", 0),
    MessageQueue("gone", "b", 0),
]
OTHER = [MessageQueue("other", "b", 0), MessageQueue("other", "b", 1)]


def test_lease_is_granted_on_queues_of_this_broker_that_the_group_reads() -> None:
    world = World()
    assert world.lock(asked([*T, *ODD, *OTHER])) == T
    assert world.lock(asked([*OTHER, *ODD], group="behind a proxy")) == OTHER[:1]
    assert len(world.leases) == 4
    reads_both = world.join("g", "d", "t", "other")
    assert world.lock(asked(OTHER, "d"), reads_both) == OTHER[:1]


# --- who -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client_id", "is_own_connection", "granted"),
    [("c", True, T), ("c", False, []), ("d", True, []), ("d", False, [])],
)
def test_lease_is_for_the_client_that_this_connection_put_into_the_group(
    client_id: str, *, is_own_connection: bool, granted: list[MessageQueue]
) -> None:
    world = World()
    key = world.key if is_own_connection else world.key + 1
    assert world.lock(asked(client_id=client_id), key) == granted
    # Where no client of a group has shown itself, its proxy asks for it.
    assert world.lock(asked(client_id=client_id, group="h"), key) == T


def test_who_left_the_group_gives_back_what_this_connection_took() -> None:
    world = World()
    old, new = world.key, world.join("g", "c")
    assert world.lock(asked(T[:2]), old) == T[:2]
    assert world.lock(asked(T[2:]), new) == T[2:]
    world.registry.unregister_consumer("g", old)
    world.unlock(asked(), old)
    assert sorted(world.leases._groups["g"]) == T[2:]
    # A client that is in the group gives back what it took over any connection.
    newest = world.join("g", "c")
    world.unlock(asked(client_id="d"), newest)
    assert len(world.leases) == 1
    world.unlock(asked(), newest)
    assert len(world.leases) == 0


@pytest.mark.parametrize("refused", [asked(group=""), asked(client_id="")])
def test_request_without_group_or_client_is_refused(refused: LockRequest) -> None:
    world = World()
    for action in (world.lock, world.unlock):
        with pytest.raises(Refusal) as caught:
            action(refused)
        assert caught.value.reason == Reason.FAILED
        assert caught.match("consumerGroup and clientId are needed")


def test_account_needs_the_group_and_every_topic() -> None:
    world = World()
    wanted = asked([*T, *OTHER])
    world.lock(wanted)
    world.unlock(wanted)
    each = [need for needs in lock_needs(wanted) for need in needs]
    assert world.needs == [*each, *each]
    secret = asked([*T, MessageQueue("secret", "b", 0)], group="h")
    for action in (world.lock, world.unlock):
        with pytest.raises(Refusal) as caught:
            action(secret)
        assert caught.value.reason == Reason.ACCOUNT_REFUSED
    assert "h" not in world.leases._groups


# --- many queues, and time -----------------------------------------------------------------------


def test_client_that_leaves_while_queues_are_locked_gets_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_locks, "QUEUES_AT_ONCE", 2)
    world = World()
    world.join("g", "stays")

    world.leaves = True
    assert len(world.lock(asked())) == len(world.leases) == 2


@pytest.mark.parametrize("at_once", [1, 2, 3, 4])
def test_slices_leave_no_queue_out(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(queue_locks, "QUEUES_AT_ONCE", at_once)
    world = World()
    assert world.lock(asked()) == T
    world.unlock(asked())
    assert len(world.leases) == 0


def turns_of_others(world: World, wanted: LockRequest, *, unlock: bool) -> int:
    """Return how often another task had its turn while queues were locked or unlocked."""
    turns = 0

    async def run() -> None:
        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        action = world.locks.unlock if unlock else world.locks.lock
        await action(wanted, world.key, ME)
        counting.cancel()

    asyncio.run(run())
    return turns


@pytest.mark.parametrize("unlock", [False, True])
def test_others_have_their_turn_after_each_slice(
    monkeypatch: pytest.MonkeyPatch, *, unlock: bool
) -> None:
    turns: list[int] = []
    for at_once in (3, 2, 1):
        monkeypatch.setattr(queue_locks, "QUEUES_AT_ONCE", at_once)
        turns.append(turns_of_others(World(), asked(), unlock=unlock))
    assert [it - turns[0] for it in turns] == [0, 1, 2]


def test_timer_forgets_leases_that_have_run_out() -> None:
    world = World()
    assert world.lock(asked()) == T
    (timer,) = world.locks.timers
    for now_ms, left in ((LOCK_EXPIRES_MS, 3), (LOCK_EXPIRES_MS + 1, 0)):
        world.now_ms = now_ms
        asyncio.run(cast("Any", timer.action()))
        assert len(world.leases) == left
    assert (timer.pause_s, timer.first_after_s) == (60.0, 60.0)


# --- votes ---------------------------------------------------------------------------------------


def test_majority_decides_about_what_this_broker_may_grant_at_all() -> None:
    votes = Votes()
    world = World(votes)
    assert world.lock(asked([*T, *ODD])) == [T[0], T[2]]
    assert votes.confirmed == [(asked(T), T)]
    world.unlock(asked([*T, *ODD]))
    assert votes.released == [asked([*T, *ODD])]
    assert len(world.leases) == 0
    # For whom this broker grants nothing, nobody is asked for anything, nor told.
    assert world.lock(asked(client_id="d")) == []
    world.unlock(asked(client_id="d"))
    assert votes.confirmed[1:] == [(asked([], "d"), [])]
    assert len(votes.released) == 1


@pytest.mark.parametrize("votes", [None, Votes(needed=False)])
def test_without_strict_mode_nobody_else_is_asked(votes: Votes | None) -> None:
    world = World(votes)
    assert world.lock(asked()) == T
    # What would be a vote in strict mode is a request like any other.
    assert world.lock(asked(only_this_broker=True), world.key + 1) == []
    world.unlock(asked())
    assert votes is None or (votes.confirmed, votes.released) == ([], [])


def test_vote_is_for_a_member_of_any_connection_and_asks_no_further() -> None:
    votes = Votes()
    world = World(votes, holder_max=2)
    vote = asked(only_this_broker=True)
    replica, other_replica = 1001, 1002
    assert world.lock(asked(client_id="d", only_this_broker=True), replica) == []
    # Whichever replica asks, the leases count for the client.
    assert world.lock(asked(T[:2], only_this_broker=True), replica) == T[:2]
    assert world.lock(vote, other_replica) == T[:2]
    world.unlock(vote, other_replica)
    assert len(world.leases) == 0
    assert (votes.confirmed, votes.released) == ([], [])


@pytest.mark.parametrize("name_servers", [[], ["first:1", "second:1"]])
def test_without_a_name_server_that_answers_there_is_no_majority(name_servers: list[str]) -> None:
    called: list[str] = []

    async def call(address: str, *_: object) -> None:
        called.append(address)
        raise Unreachable("gone")

    votes = LockVotes(
        cast("Any", SimpleNamespace(call=call)),
        cast("Any", SimpleNamespace(cluster="c", name="b", broker_id=0)),
        name_servers,
        LockConfig(strict=True, replicas=3),
    )
    assert asyncio.run(votes.confirm(asked(), T)) == []
    asyncio.run(votes.release(asked()))
    assert called == [*name_servers, *name_servers]
