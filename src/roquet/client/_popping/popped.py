"""A message that a pop gave: invisible to the group for a time, with the handle that settles it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from roquet.protocol.pop.handle import (
    NORMAL,
    HandleError,
    ReceiptHandle,
    read_msg_offset_info,
    read_start_offset_info,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.model.message import StoredMessage
    from roquet.protocol.headers.pop import PopMessageResponse

HANDLE = "POP_CK"
"""Property by which a broker hands out a handle itself: of messages that come again."""


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
    starts = read_start_offset_info(answer.start_offset_info or "")
    offsets = read_msg_offset_info(answer.msg_offset_info or "")
    found: list[Popped] = []
    for message in messages:
        given = message.properties.get(HANDLE)
        if given is not None:
            found.append(Popped(message, ReceiptHandle.decode(given)))
            continue
        key = NORMAL, message.queue_id
        if key not in starts or message.queue_offset not in offsets.get(key, ()):
            where = f"{message.topic}, queue {message.queue_id}, offset {message.queue_offset}"
            raise HandleError(f"the answer to a pop does not say how {where} was taken")
        handle = ReceiptHandle(
            start_offset=starts[key],
            pop_time_ms=answer.pop_time,
            invisible_ms=answer.invisible_time,
            revive_queue=answer.revive_qid,
            retry_flag=NORMAL,
            broker_name=broker_name,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
        )
        found.append(Popped(message, handle))
    return found
