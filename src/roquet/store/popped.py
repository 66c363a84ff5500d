"""Copies of popped messages for another try, read, encoded and appended by the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from roquet._native import StoreError, copy_popped
from roquet.store.results import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.store.store import MessageStore


class Popped(NamedTuple):
    """Where messages lie, and who popped them."""

    topic: str
    queue_id: int
    of_retry: bool
    """Whether the topic is a retry topic: its messages say whose they are."""
    group: str
    pop_time_ms: int
    """Unix milliseconds."""


class Target(NamedTuple):
    """Where their copies go."""

    topic: str
    queue_id: int
    host: bytes
    """This broker's, as records have it."""
    tries: int
    """Tries in vain that this one counts for, 0 or 1."""
    tries_max: int
    """A message that would have more is not copied."""
    left: Sequence[str] = ()
    """Properties whose messages are not copied."""


class PoppedMessages:
    """The popped messages of a store."""

    def __init__(self, store: MessageStore) -> None:
        """`store` is open when it is asked."""
        self._store = store

    def copy(self, popped: Popped, target: Target, offsets: Sequence[int]) -> list[int]:
        """Store copies of messages in the order of their queue offsets; return their sizes.

        It ends at the first message that is not plain or that the log does not take, and may end
        earlier when enough is done for one call, but not before the first. Raises StoreFault.
        """
        try:
            return copy_popped(
                self._store.native,
                popped.topic,
                popped.queue_id,
                offsets,
                to_topic=target.topic,
                to_queue=target.queue_id,
                group=popped.group,
                pop_time_ms=popped.pop_time_ms,
                host=target.host,
                of_retry=popped.of_retry,
                tries=target.tries,
                tries_max=target.tries_max,
                left=target.left,
            )
        except StoreError as error:
            raise fault(error) from error
