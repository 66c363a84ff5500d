"""How the queues of static topics are spread and moved: what is there in, what shall be there out.

A broker never gets queues and gives queues away in one change, so that of each queue the new place
can be told before the old one, and no message is without a place.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.rocketmq.static_topics import (
    CREATE,
    REMAP,
    UNDECIDED,
    Part,
    StaticMapping,
    StaticPlan,
    StaticTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

EPOCH_STEP = 1000
OFFSETS_BLOCK = 10_000
"""Logical offsets go on at a multiple of this behind a move."""

Brokers = dict[str, StaticTopic]
Queues = dict[int, tuple[Part, ...]]


def mapping_of(broker: str, found: StaticTopic) -> StaticMapping:
    """Return a broker's mapping. Raises UsageError for an ordinary topic."""
    if found.mapping is None:
        raise UsageError(f"the broker {broker} has {found.config.name} as an ordinary topic")
    return found.mapping


def check(topic: str, brokers: Mapping[str, StaticTopic]) -> tuple[int, int]:
    """Return the epoch and the number of queues, which all brokers have to agree on.

    Raises UsageError where they do not, or a mapping is another's.
    """
    seen: set[tuple[str, int, int]] = set()
    for name, found in brokers.items():
        mapping = mapping_of(name, found)
        if (mapping.broker_name, mapping.topic, found.config.name) != (name, topic, topic):
            raise UsageError(f"the mapping at {name} is of another broker or topic")
        if mapping.dirty:
            raise UsageError(f"the mapping at {name} is dirty: an earlier change was cut short")
        seen.add((mapping.scope, mapping.epoch, mapping.total))
    if len(seen) > 1:
        told = ", ".join(f"epoch {epoch} with {total}" for _, epoch, total in sorted(seen))
        raise UsageError(f"brokers differ about the queues of {topic}: {told}")
    for _, epoch, total in seen:
        return epoch, total
    return UNDECIDED, 0


def queues_of(brokers: Mapping[str, StaticTopic]) -> Queues:
    """Return logical queue -> parts, as the broker of the newest part has them.

    Raises UsageError for parts that cannot be.
    """
    found: Queues = {}
    total = 0
    for name, it in brokers.items():
        mapping = mapping_of(name, it)
        total = max(total, mapping.total)
        for queue, parts in mapping.queues.items():
            _check_parts(queue, parts, brokers)
            if parts[-1].broker_name != name:
                continue
            if queue in found:
                raise UsageError(f"queue {queue} is at two brokers")
            found[queue] = parts
    if sorted(found) != list(range(total)):
        raise UsageError(f"of {total} queues those that are there are {sorted(found)[:20]}")
    _check_used_once(found)
    return dict(sorted(found.items()))


def _check_parts(queue: int, parts: Sequence[Part], brokers: Mapping[str, StaticTopic]) -> None:
    before: Part | None = None
    for part in parts:
        where = f"a part of queue {queue} at {part.broker_name}"
        if min(part.generation, part.queue_id) < 0 or part.start != 0:
            raise UsageError(f"{where} has a number that is none")
        broker = brokers.get(part.broker_name)
        if broker is None:
            raise UsageError(f"{where} has no broker")
        if part.queue_id >= broker.config.write_queues:
            raise UsageError(f"{where} is no queue of the broker")
        if part.first < 0 and part is not parts[-1]:
            raise UsageError(f"{where} has no offset, and is not the newest")
        if part.end != UNDECIDED and part.end < part.start:
            raise UsageError(f"{where} ends before it starts")
        if before is not None:
            if part.generation <= before.generation:
                raise UsageError(f"{where} is not newer than the one before")
            if 0 <= part.first <= before.first + max(0, before.end - before.start):
                raise UsageError(f"{where} begins before the one before ends")
        before = part


def _check_used_once(queues: Mapping[int, Sequence[Part]]) -> None:
    used: dict[tuple[str, int], int] = {}
    for queue, parts in queues.items():
        for part in parts:
            other = used.setdefault((part.broker_name, part.queue_id), queue)
            if other != queue:
                raise UsageError(f"queues {other} and {queue} share one of {part.broker_name}")


def extended(
    topic: str,
    total: int,
    targets: Iterable[str],
    brokers: Mapping[str, StaticTopic],
    now_ms: int,
) -> StaticPlan:
    """Make a topic of `total` queues, or give it more; new ones go where the fewest are.

    Raises UsageError for fewer queues than there are, or as many.
    """
    epoch, _ = check(topic, brokers)
    there = queues_of(brokers)
    if total <= len(there):
        raise UsageError(f"{topic} has {len(there)} queues, and can only get more than that")
    counts = dict.fromkeys([*targets, *brokers], 0)
    for parts in there.values():
        counts[parts[-1].broker_name] += 1
    epoch = max(epoch + EPOCH_STEP, now_ms)
    found: Brokers = dict(brokers)
    for queue in range(len(there), total):
        name = min(counts, key=lambda it: (counts[it], it))
        counts[name] += 1
        _place(found, topic, name, queue, ())
    return StaticPlan(topic=topic, kind=CREATE, epoch=epoch, brokers=_stamped(found, epoch, total))


