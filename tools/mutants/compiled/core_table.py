"""Which files of the core hold rules, and which tests of Python's reach them.

Rust's own tests are all there for all groups: only those that run the changed function are run.
"""

from __future__ import annotations

from typing import NamedTuple


class Group(NamedTuple):
    """Rules that belong together."""

    files: tuple[str, ...]
    """Below crates/core/src."""
    python: tuple[str, ...]
    """Files or folders, below tests."""


_NATIVE = "unit/native"
_FAST = (
    _NATIVE,
    "unit/broker/test_pull_rules.py",
    "unit/broker/test_send_rules.py",
    "unit/broker/test_fast_broker.py",
)
"""Without tests/differential, which takes minutes: a rule that it alone holds wants a test."""
GROUPS = {
    "sends": Group(("ingest/send*.rs", "ingest/parked.rs", "ingest/scan.rs"), _FAST),
    "pulls": Group(("ingest/pull*.rs", "ingest/long_polling.rs", "store/get.rs"), _FAST),
    "offsets": Group(
        ("recovery/queue_ends.rs", "commit_log/offsets.rs", "ingest/books.rs"),
        (*_FAST, "unit/store"),
    ),
    "access": Group(("ingest/accounts.rs", "ingest/table.rs"), (*_FAST, "unit/acl")),
    "recovery": Group(
        (
            "recovery/mod.rs",
            "recovery/tail.rs",
            "recovery/checkpoint.rs",
            "recovery/extent.rs",
            "disk/note_file.rs",
            "consume_queue/load.rs",
            "consume_queue/queue.rs",
        ),
        (_NATIVE,),
    ),
    "replication": Group(
        ("ha/*.rs", "commit_log/replica.rs", "store/replica.rs"), (_NATIVE, "unit/ha")
    ),
    "timers": Group(("timer/*.rs",), (_NATIVE, "unit/broker_timers")),
}
_WAITED = "test_send_that_waited_too_long_itself_is_refused_and_later_ones_are_taken"
_SWITCHED = "test_a_busy_thread_costs_a_switch_a_read_not_a_switch_a_message"
UNSURE = (
    f"unit/broker/test_fast_broker.py::{_WAITED}",
    f"unit/native/test_gil.py::{_SWITCHED}",
)
"""They go by the clock: on a busy machine they fail without any change."""
SURE = "tests/unit/native/"
"""Tests without sockets and threads: when one fails it need not fail twice."""
