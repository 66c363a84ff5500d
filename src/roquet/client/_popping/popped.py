"""A message that a pop gave: invisible to the group for a time, with the handle that settles it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from roquet.protocol.pop.handle import PopTables, ReceiptHandle
from roquet.protocol.properties import POP_CK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.model.message import StoredMessage
    from roquet.protocol.headers.pop import PopMessageResponse


class Popped(NamedTuple):
    """One delivery to a simple consumer."""

    message: StoredMessage
    handle: ReceiptHandle
    """Which pop gave it; another invisible time has another handle."""

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes again."""
        return self.message.topic

    @property
    def body(self) -> bytes:
        """The body, decompressed."""
        return self.message.body

    @property
    def attempt(self) -> int:
        """1 at the first delivery, 2 at the second, and so on."""
        return self.message.reconsume_times + 1

    @property
    def visible_again_ms(self) -> int:
        """When others may get it unless it is acknowledged, Unix milliseconds of the broker."""
        return self.handle.pop_time_ms + self.handle.invisible_ms


def popped_of(
    messages: Sequence[StoredMessage], answer: PopMessageResponse, broker_name: str
) -> list[Popped]:
    """Give each message of an answer its handle. Raises HandleError for tables that do not fit."""
    tables = PopTables(answer, broker_name)
    found: list[Popped] = []
    for message in messages:
        given = message.properties.get(POP_CK)
        if given is None:
            handle = tables.handle(message.topic, message.queue_id, message.queue_offset)
        else:
            handle = ReceiptHandle.decode(given)
        found.append(Popped(message, handle))
    return found
