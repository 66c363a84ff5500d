"""Half messages that RocketMQ's proxies have begun: found by the id of the message.

Such a proxy keeps where a half message is in its memory; brokers have it in their index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.headers.message import QueryMessageRequest
from roquet.protocol.names import TRANS_HALF_TOPIC
from roquet.proxy.brokers.api import HalfPlace
from roquet.proxy.rules.codes import Code, Rejected
from roquet.store.records import read_records

if TYPE_CHECKING:
    from roquet.proxy.cluster.calls import Calls

COPIES_MAX = 32
"""A broker stores a half message again after each check."""
FOREVER_MS = 2**63 - 1
_FOUND = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)})


async def find_half(calls: Calls, broker: str, topic: str, message_id: str) -> HalfPlace | None:
    """Return where the last copy of a half message is on a broker. Raises Refusal and Rejected."""
    header = QueryMessageRequest(
        topic=TRANS_HALF_TOPIC,
        key=message_id,
        max_num=COPIES_MAX,
        begin_timestamp=0,
        end_timestamp=FOREVER_MS,
    )
    answer = await calls.ask(broker, RequestCode.QUERY_MESSAGE, header, passed=_FOUND)
    if answer.code != ResponseCode.SUCCESS:
        return None
    try:
        records = read_records(answer.body, check_crc=False)
    except ValueError as error:
        text = f"{broker} shows half messages that cannot be read: {error}"
        raise Rejected(Code.INTERNAL_SERVER_ERROR, text) from error
    found: HalfPlace | None = None
    for record in records:
        if not props.is_half_of(props.read(record.properties), message_id, topic):
            continue
        if found is None or record.physical_offset > found.physical_offset:
            found = HalfPlace(record.physical_offset, record.queue_offset, broker)
    return found
