"""Sends notices of members to other proxies through a topic, and reads those of others.

Every proxy reads all queues of the topic from their ends on: what was said before it started is
said again within half a minute. The topic is made on all masters when it is not there. A notice
that cannot be sent is dropped, since the next one of its member says the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import Refused, RoquetError
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import ResponseCode
from roquet.protocol.fastjson import JsonError
from roquet.proxy.groups.members import GroupMembers
from roquet.proxy.groups.notices import BYTES_MAX, Notice
from roquet.proxy.groups.waiting import WaitingNotices
from roquet.service.background import Tasks
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.client import MQ, Producer, PullConsumer
    from roquet.model.queue import MessageQueue

log = logging.getLogger(__name__)

SENT_AT_ONCE = 32
ROUND_S = 10.0
QUEUES_S = 30.0
"""How often queues are looked for that are new."""
LEAVE_S = 1.0
"""How long a stop waits until others are told."""
AGAIN_S = 2.0
"""Pause after a failure."""


class MemberSync:
    """Keeps `members` like those of the other proxies of a cluster. A service."""

    def __init__(self, mq: MQ, topic: str, proxy_id: str, clock: Clock) -> None:
        """Tell of members as the proxy of this id, through this topic."""
        self.members = GroupMembers(proxy_id, self._told)
        self._mq = mq
        self._topic = topic
        self._clock = clock
        self._waiting = WaitingNotices()
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks = Tasks()
        self._log = RateLog(log, clock)

    async def start(self) -> None:
        """Begin to read and to send. Brokers that are away are waited for in the background."""
        await self._mq.start()
        self._tasks.spawn(self._send_all(), "notices to other proxies")
        self._tasks.spawn(self._read_all(), "notices of other proxies")
        self._tasks.repeat(
            self._round, self._clock, name="members", every_s=ROUND_S, first_after_s=ROUND_S
        )

    async def stop(self) -> None:
        """Tell others that this proxy has no members any more, and stop."""
        self.members.leave_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._idle.wait()
        await self._tasks.stop()
        await self._mq.close()

    def _round(self) -> None:
        now_ms = self._clock.steady_ms()
        self.members.expire(now_ms)
        self.members.tell_again(now_ms)

    # --- to others -------------------------------------------------------------------------------

    def _told(self, notice: Notice) -> None:
        self._waiting.put(notice)
        self._idle.clear()
        self._news.set()

    async def _send_all(self) -> None:
        async with self._mq.producer(f"PID_{self._topic}") as producer:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._waiting:
                    notices = self._waiting.take(SENT_AT_ONCE)
                    await asyncio.gather(*(self._send(producer, one) for one in notices))
                self._idle.set()

    async def _send(self, producer: Producer, notice: Notice) -> None:
        try:
            body = notice.encode(self._clock.now_ms())
            if len(body) > BYTES_MAX:
                text = f"a notice of {len(body)} bytes is not sent: others read {BYTES_MAX}"
                self._log.warning("long", text)
                return
            # What is said of one client comes in order.
            await producer.send(self._topic, body, order_key=notice.client_id)
        except RoquetError as error:
            text = f"other proxies do not hear of members of groups: {error}"
            self._log.warning("send", text)

    # --- of others -------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        async with self._mq.pull_consumer(f"CID_{self._topic}") as consumer:
            until_ms = 0
            while True:
                try:
                    if self._clock.steady_ms() >= until_ms:
                        await consumer.assign(await self._queues(consumer), start="latest")
                        until_ms = self._clock.steady_ms() + int(QUEUES_S * 1000)
                    for message in await consumer.poll(timeout_s=QUEUES_S):
                        self._heard(message.body)
                except RoquetError as error:
                    text = f"members of groups at other proxies are not heard of: {error}"
                    self._log.warning("read", text)
                    until_ms = 0
                    await self._clock.sleep(AGAIN_S)

    async def _queues(self, consumer: PullConsumer) -> tuple[MessageQueue, ...]:
        try:
            return await consumer.queues(self._topic)
        except Refused as refused:
            if refused.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
        config = TopicConfig(name=self._topic, read_queues=1, write_queues=1)
        await self._mq.admin().topics.put(config)
        return await consumer.queues(self._topic)

    def _heard(self, body: bytes) -> None:
        try:
            notice = Notice.decode(body)
        except JsonError as error:
            self._log.warning("body", f"a notice of another proxy cannot be read: {error}")
            return
        if not self.members.hear(notice, len(body), self._clock.steady_ms()):
            text = "there is no room for more members of groups at other proxies"
            self._log.warning("room", text)
