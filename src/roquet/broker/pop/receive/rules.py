"""Settings of POP consumption, as far as clients meet it."""

from __future__ import annotations

import dataclasses

from roquet.base.config import setting


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PopConfig:
    """Settings of pops, acknowledgements and pops that wait."""

    held_of_key: int = setting(
        "popPollingSize",
        1024,
        "Pops of a group that may wait for messages of the same queues.",
        low=1,
        high=100_000,
        live=True,
    )
    held_max: int = setting(
        "maxPopPollingSize",
        100_000,
        "Pops that may wait for messages; as many notifications beside them.",
        low=0,
        high=1_000_000,
        live=True,
    )
    force_interval: int = setting(
        "popLongPollingForceNotifyInterval",
        800,
        "Every so many messages of a queue wake a waiting pop whatever its filter; 0: never.",
        low=0,
        live=True,
    )
    retry_percent: int = setting(
        "popFromRetryProbability",
        20,
        "Share of pops that look for redelivered messages first.",
        unit="%",
        low=0,
        high=100,
        live=True,
    )
    retry_percent_priority: int = setting(
        "popFromRetryProbabilityForPriority",
        0,
        "The same share of pops that go by priority.",
        unit="%",
        low=0,
        high=100,
        live=True,
    )
    high_is_urgent: bool = setting(
        "priorityOrderAsc",
        True,
        "Whether the highest priority is served first; otherwise 0 is.",
        live=True,
    )
    retry_v2: bool = setting(
        "enableRetryTopicV2",
        False,
        "Whether pop retry topics are named with `+` instead of `_`.",
        live=True,
    )
    read_retry_v1: bool = setting(
        "retrieveMessageFromPopRetryTopicV1",
        True,
        "Whether retry topics named with `_` are read as well then.",
        live=True,
    )
    actual_retry_topic: bool = setting(
        "popResponseReturnActualRetryTopic",
        False,
        "Whether redelivered messages keep the name of their retry topic.",
        live=True,
    )
    init_by_memory: bool = setting(
        "initPopOffsetByCheckMsgInMem",
        True,
        "Whether a new group that wants the last message gets all of a queue that is in memory.",
        live=True,
    )
    limits_in_flight: bool = setting(
        "enablePopMessageThreshold",
        False,
        "Whether a queue with too many unacknowledged messages gives no more.",
        live=True,
    )
    in_flight_max: int = setting(
        "popInflightMessageThreshold",
        10_000,
        "How many are too many.",
        low=1,
        high=1_000_000,
        live=True,
    )
    filter_notifications: bool = setting(
        "useMessageFilterForNotification",
        True,
        "Whether a notification tells only of messages that its filter takes.",
        live=True,
    )
    filter_notifications_max: int = setting(
        "maxMessageFilterNumForNotification",
        64,
        "Messages of a queue above which it tells of them without looking at each.",
        low=0,
        high=10_000,
        live=True,
    )
    wake_when_free: bool = setting(
        "enableNotifyAfterPopOrderLockRelease",
        True,
        "Whether ordered pops that wait are woken when messages in flight become visible again.",
        live=True,
    )

    def queues(self, count: int, draw: int, *, by_priority: bool) -> list[int]:
        """Return the queues of a topic in the order in which a pop visits them.

        The priority of a message is the number of its queue.
        """
        if not by_priority:
            return [(draw + turn) % count for turn in range(count)]
        return list(range(count))[:: -1 if self.high_is_urgent else 1]
