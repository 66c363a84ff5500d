"""What a broker of a cluster gives to one receive. The broker itself waits for messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.pop.receive.polls import Waiting
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.header import HeaderError
from roquet.protocol.headers.pop import PopMessageRequest, PopMessageResponse
from roquet.protocol.pop.handle import PopTables, ReceiptHandle
from roquet.proxy.brokers.api import Found
from roquet.proxy.rules.codes import Code, Rejected
from roquet.store.records import read_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.broker.api.caller import Caller
    from roquet.broker.api.pop import PopRequest
    from roquet.proxy.cluster.calls import Calls
    from roquet.remoting.router import Peer
    from roquet.store.records import Record

ANSWER_S = 3.0
"""A broker may answer so much later than it was to wait."""
_PASSED = frozenset(
    {
        int(ResponseCode.SUCCESS),
        int(ResponseCode.PULL_NOT_FOUND),
        int(ResponseCode.POLLING_FULL),
        int(ResponseCode.POLLING_TIMEOUT),
    }
)


class ClusterSource:
    """The queues that a topic has on one broker."""

    def __init__(self, calls: Calls, broker: str, wanted: PopRequest) -> None:
        self._calls = calls
        self._broker = broker
        self.wanted = wanted
        self._outcome = Waiting.LATE

    async def take(self, caller: Caller, now_ms: int) -> list[Found]:
        """Return what comes while the broker waits. Raises Refusal and Rejected."""
        del caller
        wanted = self.wanted
        header = PopMessageRequest(
            consumer_group=wanted.group,
            topic=wanted.topic,
            queue_id=wanted.queue_id,
            max_msg_nums=wanted.max_messages,
            invisible_time=wanted.invisible_ms,
            poll_time=wanted.poll_ms,
            born_time=now_ms,
            init_mode=0 if wanted.from_first else 1,
            exp_type=wanted.expression_type,
            exp=wanted.expression,
            order=wanted.is_ordered,
            attempt_id=wanted.attempt_id,
        )
        answer = await self._calls.ask(
            self._broker,
            RequestCode.POP_MESSAGE,
            header,
            timeout_s=wanted.poll_ms / 1000 + ANSWER_S,
            passed=_PASSED,
        )
        if answer.code == ResponseCode.POLLING_FULL:
            self._outcome = Waiting.FULL
        if answer.code != ResponseCode.SUCCESS:
            return []
        try:
            header_given = PopMessageResponse.decode(answer.ext)
            records = read_records(answer.body, check_crc=False)
            return _found(records, header_given, self._broker, is_ordered=wanted.is_ordered)
        except (HeaderError, ValueError) as error:
            text = f"{self._broker} answers a pop that cannot be read: {error}"
            raise Rejected(Code.INTERNAL_SERVER_ERROR, text) from error

    async def wait(self, peer: Peer) -> Waiting:
        """Return why there was nothing: the broker has waited already."""
        del peer
        return self._outcome


def _found(
    records: Sequence[Record], answer: PopMessageResponse, broker: str, *, is_ordered: bool
) -> list[Found]:
    """Give each message its handle. Raises HandleError for tables that do not fit."""
    tables = PopTables(answer, broker)
    found: list[Found] = []
    for record in records:
        given = props.read(record.properties).get(props.POP_CK)
        if given is None:
            handle = tables.handle(record.topic, record.queue_id, record.queue_offset)
        else:
            handle = ReceiptHandle.decode(given)
        count = tables.deliveries(handle) if is_ordered else 0
        counted = record._replace(reconsume_times=count) if count > 0 else record
        found.append(Found(counted, f"{handle.encode()} {record.physical_offset}"))
    return found
