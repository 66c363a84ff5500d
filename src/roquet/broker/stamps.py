"""What the broker itself writes into messages and into the answers to sends."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.base.config import setting
from roquet.protocol import properties as props

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.base.clock import Clock
    from roquet.broker.state import Identity
    from roquet.protocol.message_id import UniqueIds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SendRules:
    """Settings of sends."""

    region: str = setting("regionId", "DefaultRegion", "Region label told to producers.")
    trace_on: bool = setting("traceOn", True, "Trace switch told to producers.")
    store_replies: bool = setting(
        "storeReplyMessageEnable",
        True,
        "Whether answers of request-reply are stored besides being passed on.",
    )
    message_size_max: int = setting(
        "maxMessageSize", 4 * 1024 * 1024, "Longest body.", unit="bytes", low=1, high=2**31 - 1
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Stamps:
    """What the broker writes into every message that it takes from a producer."""

    identity: Identity
    rules: SendRules
    unique_ids: UniqueIds
    clock: Clock
    ext: Mapping[str, str] = dataclasses.field(init=False)
    """The fields that every answer to a send carries."""

    def __post_init__(self) -> None:
        """Work out what is the same in all answers."""
        trace = "true" if self.rules.trace_on else "false"
        ext = {props.MSG_REGION: self.rules.region, props.TRACE_ON: trace}
        object.__setattr__(self, "ext", ext)

    def stamp(self, properties: dict[str, str]) -> None:
        """Set and remove the properties that are the broker's business."""
        properties.pop(props.POP_CK, None)
        properties.update(self.ext)
        properties[props.CLUSTER] = self.identity.cluster
        if props.UNIQ_KEY not in properties:
            properties[props.UNIQ_KEY] = self.unique_ids.make(self.clock.now_ms())
