"""One queue's messages one by one, each after the end of the one before."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from roquet.client._received import DEAD_LETTER, Outcome, Received

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.client._cluster.session import Session
    from roquet.client._consuming.give_back import GiveBack, TryHere
    from roquet.client._consuming.handout import Handout
    from roquet.client._queues.assigned_queue import AssignedQueue
    from roquet.client._queues.locks import Locks
    from roquet.client.codecs.base import Codec
    from roquet.model.message import StoredMessage


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InOrder:
    """Gives out the messages of queues that an ordered consumer holds locks of."""

    session: Session
    locks: Locks
    give_back: GiveBack | TryHere
    handout: Handout
    finish: Callable[[AssignedQueue, int], None]
    """Called for each message that is done."""
    news: asyncio.Event
    """Set whenever the application has said something."""
    codec: Codec | None
    retry_s: float

    async def run(self, lane: AssignedQueue) -> None:
        """Give out what waits in the queue's line, for ever."""
        clock = self.session.clock
        while True:
            message = await lane.waiting.get()
            while True:
                fresh = lane.held.lock_is_fresh(clock.steady_ms())
                if not fresh and not await self.locks.lock(lane.held):
                    await clock.sleep(self.retry_s)
                    continue
                outcome, delay_level = await self._give_out(lane, message)
                done = outcome is Outcome.ACK or (
                    delay_level == DEAD_LETTER and await self.give_back.give(message, DEAD_LETTER)
                )
                if done:
                    self.finish(lane, message.queue_offset)
                    break
                again = message.reconsume_times + 1
                message = dataclasses.replace(message, reconsume_times=again)
                await clock.sleep(self.retry_s)

    async def _give_out(self, lane: AssignedQueue, message: StoredMessage) -> tuple[Outcome, int]:
        done: asyncio.Future[tuple[Outcome, int]] = asyncio.get_running_loop().create_future()

        def settled(_: Received, outcome: Outcome, delay_level: int) -> None:
            lane.given = None
            self.news.set()
            if not done.done():
                done.set_result((outcome, delay_level))

        shown = self.session.namespace.shown(message)
        lane.given = message.queue_offset
        self.handout.put(Received(shown, lane.held.queue, settled, self.codec))
        return await done
