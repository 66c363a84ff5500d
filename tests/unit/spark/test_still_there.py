"""Topics that are deleted or made anew while a job reads them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from roquet import sync
from roquet.client import MessageQueue
from roquet.model.topic import TopicConfig
from roquet.spark.jobs.shared.still_there import StillThere, all_found

if TYPE_CHECKING:
    from roquet.testing import Broker


def test_topics_that_were_deleted_or_made_anew_are_named(roquet_broker: Broker) -> None:
    names = roquet_broker.url.removeprefix("rmq://")
    with sync.connect(names) as mq, mq.producer("p") as producer:
        topics = mq.admin().topics

        def put(topic: str, count: int) -> None:
            topics.put(TopicConfig(name=topic, read_queues=1, write_queues=1))
            had = sum(it.max_offset for it in topics.offsets(topic).values())
            broker = next(iter(mq.admin().brokers.cluster().brokers))
            for _ in range(count):
                producer.send(topic, b"x", queue=MessageQueue(topic, broker, 0))
            # Queues follow the log a moment later.
            while sum(it.max_offset for it in topics.offsets(topic).values()) < had + count:
                time.sleep(0.01)

        for topic in ("Same", "Anew", "Gone"):
            put(topic, 3)
        reading = {"nameServers": names, "subscribe": "Same,Anew,Gone"}
        watched = StillThere(reading)
        assert watched.found() == ((), False)
        put("Same", 2)
        assert watched.found() == ((), False)
        topics.delete("Anew")
        topics.delete("Gone")
        # As long as before and longer: no task would miss an offset.
        put("Anew", 5)
        found = all_found([watched])
        assert found.is_changed
        anew, gone = found.lines
        assert anew.startswith("topic Anew is not the one any more"), anew
        assert "made anew" in anew
        assert gone.startswith("topic Gone is not the one any more"), gone
        assert gone.endswith("it was deleted)")


def test_what_nobody_can_tell_is_said_and_is_no_change() -> None:
    away = {"nameServers": "127.0.0.1:1", "subscribe": "T", "fetchOffset.numRetries": "0"}
    (line,) = StillThere(away).found().lines
    assert line.startswith("whether a topic was made anew meanwhile is not known: ")
    assert not StillThere(away).found().is_changed
