"""What the core has to know of names before it answers for the front."""

from __future__ import annotations

from roquet._native import GrpcConsumers
from roquet.protocol import names
from roquet.protocol import properties as props


def consumers(broker: str = "") -> GrpcConsumers:
    """Return what shows and acknowledges plain messages; `broker` is the one of this process."""
    return GrpcConsumers(
        topics=set(names.SYSTEM_TOPICS),
        topic_prefix=names.SYSTEM_TOPIC_PREFIX,
        group_prefix=names.SYSTEM_GROUP_PREFIX,
        reserved=set(props.RESERVED),
        broker=broker,
    )
