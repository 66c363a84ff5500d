"""Topics and groups of POP consumption (Java: PopAckConstants, KeyBuilder; spec: store §17).

A group's pop retry topic is `%RETRY%group_topic` (V1) or `%RETRY%group+topic` (V2). `+` is in no
legal name, so V2 can be taken apart without knowing the group; V1 cannot, because `_` may be part
of both names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol import names
from roquet.protocol import properties as props

if TYPE_CHECKING:
    from collections.abc import Mapping

REVIVE_GROUP = names.SYSTEM_GROUP_PREFIX + "REVIVE_GROUP"
"""Its committed offset of a revive queue is the last settled record, not the next one."""

ORDER_REVIVE_QUEUE = 999
"""The revive queue that a receipt handle of ordered pop names. It does not exist."""
ALL_QUEUES = -1
"""The queue id of a pop that reads every queue of its topic."""

_V1 = "_"
_V2 = "+"


def revive_topic(cluster: str) -> str:
    """Return the topic of checkpoints and acknowledgements of a cluster."""
    return names.REVIVE_TOPIC_PREFIX + cluster


def is_revive_topic(topic: str) -> bool:
    """Tell whether a topic holds checkpoints and acknowledgements."""
    return topic.startswith(names.REVIVE_TOPIC_PREFIX)


def pop_retry_topic(topic: str, group: str, *, v2: bool) -> str:
    """Return the topic that messages go to which a group popped and did not acknowledge."""
    return f"{names.RETRY_PREFIX}{group}{_V2 if v2 else _V1}{topic}"


def normal_topic(topic: str, group: str) -> str:
    """Return the topic that the messages of a pop retry topic of a group came from.

    A topic that is no retry topic is its own. A retry topic that is not of this group, for example
    the group's pull retry topic, gives "".
    """
    if not topic.startswith(names.RETRY_PREFIX):
        return topic
    for separator in (_V2, _V1):
        prefix = names.RETRY_PREFIX + group + separator
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return ""


def is_for_group(topic: str, group: str, properties: Mapping[str, str]) -> bool:
    """Tell whether a message of a topic is one that a group may pop, by the message's properties.

    `%RETRY%a_b_c` is the pop retry topic of the group `a` and the topic `b_c`, of `a_b` and `c`,
    and where the group `a_b_c` sends messages back to: in each message stands whose it is. Copies
    that old brokers made say nothing; they are for every group that comes to this name.
    """
    if not topic.startswith(names.RETRY_PREFIX):
        return True
    origin = properties.get(props.ORIGIN_GROUP)
    if origin is not None:
        return origin == group
    is_sent_back = props.RETRY_TOPIC in properties
    return not is_sent_back or topic == names.retry_topic(group)


def is_of_several(topic: str) -> bool:
    """Tell whether a name may be the retry topic of more than one group (V1): see above."""
    return topic.startswith(names.RETRY_PREFIX) and _V2 not in topic


def is_retry_v2(topic: str) -> bool:
    """Tell whether a topic is a pop retry topic with `+`."""
    return topic.startswith(names.RETRY_PREFIX) and _V2 in topic


def split_retry_v2(topic: str) -> tuple[str, str] | None:
    """Return group and topic of a V2 pop retry topic; None for every other topic."""
    if not is_retry_v2(topic):
        return None
    group, _, rest = topic[len(names.RETRY_PREFIX) :].partition(_V2)
    return (group, rest) if group and rest and _V2 not in rest else None
