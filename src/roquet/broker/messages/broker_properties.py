"""What the broker itself writes into messages and into the answers to sends."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.base.config import setting
from roquet.protocol import properties as props

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.broker.state import Identity
    from roquet.protocol.messages.message_id import UniqueIds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SendConfig:
    """Settings of sends."""

    region: str = setting("regionId", "DefaultRegion", "Region label told to producers.", live=True)
    trace_on: bool = setting("traceOn", True, "Trace switch told to producers.", live=True)
    store_replies: bool = setting(
        "storeReplyMessageEnable",
        True,
        "Whether answers of request-reply are stored besides being passed on.",
        live=True,
    )
    message_size_max: int = setting(
        "maxMessageSize",
        4 * 1024 * 1024,
        "Longest body.",
        unit="bytes",
        low=1,
        high=2**31 - 131_073,
        live=True,
    )


@dataclasses.dataclass(slots=True)
class BrokerProperties:
    """What the broker writes into every message that it takes from a producer."""

    identity: Identity
    rules: SendConfig
    unique_ids: UniqueIds
    clock: Clock
    ext: dict[str, str] = dataclasses.field(init=False, default_factory=dict[str, str])
    """The fields that every answer to a send carries."""

    def __post_init__(self) -> None:
        """Work out what is the same in all answers."""
        self.follow(self.rules)

    def follow(self, rules: SendConfig) -> None:
        """Write by other settings from now on; `ext` stays the same object."""
        self.rules = rules
        trace = "true" if rules.trace_on else "false"
        self.ext.update({props.MSG_REGION: rules.region, props.TRACE_ON: trace})

    def stamp(self, properties: dict[str, str]) -> None:
        """Set and remove the properties that are the broker's business."""
        if not _OWNED.isdisjoint(properties):
            clear_owned(properties)
        properties.update(self.ext)
        properties[props.CLUSTER] = self.identity.cluster
        if props.UNIQ_KEY not in properties:
            properties[props.UNIQ_KEY] = self.unique_ids.make(self.clock.now_ms())


_OWNED = frozenset({props.POP_CK, props.LMQ_ORIGIN_TOPIC, props.SEQUENCE})


def clear_owned(properties: dict[str, str]) -> None:
    """Remove what a sender may not say: the broker believes these properties of a stored message.

    Somebody who forwards a message with all of its properties is not refused for that.
    """
    for name in _OWNED:
        properties.pop(name, None)
