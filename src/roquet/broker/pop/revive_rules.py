"""What becomes of a message that was popped and not acknowledged. Pure (spec: store §17).

It is stored once more in the group's pop retry topic, where the group pops it again. A group whose
tries are used up finds it in its dead letters instead, once, as it would after sending it back.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.base.config import setting
from roquet.broker.messages import fitting
from roquet.model.message import ATTEMPTS_MAX
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.light import light_queues
from roquet.protocol.messages import message_id
from roquet.protocol.pop import topics
from roquet.store.results import Draft

if TYPE_CHECKING:
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.protocol.pop.records import PopCheckpoint
    from roquet.store.records import Record

RE_PUT_STEPS_S = (
    *(10, 20, 30, 60, 120, 180, 240, 300, 360),
    *(420, 480, 540, 600, 1200, 1800, 3600, 7200),
)
"""Pauses before the next try for a message that could not be read or stored; the last repeats."""

_DELAYS = (
    props.DELAY,
    props.TIMER_DELAY_SEC,
    props.TIMER_DELAY_MS,
    props.TIMER_DELIVER_MS,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReviveConfig:
    """Settings of the redelivery of popped messages."""

    interval_ms: int = setting(
        "reviveInterval",
        1000,
        "Between two rounds of redelivery.",
        unit="ms",
        low=10,
        high=60_000,
        live=True,
    )
    slow_max: int = setting(
        "reviveMaxSlow",
        3,
        "Rounds without work make the pause longer, up to so many intervals more.",
        low=0,
        high=60,
        live=True,
    )
    scan_ms: int = setting(
        "reviveScanTime",
        10_000,
        "Longest time that one round reads a revive queue.",
        unit="ms",
        low=10,
        high=600_000,
        live=True,
    )
    ack_wait_ms: int = setting(
        "reviveAckWaitMs",
        180_000,
        "How long an acknowledgement that was read before its checkpoint is remembered.",
        unit="ms",
        low=0,
        high=3_600_000,
        live=True,
    )
    gives_up: bool = setting(
        "skipWhenCKRePutReachMaxTimes",
        False,
        "Whether a message is given up that could not be read or stored in 17 tries.",
        live=True,
    )
    separate_queues: bool = setting(
        "useSeparateRetryQueue",
        False,
        "Whether pop retry topics have as many queues as the topic; otherwise they have one.",
        live=True,
    )
    retry_v2: bool = setting(
        "enableRetryTopicV2",
        False,
        "Whether pop retry topics are called %RETRY%group+topic instead of %RETRY%group_topic.",
        live=True,
    )
    dead_letters: bool = setting(
        "popDeadLetterEnable",
        True,
        "Whether a popped message goes to the group's dead letters when its next delivery would be"
        " more than retryMaxTimes allows; otherwise it comes again for ever, as with Java.",
        live=True,
    )


def is_dead(
    record: Record, checkpoint: PopCheckpoint, group: SubscriptionGroupConfig, rules: ReviveConfig
) -> bool:
    """Tell whether the next delivery would be one too many."""
    return attempts(record, checkpoint) > attempts_max(group, rules)


def attempts_max(group: SubscriptionGroupConfig, rules: ReviveConfig) -> int:
    """Return the most failed attempts with which a message is delivered once more."""
    return max(0, group.retry_max_times) if rules.dead_letters else ATTEMPTS_MAX


def attempts(record: Record, checkpoint: PopCheckpoint) -> int:
    """Return the failed attempts that the next copy of a message counts.

    The first count is the sender's, who may have sent the highest.
    """
    return min(record.reconsume_times + more_attempts(checkpoint), ATTEMPTS_MAX)


def more_attempts(checkpoint: PopCheckpoint) -> int:
    """Return what a checkpoint adds to the failed attempts of its messages."""
    # A consumer that suspended the message has not tried it.
    return 0 if checkpoint.suspended else 1


def retry_topic(checkpoint: PopCheckpoint, rules: ReviveConfig) -> str:
    """Return the topic that a message goes to for another try."""
    topic, group = checkpoint.topic or "", checkpoint.group or ""
    if names.is_retry(topic):
        return topic
    return topics.pop_retry_topic(topic, group, v2=rules.retry_v2)


def retry_draft(
    record: Record, checkpoint: PopCheckpoint, topic: str, queue_id: int, host: bytes
) -> Draft | None:
    """Return the copy of a message for another try: to be stored as it is, without a delay.

    None when the message's properties leave no room for those that the copy cannot do without.
    `host` is the broker's own: as in Java it also replaces the host that sent the message.
    """
    properties = props.read(record.properties)
    if record.reconsume_times == 0 or props.FIRST_POP_TIME not in properties:
        properties[props.FIRST_POP_TIME] = str(checkpoint.pop_time_ms)
    properties[props.ORIGIN_GROUP] = checkpoint.group or ""
    light_queues.note_origin(record.topic, properties)
    if not fitting.fits(properties):
        return None
    draft = Draft.again(record, topic, queue_id, properties)
    draft.born_host = draft.store_host = host
    draft.reconsume_times = attempts(record, checkpoint)
    return draft


def dead_letter_draft(record: Record, checkpoint: PopCheckpoint, host: bytes) -> Draft:
    """Return a message as a dead letter of its group: in queue 0, readable at once."""
    properties = props.read(record.properties)
    topic, group = checkpoint.topic or "", checkpoint.group or ""
    origin = topics.normal_topic(topic, group) or topic
    own_id = message_id.offset_id(record.store_host, record.physical_offset)
    properties.setdefault(props.RETRY_TOPIC, origin)
    properties.setdefault(props.ORIGIN_MESSAGE_ID, own_id)
    properties.setdefault(props.DLQ_ORIGIN_TOPIC, origin)
    properties.setdefault(props.DLQ_ORIGIN_MESSAGE_ID, properties.get(props.UNIQ_KEY, own_id))
    light_queues.note_origin(record.topic, properties)
    for name in _DELAYS:
        properties.pop(name, None)
    fitting.fits(properties, fitting.SPARE_OF_DEAD)
    draft = Draft.again(record, names.dlq_topic(group), 0, properties)
    draft.store_host = host
    draft.reconsume_times = attempts(record, checkpoint)
    return draft


def re_put(
    checkpoint: PopCheckpoint, offset: int, now_ms: int, rules: ReviveConfig
) -> PopCheckpoint | None:
    """Return the checkpoint of one message that has to wait for another try; None: it is given up.

    Its invisible time only grows when it would be due at once.
    """
    times = checkpoint.re_put_times
    if times >= len(RE_PUT_STEPS_S) and rules.gives_up:
        return None
    step_s = RE_PUT_STEPS_S[min(times, len(RE_PUT_STEPS_S) - 1)]
    longer_ms = step_s * 1000 if checkpoint.revive_ms <= now_ms else 0
    return dataclasses.replace(
        checkpoint,
        start_offset=offset,
        diffs=(0,),
        count=1,
        bits=0,
        revive_offset=0,
        re_puts=str(times + 1),
        invisible_ms=checkpoint.invisible_ms + longer_ms,
    )
