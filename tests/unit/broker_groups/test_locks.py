"""Leases on queues: who holds one, until when, and who may take it over."""

from __future__ import annotations

from roquet.broker.clients.locks import LOCK_EXPIRES_MS, QueueLocks
from roquet.model.queue import MessageQueue

A, B, C = (MessageQueue("Orders", "broker-a", n) for n in range(3))


def test_a_second_client_gets_only_what_is_free() -> None:
    locks = QueueLocks()
    assert locks.lock("g", "one", [A, B], 0) == [A, B]
    assert locks.lock("g", "two", [A, B, C], 1) == [C]
    assert locks.lock("other group", "two", [A], 1) == [A]


def test_a_lease_lasts_a_minute_to_the_millisecond_and_then_may_be_taken() -> None:
    locks = QueueLocks()
    locks.lock("g", "one", [A], 0)
    assert locks.lock("g", "two", [A], LOCK_EXPIRES_MS) == []
    assert locks.lock("g", "two", [A], LOCK_EXPIRES_MS + 1) == [A]
    assert locks.lock("g", "one", [A], LOCK_EXPIRES_MS + 2) == []


def test_renewing_counts_from_the_renewal_even_after_expiry() -> None:
    locks = QueueLocks()
    locks.lock("g", "one", [A], 0)
    assert locks.lock("g", "one", [A], 100_000) == [A]
    assert locks.lock("g", "two", [A], 160_000) == []


def test_only_the_holder_gives_a_queue_back() -> None:
    locks = QueueLocks()
    locks.lock("g", "one", [A, B], 0)
    locks.unlock("g", "two", [A, B, C])
    locks.unlock("nobody", "one", [A])
    assert len(locks) == 2
    locks.unlock("g", "one", [A])
    assert locks.lock("g", "two", [A, B], 1) == [A]


def test_a_group_holds_locks_only_while_one_is_alive() -> None:
    locks = QueueLocks()
    assert not locks.holds_any("g", 0)
    locks.lock("g", "one", [A], 0)
    locks.lock("g", "one", [B], 30_000)
    assert locks.holds_any("g", 90_000)
    assert not locks.holds_any("g", 90_001)


def test_sweeping_forgets_what_has_run_out_and_nothing_else() -> None:
    locks = QueueLocks()
    locks.lock("g", "one", [A], 0)
    locks.lock("g", "one", [B], 50_000)
    locks.lock("gone", "two", [A, B], 0)
    assert locks.sweep(60_001) == 3
    assert len(locks) == 1
    assert locks.lock("g", "two", [A, B], 60_002) == [A]


def test_more_queues_than_the_limit_are_not_granted() -> None:
    locks = QueueLocks(locks_max=2)
    assert locks.lock("g", "one", [A, B, C], 0) == [A, B]
    assert locks.lock("h", "one", [A], 0) == []
    locks.unlock("g", "one", [A])
    assert locks.lock("h", "one", [A], 0) == [A]
    assert len(locks) == 2


def test_one_connection_gets_a_share_of_the_leases_and_no_more() -> None:
    locks = QueueLocks(holder_max=2)
    assert locks.lock("g", "one", [A, B, C], 0, "first") == [A, B]
    assert locks.lock("h", "other name", [A], 0, "first") == []
    assert locks.lock("g", "two", [C], 0, "second") == [C]
    # Renewing takes no more, giving back makes room, a lease that ran out is nobody's.
    assert locks.lock("g", "one", [A, B, C], 1, "first") == [A, B]
    locks.unlock("g", "one", [A], "second")
    assert locks.lock("h", "one", [A], 1, "first") == []
    locks.unlock("g", "one", [A], "first")
    assert locks.lock("h", "one", [A], 1, "first") == [A]
    assert locks.sweep(LOCK_EXPIRES_MS + 2) == 3
    assert locks.lock("i", "one", [A, B, C], 2, "first") == [A, B]


def test_a_client_that_came_back_on_another_connection_takes_its_leases_along() -> None:
    locks = QueueLocks(holder_max=2)
    assert locks.lock("g", "one", [A, B], 0, "first") == [A, B]
    assert locks.lock("g", "one", [A, B, C], 1, "second") == [A, B]
    assert locks.lock("h", "one", [A, B, C], 2, "first") == [A, B]
    assert len(locks) == 4
