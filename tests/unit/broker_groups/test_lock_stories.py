"""Leases on queues and subscriptions after any story: what is counted is what there is."""

from __future__ import annotations

import collections
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.broker.clients.locks import LOCK_EXPIRES_MS, QueueLocks
from roquet.broker.clients.registry import (
    EXPRESSION_WEIGHT,
    ConsumerGroup,
    Consuming,
    Registry,
    weight_of,
)
from roquet.model.queue import MessageQueue
from roquet.model.subscription import SubscriptionData

if TYPE_CHECKING:
    from collections.abc import Hashable

QUEUES = [MessageQueue("t", "b", number) for number in range(4)]
HOLDERS = (("c", 1), ("c", 2))


def counted(it: QueueLocks) -> tuple[dict[Hashable, int], int]:
    """Return leases by holder, and all; no group without one is kept."""
    assert all(it._groups.values())
    leases = [lease for held in it._groups.values() for lease in held.values()]
    return dict(collections.Counter(lease.holder for lease in leases)), len(leases)


@pytest.mark.parametrize("seed", range(20))
def test_leases_after_any_story_are_counted_by_holder(seed: int) -> None:
    draw = random.Random(seed)
    it = QueueLocks(locks_max=5, holder_max=3)
    now_ms = 0
    for _ in range(60):
        group, client = draw.choice("gh"), draw.choice("xy")
        holder = draw.choice(HOLDERS)
        queues = draw.sample(QUEUES, draw.randrange(1, 4))
        before = {(name, queue) for name, held in it._groups.items() for queue in held}
        alive = {
            key: it._groups[key[0]][key[1]]
            for key in before
            if now_ms - it._groups[key[0]][key[1]].taken_ms <= LOCK_EXPIRES_MS
        }
        what = draw.random()
        if what < 0.6:
            others = {key for key, lease in alive.items() if lease.client_id != client}
            granted = it.lock(group, client, queues, now_ms, holder)
            assert not {(group, queue) for queue in granted} & others
            for queue in granted:
                lease = it._groups[group][queue]
                assert (lease.client_id, lease.holder, lease.taken_ms) == (client, holder, now_ms)
        elif what < 0.8:
            asker = draw.choice((None, holder))
            mine = {
                (group, queue)
                for queue in queues
                if (known := it._groups.get(group, {}).get(queue)) is not None
                and known.client_id == client
                and (asker is None or known.holder == asker)
            }
            it.unlock(group, client, queues, asker)
            assert {(name, queue) for name, held in it._groups.items() for queue in held} == (
                before - mine
            )
        elif what < 0.9:
            assert it.sweep(now_ms) == len(before) - len(alive)
            assert {(name, queue) for name, held in it._groups.items() for queue in held} == set(
                alive
            )
        else:
            now_ms += draw.choice((1, LOCK_EXPIRES_MS - 1, LOCK_EXPIRES_MS + 1))
        by_holder, count = counted(it)
        assert dict(it._held_by) == {name: n for name, n in by_holder.items() if n}
        assert len(it) == count <= 5
        assert all(n <= 3 for n in by_holder.values())


def test_leases_are_as_many_as_the_limits() -> None:
    it = QueueLocks(locks_max=3, holder_max=2)
    assert it.lock("g", "x", QUEUES, 0, "one") == QUEUES[:2]
    assert it.lock("g", "x", QUEUES[:2], 1, "one") == QUEUES[:2], "renewed ones need no room"
    assert it.lock("h", "y", QUEUES, 0, "two") == QUEUES[:1]
    # A lease that another connection of the client takes over counts for that one.
    assert it.lock("g", "x", QUEUES[:1], 2, "two") == QUEUES[:1]
    assert dict(it._held_by) == {"one": 1, "two": 2}
    assert it.lock("g", "x", QUEUES[1:2], 2, "two") == []
    it.unlock("g", "x", QUEUES, "one")
    assert (dict(it._held_by), len(it)) == ({"two": 2}, 2)


@pytest.mark.parametrize(
    ("length", "weight"),
    [(0, 1), (EXPRESSION_WEIGHT - 1, 1), (EXPRESSION_WEIGHT, 2), (3 * EXPRESSION_WEIGHT, 4)],
)
def test_long_expression_weighs_more(length: int, weight: int) -> None:
    found = SubscriptionData(topic="t", expression="x" * length, version=1)
    assert weight_of(found) == weight


def subscriptions(draw: random.Random) -> list[SubscriptionData]:
    return [
        SubscriptionData(
            topic=topic,
            expression="x" * draw.choice((1, EXPRESSION_WEIGHT, 5 * EXPRESSION_WEIGHT)),
            version=draw.randrange(4),
        )
        for topic in draw.sample("abcd", draw.randrange(4))
    ]


@pytest.mark.parametrize("seed", range(10))
def test_subscriptions_after_any_story_are_counted_by_weight(seed: int) -> None:
    draw = random.Random(seed)
    registry = cast("Any", SimpleNamespace(subscribed=0))
    group = ConsumerGroup("g", Consuming())
    for _ in range(40):
        wanted = subscriptions(draw)
        before = {topic: it.version for topic, it in group.subscriptions.items()}
        changed = Registry._merge(registry, group, wanted)
        assert changed == (set(before) != {it.topic for it in wanted})
        assert set(group.subscriptions) == {it.topic for it in wanted}
        for it in wanted:
            newer = it.topic not in before or it.version > before[it.topic]
            assert (group.subscriptions[it.topic] is it) == newer
        assert registry.subscribed == sum(map(weight_of, group.subscriptions.values()))
