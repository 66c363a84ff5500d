"""Which modules hold rules, and which tests are there for them."""

from __future__ import annotations

from typing import NamedTuple


class Area(NamedTuple):
    """Rules that belong together."""

    name: str
    modules: tuple[str, ...]
    """Modules or folders, below src/roquet."""
    tests: tuple[str, ...]
    """Files or folders, below tests; only those of their tests run that reach the changed line."""


_BROKER = (
    "unit/broker",
    "unit/broker_groups",
    "unit/broker_transactions",
    "unit/broker_admin",
    "unit/store",
)
AREAS = (
    Area(
        "sends",
        (
            "broker/messages/appender.py",
            "broker/fastpath/admission.py",
            "broker/services/topic_checks.py",
            "broker/network/fast_fail.py",
            "broker/services/send/service.py",
            "broker/services/send/batches.py",
            "broker/remoting/send/batching.py",
            "broker/services/send_back.py",
            "broker/messages/schedule.py",
        ),
        (*_BROKER, "unit/ha", "unit/broker_timers"),
    ),
    Area(
        "pulls and offsets",
        (
            "broker/clients/long_polling.py",
            "broker/services/receive.py",
            "broker/services/receive_checks.py",
            "broker/remoting/receive.py",
            "broker/services/offsets.py",
            "broker/clients/expressions.py",
            "store/tables/offsets.py",
            "store/tables/filters.py",
        ),
        (*_BROKER, "unit/ha"),
    ),
    Area(
        "groups and tables",
        (
            "broker/clients/locks.py",
            "broker/clients/lock_votes.py",
            "broker/clients/registry.py",
            "broker/services/clients/queue_locks.py",
            "store/tables/topics.py",
            "store/tables/groups.py",
            "store/housekeeping/cleaning.py",
            "store/tables/files.py",
            "base/durable.py",
        ),
        (*_BROKER, "unit/ha", "unit/store_upkeep"),
    ),
    Area(
        "transactions",
        ("broker/transactions", "broker/services/transactions.py"),
        ("unit/broker_transactions", "unit/broker", "unit/broker_admin"),
    ),
    Area("access", ("acl",), ("unit/acl",)),
    Area("replication", ("ha", "broker/replication/pair.py"), ("unit/ha",)),
    Area(
        "recovery",
        (
            "store/upkeep",
            "store/store.py",
            "store/tables/room.py",
            "store/marks/diverged.py",
            "store/housekeeping/self_check.py",
            "store/housekeeping/steady_time.py",
        ),
        (*_BROKER, "unit/store_upkeep", "unit/ha", "unit/cli/test_doctor.py"),
    ),
    Area(
        "pop and timers",
        ("broker/pop", "broker/pop/receive", "broker/timers", "store/timer_wheel.py"),
        (
            "unit/broker_pop",
            "unit/broker_timers",
            "unit/broker_light",
            "unit/protocol/test_pop_handles.py",
            "unit/protocol/test_pop_records.py",
        ),
    ),
    Area(
        "client",
        (
            "client/_sending/producer.py",
            "client/_sending/delivery.py",
            "client/_sending/due.py",
            "client/_consuming/handout.py",
            "client/_queues/process_queue.py",
            "client/_queues/offsets.py",
            "client/_queues/rebalance.py",
            "client/_queues/balancer.py",
            "client/_sending/retry.py",
        ),
        ("unit/client",),
    ),
    Area(
        "relay",
        (
            "relay/registry.py",
            "relay/servers.py",
            "relay/peers/dispatch.py",
            "relay/master/machine.py",
        ),
        ("unit/relay",),
    ),
    Area(
        "spark",
        (
            "spark/offsets.py",
            "spark/reading/planning.py",
            "spark/sink/keys.py",
            "spark/reading/stream.py",
        ),
        (
            "unit/spark/test_spark_keys.py",
            "unit/spark/test_spark_offsets.py",
            "unit/spark/test_spark_planning.py",
            "unit/spark/test_spark_plan_rules.py",
            "unit/spark/test_spark_stream_rules.py",
            "unit/spark/test_spark_readers.py",
            "unit/spark/test_spark_metadata.py",
            "unit/spark/test_spark_failover.py",
            "unit/spark/test_spark_rules.py",
        ),
    ),
)
