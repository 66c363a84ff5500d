"""Messages that the application could not handle: back to a broker, which brings them again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.client._cluster.requests import request
from roquet.client._cluster.routes import publish_queues
from roquet.client._sending.receipt import STATUS_OF_CODE
from roquet.model.message import ATTEMPTS_MAX
from roquet.protocol import names, properties
from roquet.protocol.codes import RequestCode
from roquet.protocol.headers.message import SendMessageRequest
from roquet.protocol.messages import sys_flag
from roquet.remoting.refusals import refused

if TYPE_CHECKING:
    from roquet.client._cluster.broker_calls import BrokerCalls
    from roquet.client._cluster.session import Session
    from roquet.model.message import StoredMessage

log = logging.getLogger(__name__)

DEFAULT_RETRIES = 16
_FIRST_LEVEL = 3
_TIMEOUT_S = 5.0


class TryHere:
    """Stands for giving back where every consumer gets every message: it is tried again here."""

    def __init__(self, group: str, retry_times_max: int) -> None:
        """Give a message up after so many tries; -1 stands for 16."""
        self._group = group
        self._tries_max = DEFAULT_RETRIES if retry_times_max < 0 else retry_times_max

    async def give(self, message: StoredMessage, delay_level: int) -> bool:
        """Tell whether the message is done with; otherwise it is to be handed out again."""
        if delay_level >= 0 and message.reconsume_times < self._tries_max:
            return False
        log.error(
            "%s gives up message %s of %s after %d tries",
            self._group,
            message.unique_key or message.msg_id,
            message.topic,
            message.reconsume_times + 1,
        )
        return True


class GiveBack:
    """Sends messages back, by the request made for it or, failing that, as new messages."""

    def __init__(
        self, session: Session, calls: BrokerCalls, group: str, retry_times_max: int
    ) -> None:
        """`retry_times_max` -1 leaves the number of tries to the group's configuration."""
        self._session = session
        self._calls = calls
        self._group = group
        self._retry_times_max = retry_times_max

    async def give(self, message: StoredMessage, delay_level: int) -> bool:
        """Give one message back; return whether a broker has it now."""
        try:
            await self._calls.send_back(self._group, message, delay_level, self._retry_times_max)
        except (Refused, Unreachable, OutcomeUnknown) as error:
            log.warning("message %s is not sent back: %s", message.msg_id, error)
        else:
            return True
        try:
            await self._send_again(message)
        except (Refused, Unreachable, OutcomeUnknown) as error:
            log.warning("message %s is not sent again either: %s", message.msg_id, error)
            return False
        return True

    async def _send_again(self, message: StoredMessage) -> None:
        topic = names.retry_topic(self._group)
        queues = publish_queues(topic, await self._session.route(topic))
        if not queues:
            raise Unreachable(f"{topic} has no queue that can be written to")
        queue = queues[message.queue_offset % len(queues)]
        retries = DEFAULT_RETRIES if self._retry_times_max < 0 else self._retry_times_max
        carried = {
            name: value
            for name, value in message.properties.items()
            if name not in (properties.TRANSACTION_PREPARED, properties.MIN_OFFSET)
            and name != properties.MAX_OFFSET
        }
        again = min(message.reconsume_times + 1, ATTEMPTS_MAX)
        carried |= {
            properties.RETRY_TOPIC: message.topic,
            properties.ORIGIN_MESSAGE_ID: carried.get(properties.ORIGIN_MESSAGE_ID, message.msg_id),
            properties.RECONSUME_TIME: str(again),
            properties.MAX_RECONSUME_TIMES: str(retries),
            properties.DELAY: str(_FIRST_LEVEL + message.reconsume_times),
        }
        header = SendMessageRequest(
            producer_group=names.INNER_PRODUCER_GROUP,
            topic=topic,
            default_topic=names.AUTO_CREATE_TOPIC,
            default_topic_queue_nums=1,
            queue_id=queue.queue_id,
            # The body is here decompressed.
            sys_flag=message.sys_flag & sys_flag.MULTI_TAGS,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=properties.write(carried),
            reconsume_times=again,
            unit_mode=False,
            batch=False,
            max_reconsume_times=retries,
            broker_name=queue.broker_name,
        )
        command = request(RequestCode.SEND_MESSAGE_V2, header, message.body, short=True)
        address = self._session.master(queue.broker_name)
        answer = await self._session.client.call(address, command, _TIMEOUT_S)
        if answer.code not in STATUS_OF_CODE:
            raise refused(answer.code, answer.remark)
