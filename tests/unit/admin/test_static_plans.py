"""Plans for static topics: who gets which queue, who gives one away, and from which offset on."""

from __future__ import annotations

import collections
import dataclasses
import random
from typing import TYPE_CHECKING, Any

import pytest

from roquet.admin.rocketmq.static_plans import (
    check,
    decided,
    extended,
    next_block,
    queues_of,
    remapped,
    with_others,
)
from roquet.base.errors import UsageError
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.rocketmq.static_topics import (
    UNDECIDED,
    Part,
    StaticPlan,
    StaticTopic,
    decode_static_topic,
    encode_mapping,
)
from roquet.protocol.fastjson import JsonError

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = 1_800_000_000_000


def made(total: int = 4, *brokers: str) -> StaticPlan:
    return extended("T", total, brokers or ("a", "b"), {}, NOW)


def spread(brokers: Mapping[str, StaticTopic]) -> dict[str, int]:
    parts = queues_of(brokers).values()
    return dict(collections.Counter(it[-1].broker_name for it in parts))


def changed(plan: StaticPlan, queue: int, **changes: Any) -> dict[str, StaticTopic]:
    """Return a plan's brokers with the newest part of a queue changed."""
    brokers = dict(plan.brokers)
    for name, it in plan.brokers.items():
        assert it.mapping is not None
        if queue in it.mapping.queues:
            parts = it.mapping.queues[queue]
            last = dataclasses.replace(parts[-1], **changes)
            queues = {**it.mapping.queues, queue: (*parts[:-1], last)}
            mapping = dataclasses.replace(it.mapping, queues=queues)
            brokers[name] = dataclasses.replace(it, mapping=mapping)
    return brokers


def test_new_queues_go_to_the_brokers_with_the_fewest() -> None:
    plan = made(5, "a", "b")
    assert spread(plan.brokers) == {"a": 3, "b": 2}
    assert (plan.epoch, check("T", plan.brokers)) == (NOW, (NOW, 5))
    more = extended("T", 8, ["c"], plan.brokers, NOW)
    assert spread(more.brokers) == {"a": 3, "b": 3, "c": 2}
    assert more.epoch == NOW + 1000
    for name, it in more.brokers.items():
        assert (it.config.write_queues, it.config.read_queues) == (spread(more.brokers)[name],) * 2
    old = {queue: parts for queue, parts in queues_of(more.brokers).items() if queue < 5}
    assert old == queues_of(plan.brokers)


@pytest.mark.parametrize("total", [0, 3, 4])
def test_queues_never_become_fewer(total: int) -> None:
    with pytest.raises(UsageError, match="T has 4 queues"):
        extended("T", total, ["a"], made(4).brokers, NOW)


def test_moves_are_few_and_no_broker_gets_and_gives_at_once() -> None:
    rng = random.Random(7)
    for _ in range(300):
        names = "abcdef"[: rng.randint(1, 6)]
        brokers = made(rng.randint(1, 20), *names).brokers
        for _ in range(rng.randint(1, 4)):
            targets = rng.sample("abcdef", rng.randint(1, 6))
            before = spread(brokers)
            plan = remapped("T", targets, brokers, NOW)
            plan = with_others(plan, "abcdef")
            after = spread(plan.brokers)
            assert set(after) <= set(targets)
            assert max(after.values()) - min(after.get(it, 0) for it in targets) <= 1
            assert not plan.into & plan.out_of
            moved = sum(max(0, count - before.get(name, 0)) for name, count in after.items())
            parts = queues_of(plan.brokers).values()
            assert sum(it[-1].first == UNDECIDED for it in parts) == moved
            for name in sorted(plan.out_of):
                ends = {
                    (part.broker_name, part.queue_id): rng.randint(0, 30_000)
                    for it in parts
                    for part in it
                }
                plan = decided(plan, name, ends)
            brokers = dict(plan.brokers)
            for it in queues_of(brokers).values():
                offsets = [part.first for part in it]
                assert offsets[0] == 0
                assert offsets == sorted(set(offsets))
                assert all(offset % 10_000 == 0 for offset in offsets)


def test_queues_that_moved_go_on_behind_all_that_was_written() -> None:
    assert [next_block(it) for it in (0, 4_999, 5_000, 10_000)] == [10_000, 10_000, 20_000, 20_000]
    plan = remapped("T", ["b"], made(2).brokers, NOW)
    assert (set(plan.into), set(plan.out_of)) == ({"b"}, {"a"})
    for ends in ({}, {("a", 0): -1}):
        with pytest.raises(UsageError, match="nothing is moved"):
            decided(plan, "a", ends)
    done = decided(plan, "a", {("a", 0): 7_000})
    (queue,) = (it for it in queues_of(done.brokers).values() if len(it) == 2)
    assert [part.first for part in queue] == [0, 20_000]


def test_mapping_that_cannot_be_is_refused() -> None:
    plan = made(4)
    for changes, told in (
        ({"queue_id": 9}, "no queue of the broker"),
        ({"queue_id": -1}, "a number that is none"),
        ({"start": 5}, "a number that is none"),
        ({"generation": -1}, "a number that is none"),
        ({"end": -5}, "ends before it starts"),
        ({"broker_name": "nobody"}, "has no broker"),
        ({"queue_id": 1}, "share one of a"),
    ):
        with pytest.raises(UsageError, match=told):
            remapped("T", ["a"], changed(plan, 0, **changes), NOW)
    brokers = dict(plan.brokers)
    mapping = brokers["a"].mapping
    assert mapping is not None
    for replaced, told in (
        (None, "as an ordinary topic"),
        (dataclasses.replace(mapping, dirty=True), "dirty"),
        (dataclasses.replace(mapping, epoch=1), "brokers differ"),
        (dataclasses.replace(mapping, total=5), "brokers differ"),
        (dataclasses.replace(mapping, topic="U"), "another broker or topic"),
        (dataclasses.replace(mapping, queues={}), "of 4 queues those that are there"),
    ):
        brokers["a"] = dataclasses.replace(plan.brokers["a"], mapping=replaced)
        with pytest.raises(UsageError, match=told):
            extended("T", 8, ["a"], brokers, NOW)
    older = Part(generation=1, queue_id=1, broker_name="b", first=0)
    newer = dataclasses.replace(older, generation=1, broker_name="a", queue_id=0, first=5)
    queues = {**mapping.queues, 0: (older, newer)}
    moved = dataclasses.replace(mapping, queues=queues)
    brokers["a"] = dataclasses.replace(plan.brokers["a"], mapping=moved)
    with pytest.raises(UsageError, match="not newer"):
        remapped("T", ["a"], brokers, NOW)


def test_plan_and_mapping_are_read_as_they_were_written() -> None:
    plan = with_others(remapped("T", ["b"], made(3).brokers, NOW), ["c"])
    assert StaticPlan.decode(plan.encode()) == plan
    mapping = plan.brokers["b"].mapping
    assert mapping is not None
    answer = b'{"topicName":"T","readQueueNums":3,"writeQueueNums":3,"mappingDetail":%s}'
    assert decode_static_topic(answer % encode_mapping(mapping)).mapping == mapping
    ordinary = decode_static_topic(b'{"topicName":"T","readQueueNums":3,"writeQueueNums":3}')
    assert ordinary == StaticTopic(
        config=TopicConfig(name="T", read_queues=3, write_queues=3), mapping=None
    )
    for wrong in (b"[]", b'{"brokerConfigMap":{"a":{"mappingDetail":5}}}', b"{"):
        with pytest.raises(JsonError):
            StaticPlan.decode(wrong)
