"""A message as a producer makes it and as a consumer gets it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ATTEMPTS_MAX = (1 << 31) - 1
"""The highest number of failed deliveries that a record has room for: more are not counted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """What a producer sends. `properties` are the user's own; tag and keys have fields."""

    topic: str
    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    flag: int = 0
    delay_level: int = 0
    """1..18 (1 s .. 2 h with the broker's default levels); 0: at once."""
    wait_store_ok: bool = True
    """Whether the broker's answer waits for the durability that it is configured for."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """One record of the log, with everything that is kept in it. Times are Unix milliseconds."""

    topic: str
    body: bytes
    """As the producer gave it: decompressed when it is stored compressed."""
    properties: Mapping[str, str]
    msg_id: str
    """Where it lies: store host and physical offset as hex (spec: wire §8.1)."""
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    """Bytes of the whole record."""
    born_timestamp: int
    born_host: str
    """`ip:port` of the producer."""
    store_timestamp: int
    store_host: str
    """`ip:port` of the broker."""
    flag: int = 0
    sys_flag: int = 0
    body_crc: int = 0
    """CRC-32 of the stored (maybe compressed) body, without its top bit."""
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    broker_name: str = ""

    @property
    def tag(self) -> str | None:
        """The tag, if any."""
        return self.properties.get("TAGS")

    @property
    def keys(self) -> tuple[str, ...]:
        """The index keys."""
        return tuple(self.properties.get("KEYS", "").split())

    @property
    def unique_key(self) -> str | None:
        """The id that the producer made: the same for every copy of the message."""
        return self.properties.get("UNIQ_KEY")
