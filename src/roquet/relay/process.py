"""The main process: services that own their state, and the mailboxes by which alone they talk.

All services live on the one event loop: a packet never leaves the native exchange, so what is left
for a worker is too little to pay for a thread, and the interpreter's lock would let only one of
them run anyway.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from roquet.relay.registry import Registry

log = logging.getLogger(__name__)

_A_TURN = 1024

MessageHandler = Callable[[Any, Any], None]
"""Called with the service and the message."""


class Mailbox:
    """Messages that wait for one service: bounded; a full one refuses, and counts."""

    def __init__(self, capacity: int, wake: Callable[[], None]) -> None:
        """Call `wake` when a message joins."""
        self._capacity = capacity
        self.wake = wake
        """Has the service run soon, with or without a message."""
        self._messages: deque[Any] = deque()
        self.refused = 0
        """Messages that found it full."""

    def __len__(self) -> int:
        return len(self._messages)

    def post(self, message: Any) -> bool:
        """Add a message; False, and counted, when it is full."""
        if len(self._messages) >= self._capacity:
            self.refused += 1
            return False
        self._messages.append(message)
        self.wake()
        return True

    def take(self, most: int) -> list[Any]:
        """Take the oldest messages."""
        messages = self._messages
        return [messages.popleft() for _ in range(min(most, len(messages)))]


class Service(Protocol):
    """What the main process runs."""

    @property
    def name(self) -> str:
        """Its name, for people."""
        ...

    def handle(self, messages: list[Any]) -> None:
        """Work through messages of the mailbox, oldest first."""
        ...


class MainProcess:
    """The services of the one loop, and their mailboxes. Itself a part of the life-cycle table."""

    def __init__(self, mailbox_max: int) -> None:
        """Own nobody yet."""
        self._mailbox_max = mailbox_max
        self._owned: dict[str, Mailbox] = {}
        self._running = False

    def add(self, service: Service, *, on_demand: bool = True) -> Mailbox:
        """Own a service and return its mailbox. Raises UsageError when it is owned already.

        One that is not run on demand takes its messages by itself, at its tick.
        """
        if service.name in self._owned:
            raise UsageError(f"service {service.name} belongs to two processes")
        due = False

        def run() -> None:
            nonlocal due
            due = False
            messages = mailbox.take(_A_TURN)
            try:
                service.handle(messages)
            except Exception:
                log.exception("service %s failed", service.name)
            if len(mailbox):
                wake()

        def wake() -> None:
            nonlocal due
            if on_demand and self._running and not due:
                due = True
                asyncio.get_running_loop().call_soon(run)

        mailbox = Mailbox(self._mailbox_max, wake)
        self._owned[service.name] = mailbox
        return mailbox

    @property
    def mailboxes(self) -> dict[str, Mailbox]:
        """The mailboxes by service."""
        return self._owned

    async def start(self) -> None:
        """Begin to run what is asked for."""
        self._running = True

    async def stop(self) -> None:
        """Run nothing more."""
        self._running = False


def explain(registry: Registry[Any]) -> str:
    """Return a registry as text, with one line when it is empty."""
    return registry.explain() if len(registry) else f"no {registry.kind} is registered"
