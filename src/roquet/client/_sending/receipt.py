"""What a producer gets for a message that the broker has."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown
from roquet.model.frozen import maker
from roquet.model.queue import MessageQueue
from roquet.protocol.codes import ResponseCode
from roquet.protocol.header import HeaderError
from roquet.protocol.headers.message import SendMessageResponse
from roquet.remoting.headers import reader
from roquet.remoting.refusals import refused

if TYPE_CHECKING:
    from roquet.client._sending.encode import Encoded
    from roquet.protocol.command import Command


class SendStatus(enum.StrEnum):
    """Stored in every case; whether also as durable as the broker was told to make it."""

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """In the log, but not known to be on the disk."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """On the master; the slave was not heard of in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


STATUS_OF_CODE = {
    int(ResponseCode.SUCCESS): SendStatus.OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}
"""The answers that mean "stored"; any other is a refusal."""

_read = reader(SendMessageResponse)

CODE_OF_STATUS = {status: code for code, status in STATUS_OF_CODE.items()}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SendReceipt:
    """A message's place in the log."""

    status: SendStatus
    message_id: str
    """Made by the producer, the same on every try (property UNIQ_KEY)."""
    offset_id: str
    """Where it lies; brokers find it by this at once."""
    queue: MessageQueue
    queue_offset: int
    recall_handle: str | None = None
    """Of a message that waits for its time: what `recall` takes."""

    @property
    def is_durable(self) -> bool:
        """Whether the broker kept its whole promise; otherwise a crash may lose the message."""
        return self.status is SendStatus.OK


_receipt = maker(SendReceipt)


def receipts_of(answer: Command, encoded: Encoded, queue: MessageQueue) -> list[SendReceipt]:
    """Read the answer to a send: a receipt for each message. Raises Refused, OutcomeUnknown."""
    status = STATUS_OF_CODE.get(answer.code)
    if status is None:
        raise refused(answer.code, answer.remark)
    try:
        header = _read(answer)
    except HeaderError as error:
        raise OutcomeUnknown(f"stored, but the answer cannot be read: {error}") from error
    placed = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
    offset_ids = header.msg_id.split(",")
    return [
        _receipt(
            status=status,
            message_id=message_id,
            offset_id=offset_ids[index] if index < len(offset_ids) else header.msg_id,
            queue=placed,
            queue_offset=header.queue_offset + index,
            recall_handle=header.recall_handle,
        )
        for index, message_id in enumerate(encoded.message_ids)
    ]
