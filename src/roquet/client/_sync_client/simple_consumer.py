"""Blocking form of SimpleConsumer: written by `python -m tools.sync_client`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from roquet.client._popping import simple_consumer
    from roquet.client._popping.popped import Popped
    from roquet.service.loop_thread import LoopThread


class SimpleConsumer:
    """Receives and acknowledges messages one by one, blocking."""

    def __init__(self, inner: simple_consumer.SimpleConsumer, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def start(self) -> None:
        """Join the group. Raises Refused for a topic that is not there, Unreachable."""
        self._loop.run(self._inner.start())

    def close(self) -> None:
        """Leave the group. Twice is once."""
        self._loop.run(self._inner.close())

    def receive(
        self, max_messages: int = 16, *, wait_s: float = 10.0, invisible_s: float = 60.0
    ) -> list[Popped]:
        """Return up to `max_messages` (1 to 32); an empty list when none came in `wait_s` seconds.

        Nobody else in the group gets them for `invisible_s`; then what is not acknowledged comes
        again. Raises UsageError, Refused, Unreachable, OutcomeUnknown.
        """
        return self._loop.run(
            self._inner.receive(max_messages, wait_s=wait_s, invisible_s=invisible_s)
        )

    def ack(self, popped: Popped) -> None:
        """Say that a message is done: the group does not get it again.

        Raises Refused, also for one whose invisible time is long over; Unreachable, OutcomeUnknown.
        """
        self._loop.run(self._inner.ack(popped))

    def change_invisible(self, popped: Popped, invisible_s: float) -> Popped:
        """Have a message stay invisible for `invisible_s` from now on; return its new delivery.

        With 0 it comes again at once. The old handle settles nothing any more. Raises as `ack`.
        """
        return self._loop.run(self._inner.change_invisible(popped, invisible_s))
