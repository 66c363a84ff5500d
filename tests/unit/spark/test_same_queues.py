"""Queues of one snapshot of `lag` that are not those of the snapshot before."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

from roquet import sync
from roquet.client import MessageQueue
from roquet.model.topic import TopicConfig
from roquet.spark.jobs.watching.same_queues import SameQueues
from roquet.spark.options import MetaOptions

if TYPE_CHECKING:
    from roquet.testing import Broker


def test_queues_of_topics_made_anew_are_told_from_those_that_went_on(
    roquet_broker: Broker,
) -> None:
    names = roquet_broker.url.removeprefix("rmq://")
    said: list[str] = []
    with sync.connect(names) as mq, mq.producer("p") as producer:
        topics = mq.admin().topics
        broker = next(iter(mq.admin().brokers.cluster().brokers))

        def snapshot() -> list[SimpleNamespace]:
            found: list[SimpleNamespace] = []
            for topic in ("On", "Longer", "Same", "Shorter", "Empty"):
                for queue, it in topics.offsets(topic).items():
                    place = {"topic": topic, "brokerName": broker, "queueId": queue.queue_id}
                    bounds = {"minOffset": it.min_offset, "maxOffset": it.max_offset}
                    stored = it.last_update if it.last_update > 0 else None
                    found.append(SimpleNamespace(**place, **bounds, stored=stored))
            return found

        def put(topic: str, count: int) -> None:
            topics.put(TopicConfig(name=topic, read_queues=1, write_queues=1))
            had = sum(it.max_offset for it in topics.offsets(topic).values())
            for _ in range(count):
                producer.send(topic, b"x", queue=MessageQueue(topic, broker, 0))
            # Queues follow the log a moment later.
            while sum(it.max_offset for it in topics.offsets(topic).values()) < had + count:
                time.sleep(0.01)

        for topic in ("On", "Longer", "Same", "Shorter"):
            put(topic, 3)
        put("Empty", 0)
        same = SameQueues(MetaOptions.parse({"nameServers": names}), said.append)
        # The first snapshot of all has nothing before it.
        assert same.anew(snapshot()) == []
        put("On", 2)
        put("Empty", 1)
        assert same.anew(snapshot()) == []
        for topic, count in (("Longer", 5), ("Same", 3), ("Shorter", 1)):
            topics.delete(topic)
            put(topic, count)
        assert [it.topic for it in same.anew(snapshot())] == ["Longer", "Same", "Shorter"]
        (line,) = said
        assert line.startswith("3 queues are not those of the snapshot before: Longer"), line
        # From then on they are the queues to compare with.
        put("Longer", 1)
        assert same.anew(snapshot()) == []


def test_what_nobody_can_tell_is_said_and_is_no_change() -> None:
    said: list[str] = []
    given = {"nameServers": "127.0.0.1:1", "fetchOffset.numRetries": "0"}
    same = SameQueues(MetaOptions.parse(given), said.append)
    place = {"topic": "T", "brokerName": "b", "queueId": 0, "minOffset": 0}
    assert same.anew([SimpleNamespace(**place, maxOffset=3, stored=50)]) == []
    assert same.anew([SimpleNamespace(**place, maxOffset=5, stored=70)]) == []
    (line,) = said
    assert line.startswith("whether topics were made anew since the last snapshot is not known: ")
