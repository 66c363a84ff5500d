"""Settings of producers and consumers; the defaults are those of RocketMQ's own clients."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.arguments import like_defaults
from roquet.base.errors import RoquetError, UsageError
from roquet.protocol.messages.compression import CompressionType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from roquet.client.codecs.base import Codec
    from roquet.model.queue import MessageQueue

    QueuesChanged = Callable[[frozenset[MessageQueue]], Awaitable[None] | None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer sends. Times in seconds, sizes in bytes."""

    timeout_s: float = 3.0
    """For one send with all its tries."""
    retries: int = 2
    """Tries on another broker after the first failed where that is safe. With 0 also a broker that
    says that it is busy is asked once only, and not again until `timeout_s` is over."""
    retry_unknown: bool = False
    """Try again also after a time-out: the message may then be stored twice."""
    compress_over: int = 4096
    """Bodies of at least this size are compressed; 0 never."""
    compression: CompressionType = CompressionType.ZLIB
    compression_level: int = 5
    message_size_max: int = 4 * 1024 * 1024
    """Of a body before compression, and of a batch."""
    in_flight_max: int = 1024
    """Messages that `submit` lets be under way at a time, one at least; more wait."""
    batch_bytes: int = 32 * 1024
    """Of the bodies and properties that one request of `submit` carries at most; 0: each message
    is a request of its own."""
    batch_linger_s: float = 0.0
    """How long `submit` waits for more messages of a batch. With 0 a batch has what was submitted
    in one turn of the loop, or while a request to its queue was in flight: nothing waits. No
    message waits longer than half of `timeout_s`."""
    template_topic: str = "TBW102"
    """Topics that do not exist are created after this one, where the broker allows it."""
    template_queues: int = 4
    latency_aware: bool = False
    """Spare brokers that answer slowly or not at all for a while (2 to 30 s), where the topic has
    queues on others."""
    codec: Codec | None = None
    """Encodes the body of every message that is not given as a whole `Message`."""
    delay_levels: int = 18
    """The highest delay level that brokers are configured for (messageDelayLevel)."""

    def __post_init__(self) -> None:
        """Raise UsageError for a wrong type, and where `submit` could never go on."""
        like_defaults(self)
        if self.in_flight_max < 1:
            raise UsageError(f"in_flight_max is {self.in_flight_max}: must be 1 or more")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer fetches. Times in seconds, sizes in bytes."""

    batch: int = 32
    """Messages asked for in one pull."""
    suspend_s: float = 15.0
    """How long the broker may hold a pull that finds nothing."""
    pull_timeout_s: float = 30.0
    queue_messages_max: int = 1000
    """Messages of one queue fetched and not acknowledged; beyond it fetching pauses."""
    queue_bytes_max: int = 100 * 1024 * 1024
    queue_span_max: int = 2000
    """Highest minus lowest offset fetched and not acknowledged, when order does not matter."""
    broadcast: bool = False
    """Every consumer of the group gets every message; what fails is tried again here."""
    offsets_folder: Path = Path("~/.roquet/offsets")
    """Where a broadcasting consumer keeps its offsets; two of one group need a folder each."""
    retry_times_max: int = -1
    """Tries before a message becomes a dead letter; -1 leaves it to the group (16)."""
    commit_every_s: float = 5.0
    rebalance_every_s: float = 20.0
    pause_after_error_s: float = 1.0
    order_retry_s: float = 1.0
    """Pause before an ordered message that failed is given out again."""
    drain_s: float = 5.0
    """At close: how long messages being sent back may take."""
    handover_s: float = 0.5
    """Before queues are taken over from other members, so that these have committed."""
    on_error: Callable[[RoquetError], None] | None = None
    """Called once for each trouble that may pass: no server, no such topic yet. What cannot pass
    is raised by the loop instead. Without one that of `connect` is called."""
    on_assigned: QueuesChanged | None = None
    """Called with the queues that this member takes over, those of the retry topic included,
    before their first message is fetched. It may be `async`; others wait for it."""
    on_revoked: QueuesChanged | None = None
    """Called with the queues that go to other members, or at close, before their offsets are
    committed for the last time: what is acknowledged in it counts."""
    codec: Codec | None = None
    """Decodes bodies, for `Received.value`."""
    body_size_max: int = 64 * 1024 * 1024
    """Of a decompressed body."""

    def __post_init__(self) -> None:
        """Raise UsageError for a wrong type."""
        like_defaults(self)
