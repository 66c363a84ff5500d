"""The put hooks: their order, what they tell the fast path, and one that a test adds."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roquet.broker.messages.appender import Appender
from roquet.broker.messages.put_hooks import Check, Put, PutHooks, Schedule, put_hooks
from roquet.broker.messages.schedule import DelayLevels
from roquet.broker.state import BrokerState
from roquet.protocol import names
from roquet.protocol.messages import sys_flag
from roquet.store.results import Draft, PutResult, PutStatus

HOST = bytes((127, 0, 0, 1, 0, 0, 0, 1))
SENT = Put(sent=True)


def draft(topic: str = "t", flag: int = 0, **properties: str) -> Draft:
    return Draft(
        topic=topic,
        queue_id=1,
        body=b"m",
        properties=properties,
        sys_flag=flag,
        born_timestamp=1,
        born_host=HOST,
        store_host=HOST,
    )


def _full(draft: Draft, *, is_new: bool) -> PutResult | None:
    del draft, is_new
    return PutResult(PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED)


LIGHTS = cast("Any", SimpleNamespace(refusal=_full))


class Secret:
    """Has messages with one property go elsewhere, and refuses some: a hook of a test."""

    name = "secret"
    acts_on: frozenset[str] | None = frozenset({"secret", "DELAY"})

    def __call__(self, draft: Draft, put: Put) -> PutResult | None:
        if draft.properties.get("secret") == "no":
            return PutResult(PutStatus.MESSAGE_ILLEGAL, why="a secret")
        if "secret" in draft.properties and put.is_new:
            draft.topic = "vault"
        return None


class OneStore:
    """Remembers the topics of what is appended."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    async def put(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        del wait
        self.topics.append(draft.topic)
        return PutResult(PutStatus.PUT_OK, 0, 10, 0, 1)


def test_put_hooks_run_in_order_and_the_first_refusal_counts() -> None:
    state = BrokerState(is_slave=True)
    hooks = put_hooks(state, DelayLevels(), lights=LIGHTS)
    assert hooks.names == ("check", "inner batch", "quota", "schedule")
    faulty = draft("a/b", INNER_NUM="2", INNER_MULTI_DISPATCH="%LMQ%a", TIMER_DELAY_SEC="1")

    def status() -> PutStatus | None:
        refused = hooks(faulty, SENT)
        return None if refused is None else refused.status

    assert status() is PutStatus.SERVICE_NOT_AVAILABLE
    state.is_slave = False
    assert status() is PutStatus.MESSAGE_ILLEGAL
    faulty.topic = "t"
    assert hooks(faulty, SENT) == PutResult(
        PutStatus.MESSAGE_ILLEGAL, why="no queue here holds batches within a record"
    )
    del faulty.properties["INNER_NUM"]
    assert status() is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
    del faulty.properties["INNER_MULTI_DISPATCH"]
    assert status() is PutStatus.WHEEL_TIMER_NOT_ENABLE
    del faulty.properties["TIMER_DELAY_SEC"]
    assert (status(), faulty.topic) == (None, "t")


def test_delay_level_sends_a_message_to_the_schedule_topic_unless_it_is_stored_as_it_is() -> None:
    hooks = put_hooks(BrokerState(), DelayLevels())
    for put, topic in ((SENT, names.SCHEDULE_TOPIC), (Put(as_it_is=True), "t")):
        delayed = draft(DELAY="3")
        assert hooks(delayed, put) is None
        assert delayed.topic == topic


@pytest.mark.parametrize("flag", [sys_flag.INNER_BATCH, sys_flag.NEED_UNWRAP])
def test_inner_batch_of_a_client_is_refused_by_its_flag_and_one_that_is_stored_is_not(
    flag: int,
) -> None:
    hooks = put_hooks(BrokerState(), DelayLevels())
    assert hooks(draft(flag=flag), SENT) is not None
    assert hooks(draft(flag=flag), Put()) is None


def test_hook_that_is_added_runs_in_its_place_for_everything_that_is_appended() -> None:
    async def run() -> None:
        store, levels = OneStore(), DelayLevels()
        hooks = PutHooks(Check(BrokerState()), Secret(), Schedule(levels, None))
        appender = Appender(cast("Any", store), hooks)
        delayed = draft(DELAY="1", secret="yes")
        for message in (draft(), draft(secret="yes"), delayed):
            assert (await appender.append(message)).status is PutStatus.PUT_OK
        assert store.topics == ["t", "vault", names.SCHEDULE_TOPIC]
        assert delayed.properties["REAL_TOPIC"] == "vault"
        refused = await appender.append_all([draft(secret="no"), draft("a/b", secret="no")])
        assert [it.why for it in refused] == ["a secret", "illegal topic name 'a/b'"]
        assert len(store.topics) == 3

    asyncio.run(run())


class Noting:
    """Notes what it is given: a hook of a test."""

    name = "noting"

    def __init__(self, acts_on: frozenset[str] | None) -> None:
        self.acts_on = acts_on
        self.given: list[Draft] = []

    def __call__(self, draft: Draft, put: Put) -> PutResult | None:
        del put
        self.given.append(draft)
        return None


@pytest.mark.parametrize(
    ("flag", "properties", "runs"),
    [
        (0, {}, False),
        (sys_flag.COMPRESSED | 0x100 | sys_flag.MULTI_TAGS, {"KEYS": "k"}, False),
        (0, {"secret": ""}, True),
        (0, {"DELAY": "1"}, True),
        (sys_flag.INNER_BATCH, {}, True),
        (sys_flag.NEED_UNWRAP, {}, True),
        (sys_flag.TRANSACTION_COMMIT, {}, True),
        (0x800, {}, True),
    ],
)
def test_hooks_run_for_messages_on_which_one_of_them_acts_and_for_odd_flags(
    flag: int, properties: dict[str, str], *, runs: bool
) -> None:
    some, other = Noting(frozenset({"secret"})), Noting(frozenset({"DELAY"}))
    hooks = PutHooks(Check(BrokerState()), some, other)
    assert hooks(draft(flag=flag, **properties), SENT) is None
    assert (len(some.given), len(other.given)) == (runs, runs)


def test_hook_that_acts_on_any_message_is_given_every_message() -> None:
    every = Noting(None)
    hooks = PutHooks(Check(BrokerState()), Noting(frozenset()), every)
    assert hooks(draft(), SENT) is None
    assert len(every.given) == 1
    assert hooks(draft("a/b"), SENT) is not None, "what the check refuses goes no further"
    assert len(every.given) == 1