def remapped(
    topic: str, targets: Iterable[str], brokers: Mapping[str, StaticTopic], now_ms: int
) -> StaticPlan:
    """Spread the queues over these brokers evenly, moving as few as it takes.

    Raises UsageError.
    """
    epoch, total = check(topic, brokers)
    there = queues_of(brokers)
    epoch = max(epoch + EPOCH_STEP, now_ms)
    found: Brokers = dict(brokers)
    into: set[str] = set()
    out_of: set[str] = set()
    for queue, name in _moves(there, sorted(set(targets))):
        parts = there[queue]
        old = parts[-1].broker_name
        parts = _place(found, topic, name, queue, parts)
        # Who gives a queue away has to know where it is now.
        found[old] = _with_parts(old, found[old], queue, parts)
        into.add(name)
        out_of.add(old)
    return StaticPlan(
        topic=topic,
        kind=REMAP,
        epoch=epoch,
        brokers=_stamped(found, epoch, total),
        into=frozenset(into),
        out_of=frozenset(out_of),
    )


def _moves(there: Mapping[int, Sequence[Part]], targets: Sequence[str]) -> list[tuple[int, str]]:
    """Return which queues go where. One more than others have is left to who has most."""
    has = dict.fromkeys(targets, 0)
    for parts in there.values():
        if parts[-1].broker_name in has:
            has[parts[-1].broker_name] += 1
    fewest, more = divmod(len(there), len(targets))
    fullest = sorted(targets, key=lambda it: (-has[it], it))
    room = {name: fewest + (place < more) for place, name in enumerate(fullest)}
    waiting: list[int] = []
    for queue, parts in there.items():
        if room.get(parts[-1].broker_name, 0) > 0:
            room[parts[-1].broker_name] -= 1
        else:
            waiting.append(queue)
    free = [name for name in targets for _ in range(room[name])]
    return list(zip(waiting, free, strict=True))


def _place(
    brokers: Brokers, topic: str, name: str, queue: int, before: tuple[Part, ...]
) -> tuple[Part, ...]:
    """Give a broker one more queue as the newest part of a logical one; return all parts."""
    it = brokers.get(name) or _empty(topic, name)
    part = Part(
        generation=before[-1].generation + 1 if before else 0,
        queue_id=it.config.write_queues,
        broker_name=name,
        first=UNDECIDED if before else 0,
    )
    config = dataclasses.replace(
        it.config,
        write_queues=it.config.write_queues + 1,
        read_queues=it.config.read_queues + 1,
    )
    parts = (*before, part)
    brokers[name] = _with_parts(name, dataclasses.replace(it, config=config), queue, parts)
    return parts


def _empty(topic: str, name: str) -> StaticTopic:
    return StaticTopic(
        config=TopicConfig(name=topic, read_queues=0, write_queues=0),
        mapping=StaticMapping(topic=topic, broker_name=name, total=0, epoch=0),
    )


def _with_parts(name: str, it: StaticTopic, queue: int, parts: tuple[Part, ...]) -> StaticTopic:
    mapping = mapping_of(name, it)
    queues = {**mapping.queues, queue: parts}
    return dataclasses.replace(it, mapping=dataclasses.replace(mapping, queues=queues))


def _stamped(brokers: Mapping[str, StaticTopic], epoch: int, total: int) -> Brokers:
    found: Brokers = {}
    for name, it in brokers.items():
        mapping = dataclasses.replace(mapping_of(name, it), epoch=epoch, total=total)
        found[name] = dataclasses.replace(it, mapping=mapping)
    queues_of(found)
    return found


def with_others(plan: StaticPlan, names: Iterable[str]) -> StaticPlan:
    """Return a plan that tells brokers without queues of the topic as well."""
    _, total = check(plan.topic, plan.brokers)
    others = {name: _empty(plan.topic, name) for name in names if name not in plan.brokers}
    brokers = _stamped({**plan.brokers, **others}, plan.epoch, total)
    return dataclasses.replace(plan, brokers=brokers)


def decided(plan: StaticPlan, broker: str, ends: Mapping[tuple[str, int], int]) -> StaticPlan:
    """Return a plan in which the queues that left a broker go on behind their messages.

    `ends` has the ends of queues, by broker and queue id. The new place alone learns where its
    queue goes on, as of RocketMQ's tool. Raises UsageError for a queue without an end.
    """
    brokers = dict(plan.brokers)
    for queue, parts in mapping_of(broker, brokers[broker]).queues.items():
        name = parts[-1].broker_name
        # Of a queue that left it long ago a broker never learns where it went on.
        if parts[-1].first > 0 or mapping_of(name, brokers[name]).queues.get(queue) != parts:
            continue
        if len(parts) < 2 or name == broker:
            continue
        old, new = parts[-2], parts[-1]
        end = ends.get((old.broker_name, old.queue_id))
        if end is None or end < old.start:
            raise UsageError(f"queue {queue} has no end at {old.broker_name}: nothing is moved")
        first = next_block(old.first + end - old.start)
        moved = (*parts[:-1], dataclasses.replace(new, first=first))
        brokers[name] = _with_parts(name, brokers[name], queue, moved)
    return dataclasses.replace(plan, brokers=brokers)


def next_block(offset: int) -> int:
    """Return a multiple of OFFSETS_BLOCK with at least half a block behind an offset."""
    blocks, rest = divmod(offset, OFFSETS_BLOCK)
    return (blocks + (1 if rest < OFFSETS_BLOCK // 2 else 2)) * OFFSETS_BLOCK
