"""A message in the application's hands, and what it may say about it."""

from __future__ import annotations

import contextlib
import enum
import logging
from typing import TYPE_CHECKING, Any

from roquet.base.arguments import checked
from roquet.base.errors import UsageError
from roquet.base.overriding import override
from roquet.client.codecs.base import decoded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from roquet.client.codecs.base import Codec
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue

log = logging.getLogger(__name__)

DEAD_LETTER = -1
"""Delay level that sends a message to the dead-letter topic at once."""


_BODY_SHOWN = 60


class Outcome(enum.Enum):
    """What became of a message."""

    ACK = "ack"
    RETRY = "retry"


@checked
class Received:
    """One delivery. The first of `ack`, `retry` and `dead_letter` counts; later ones do nothing."""

    __slots__ = ("_codec", "_on_settled", "_outcome", "message", "queue")

    def __init__(
        self,
        message: StoredMessage,
        queue: MessageQueue,
        on_settled: Callable[[Received, Outcome, int], None],
        codec: Codec | None = None,
    ) -> None:
        """Take the message as read from `queue`."""
        self._codec = codec
        self.message: StoredMessage = message
        self.queue: MessageQueue = queue
        self._on_settled = on_settled
        self._outcome: Outcome | None = None

    @override
    def __repr__(self) -> str:
        """Return what a log line needs: where it lies, its id, tag, and how the body begins."""
        body = self.message.body
        shown = repr(body[:_BODY_SHOWN]) + ("..." if len(body) > _BODY_SHOWN else "")
        where = f"{self.topic} {self.queue.broker_name}/{self.queue.queue_id}:{self.queue_offset}"
        tag = "" if self.tag is None else f" tag={self.tag!r}"
        return f"<Received {where} id={self.message_id}{tag} attempt={self.attempt} body={shown}>"

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes again from the retry topic."""
        return self.message.topic

    @property
    def body(self) -> bytes:
        """The body, decompressed."""
        return self.message.body

    @property
    def value(self) -> Any:
        """The body as the consumer's codec reads it (`ConsumerOptions.codec`).

        Raises DecodeFailed, and UsageError for a consumer without a codec.
        """
        if self._codec is None:
            raise UsageError("the consumer has no codec: ConsumerOptions(codec=roquet.Json())")
        return decoded(self._codec, self.message.body)

    @property
    def tag(self) -> str | None:
        """The tag."""
        return self.message.tag

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys."""
        return self.message.keys

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, RocketMQ's own included."""
        return self.message.properties

    @property
    def message_id(self) -> str:
        """The producer's id, the same on every delivery; the offset id where it has none."""
        return self.message.unique_key or self.message.msg_id

    @property
    def queue_offset(self) -> int:
        """Its place in the queue it was read from."""
        return self.message.queue_offset

    @property
    def attempt(self) -> int:
        """1 at the first delivery, 2 at the second, and so on."""
        return self.message.reconsume_times + 1

    @property
    def is_settled(self) -> bool:
        """Whether the application has said what became of it."""
        return self._outcome is not None

    def watch(self, settled: Callable[[Outcome], None]) -> None:
        """Have `settled` called with the outcome too; for traces, not for applications."""
        before = self._on_settled

        def both(received: Received, outcome: Outcome, delay_level: int) -> None:
            settled(outcome)
            before(received, outcome, delay_level)

        self._on_settled = both

    def ack(self) -> None:
        """Done: the group does not get it again."""
        self._settle(Outcome.ACK, 0)

    def retry(self, delay_level: int = 0) -> None:
        """Not done: again later. Level 0 lets the broker grow the pause with each attempt."""
        self._settle(Outcome.RETRY, delay_level)

    def dead_letter(self) -> None:
        """Not done and never will be: to the group's dead-letter topic."""
        self._settle(Outcome.RETRY, DEAD_LETTER)

    @contextlib.asynccontextmanager
    async def process(
        self, *, delay_level: int = 0, reraise: bool = False
    ) -> AsyncGenerator[Received]:
        """Acknowledge at the end of the block; an exception in it is logged and means `retry`.

        With `reraise` the exception goes on. A cancelled block settles nothing: the message comes
        again to whoever gets the queue.
        """
        try:
            yield self
        except Exception:
            log.exception("message %s of %s failed", self.message_id, self.topic)
            self.retry(delay_level)
            if reraise:
                raise
        else:
            self.ack()

    def _settle(self, outcome: Outcome, delay_level: int) -> None:
        if self._outcome is None:
            self._outcome = outcome
            self._on_settled(self, outcome, delay_level)
