"""Blocking administration of messages: written by `python -m tools.sync_admin`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin.messages import FOREVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from roquet import admin
    from roquet.admin.messages import Pulled, SentAgain
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.protocol.bodies.stats import ConsumedDirectly
    from roquet.service.loop_thread import LoopThread


class Messages:
    """Messages of a cluster."""

    def __init__(self, inner: admin.Messages, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def by_offset_id(self, offset_id: str) -> StoredMessage:
        """Return a message by its offset id (`SendReceipt.offset_id`).

        Raises Refused when it is not there, UsageError for what is no such id and for one of a
        broker that is not ours: an id holds an address, and nobody is to make us connect just
        anywhere.
        """
        return self._loop.run(self._inner.by_offset_id(offset_id))

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        count: int = 64,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
        by_tag: bool = False,
    ) -> list[StoredMessage]:
        """Return messages with a key, the oldest first, at most `count` from each broker.

        `begin_ms` and `end_ms` bound the store time, Unix milliseconds. `by_tag`: those with a tag,
        of brokers that keep tags in their index. Raises Refused with code 17 for an unknown topic,
        Unreachable.
        """
        return self._loop.run(
            self._inner.by_key(
                topic, key, count=count, begin_ms=begin_ms, end_ms=end_ms, by_tag=by_tag
            )
        )

    def by_id(
        self, topic: str, unique_id: str, *, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[StoredMessage]:
        """Return the copies of a message by the id that its producer made.

        Bounds and errors are those of `by_key`.
        """
        return self._loop.run(self._inner.by_id(topic, unique_id, begin_ms=begin_ms, end_ms=end_ms))

    def at(
        self, queue: MessageQueue, offset: int, count: int = 1, *, group: str | None = None
    ) -> list[StoredMessage]:
        """Return up to `count` messages of a queue from an offset on; none beyond its end.

        `group` is whose right to read is needed, TOOLS_CONSUMER's by default. Raises UsageError,
        Refused, Unreachable, OutcomeUnknown.
        """
        return self._loop.run(self._inner.at(queue, offset, count, group=group))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        count: int = 32,
        *,
        broker: str | None = None,
        group: str | None = None,
    ) -> Pulled:
        """Return the records of up to `count` messages, at most 32, from an offset on.

        There are none at the queue's end. Its master is asked unless another `broker` is given, by
        an address; `group` is whose right to read is needed, TOOLS_CONSUMER's by default. Raises
        UsageError, Refused, Unreachable, OutcomeUnknown.
        """
        return self._loop.run(self._inner.pull(queue, offset, count, broker=broker, group=group))

    def between(
        self,
        topic: str,
        begin_ms: int,
        end_ms: int,
        *,
        count: int = 1000,
        wanted: Callable[[StoredMessage], bool] | None = None,
    ) -> Generator[StoredMessage]:
        """Yield the messages of a topic stored from `begin_ms` to before `end_ms`, by queue.

        At most `count` of each queue, of those that `wanted` takes (see `admin.matching`). Raises
        as `at` does.
        """
        yield from self._loop.iterate(
            self._inner.between(topic, begin_ms, end_ms, count=count, wanted=wanted)
        )

    def send_again(
        self, message: StoredMessage, *, topic: str | None = None, group: str | None = None
    ) -> SentAgain:
        """Send a copy of a stored message; return where it lies.

        It goes to `topic`, without one to the message's own; with `group` only that group gets it:
        it goes to the group's retry topic and comes back under the topic that it had (`topic`).
        Body, tag, keys, the producer's id and the user's own properties are the same; what says how
        and when it was delivered is left out. Raises UsageError, Refused, Unreachable, and
        OutcomeUnknown when the copy may be stored.
        """
        return self._loop.run(self._inner.send_again(message, topic=topic, group=group))

    def consume_directly(
        self, group: str, client_id: str, message: StoredMessage
    ) -> ConsumedDirectly:
        """Have one member of a group consume a message now; return what it said.

        Raises Refused when the member is not online.
        """
        return self._loop.run(self._inner.consume_directly(group, client_id, message))

    def recall(self, message: StoredMessage) -> str:
        """Take back a timer message by its record in the timer topic; return its unique key.

        The broker stores the request beside the message; whoever is just due may come all the same.
        Raises UsageError for what is no timer message, Refused with the broker's reason (it needs
        `recallMessageEnable`), Unreachable, and OutcomeUnknown when it may be taken back.
        """
        return self._loop.run(self._inner.recall(message))
