"""Where a topic's queues are: what a name server answers (spec: wire §13.2)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from roquet.model.topic import READ_WRITE

if TYPE_CHECKING:
    from collections.abc import Mapping

MASTER_ID = 0
"""The broker id of a master; slaves have greater ones."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueData:
    """How many queues of the topic one broker name has."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int = READ_WRITE
    topic_sys_flag: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerData:
    """The addresses of one broker name: master and slaves by id."""

    cluster: str
    broker_name: str
    addresses: Mapping[int, str]
    zone_name: str | None = None
    enable_acting_master: bool = False

    @property
    def master(self) -> str | None:
        """Address of the master, None when there is none."""
        return self.addresses.get(MASTER_ID)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicRoute:
    """Everything a client needs to reach a topic."""

    queues: tuple[QueueData, ...] = ()
    brokers: tuple[BrokerData, ...] = ()
    order_topic_conf: str | None = None
    filter_servers: Mapping[str, tuple[str, ...]] = dataclasses.field(
        default_factory=dict[str, tuple[str, ...]]
    )
    queue_mapping_by_broker: Mapping[str, Any] | None = None
    """Static-topic mapping as it came; None when the topic is none."""
