"""Blocking form of Received: written by `python -m tools.sync_client`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from roquet.client import _received
    from roquet.service.loop_thread import LoopThread


class Received:
    """One delivery, blocking."""

    def __init__(self, inner: _received.Received, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes again from the retry topic."""
        return self._inner.topic

    @property
    def body(self) -> bytes:
        """The body, decompressed."""
        return self._inner.body

    @property
    def value(self) -> Any:
        """The body as the consumer's codec reads it (`ConsumerOptions.codec`).

        Raises DecodeFailed, and UsageError for a consumer without a codec.
        """
        return self._inner.value

    @property
    def tag(self) -> str | None:
        """The tag."""
        return self._inner.tag

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys."""
        return self._inner.keys

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, RocketMQ's own included."""
        return self._inner.properties

    @property
    def message_id(self) -> str:
        """The producer's id, the same on every delivery; the offset id where it has none."""
        return self._inner.message_id

    @property
    def queue_offset(self) -> int:
        """Its place in the queue it was read from."""
        return self._inner.queue_offset

    @property
    def attempt(self) -> int:
        """1 at the first delivery, 2 at the second, and so on."""
        return self._inner.attempt
