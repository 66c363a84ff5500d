"""The frames of sends: their fields as send requests, results and refusals as answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.send import SendBatchRequest, SendRequest, SendResult
from roquet.broker.remoting.refusals import STATUSES, refusal_reply
from roquet.broker.services.send.service import check_body
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.message import SendMessageRequest, SendMessageResponse
from roquet.remoting.headers import reader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.broker.api.refusal import Refusal
    from roquet.remoting.router import Request

_WRITTEN = SendMessageResponse.writer()
_SHORT_HEADER = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


class SendAnswers:
    """Makes the answers to sends."""

    def __init__(self, ext: Mapping[str, str]) -> None:
        """`ext` are the fields that every one of them carries; they may change meanwhile."""
        self._ext = ext

    def stored(self, request: Request, result: SendResult) -> Command:
        """Return the answer for what was stored."""
        ids = result.message_ids
        fields = _WRITTEN(
            {
                "msg_id": ids[0] if len(ids) == 1 else ",".join(ids),
                "queue_id": result.queue_id,
                "queue_offset": result.queue_offset,
                "transaction_id": result.transaction_id,
                "recall_handle": result.recall_handle,
            }
        )
        fields.update(self._ext)
        return reply_to(request.command, STATUSES[result.status], ext=fields)

    def refused(self, request: Request, refusal: Refusal) -> Command:
        """Return the answer for what was not stored."""
        # Java clients read region and trace switch from every answer to a send.
        return refusal_reply(request.command, refusal, ext=self._ext)


_READ = reader(SendMessageRequest)
_READ_SHORT = reader(SendMessageRequest, short=True)


def header_of(request: Request) -> SendMessageRequest:
    """Read what a send asks for. Raises HeaderError, and Refusal for one without a body."""
    command = request.command
    header = (_READ_SHORT if command.code in _SHORT_HEADER else _READ)(command)
    check_body(command.body)
    return header


def message(request: Request, header: SendMessageRequest) -> SendRequest:
    """Return the message that a frame brings."""
    return SendRequest(
        topic=header.topic,
        queue_id=header.queue_id,
        template=header.default_topic,
        template_queues=header.default_topic_queue_nums,
        is_unit=bool(header.unit_mode),
        body=request.command.body,
        properties=props.read(header.properties),
        producer_group=header.producer_group,
        born_ms=header.born_timestamp,
        flag=header.flag,
        sys_flag=header.sys_flag,
        attempts=header.reconsume_times,
        attempts_max=header.max_reconsume_times,
    )


def batch(request: Request, header: SendMessageRequest) -> SendBatchRequest:
    """Return the batch that a frame brings."""
    return SendBatchRequest(
        topic=header.topic,
        queue_id=header.queue_id,
        template=header.default_topic,
        template_queues=header.default_topic_queue_nums,
        is_unit=bool(header.unit_mode),
        messages=request.command.body,
        properties=props.read(header.properties),
        producer_group=header.producer_group,
        born_ms=header.born_timestamp,
        sys_flag=header.sys_flag,
        attempts=header.reconsume_times,
    )
