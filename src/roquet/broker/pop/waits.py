"""Waiting for a message to pop, for fronts that keep a request in a task of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet.broker.pop.receive.polls import Poll, Waiting
from roquet.broker.pop.receive.reads import has_wanted
from roquet.broker.services.light_reads import is_judged
from roquet.protocol.light import light_topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.broker.api.pop import LightPopRequest, PopRequest
    from roquet.broker.pop.receive.checks import PopChecks
    from roquet.broker.pop.receive.polls import PopPolls
    from roquet.broker.pop.receive.reads import Reader
    from roquet.remoting.router import Peer

LOOKS_MAX = 32
"""New messages that an arrival looks at for a filter; with more a poll is woken anyway."""


class PopWaits:
    """Has pops wait that found nothing, together with those of every other front."""

    def __init__(self, polls: PopPolls, checks: PopChecks, store: Reader) -> None:
        self._polls = polls
        self._checks = checks
        self._store = store

    async def wait(self, wanted: PopRequest, peer: Peer) -> Waiting:
        """Return HELD when it is time to pop again, at the latest at the end of `poll_ms`.

        FULL and LATE come at once. A wait that is cancelled is forgotten.
        """
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def resume() -> None:
            if not woken.done():
                woken.set_result(None)

        poll = Poll(
            topic=wanted.topic,
            group=wanted.group,
            queue_id=wanted.queue_id,
            peer=peer,
            expires_ms=wanted.born_ms + wanted.poll_ms,
            resume=resume,
            matches=self._matches(wanted),
        )
        waiting = self._polls.hold(poll)
        if waiting is Waiting.HELD:
            try:
                await woken
            finally:
                self._polls.leave(poll)
        return waiting

    def wake(self, wanted: PopRequest) -> None:
        """Have the next pop for the same messages tried again: some are left."""
        self._polls.wake(wanted.topic, wanted.group, wanted.queue_id)

    def drop(self, peer: Peer) -> None:
        """Forget the polls of a client that has gone."""
        self._polls.drop_peer(peer)

    def _matches(self, wanted: PopRequest) -> Callable[[int, int, int], bool] | None:
        def matches(queue_id: int, begin: int, end: int) -> bool:
            takes = self._checks.wanted(wanted.topic, wanted.expression, wanted.expression_type)
            return has_wanted(
                *(self._store, (wanted.topic, queue_id), begin, end),
                wanted=takes,
                most=LOOKS_MAX,
                may_read=wanted.may_read,
            )

        looks = wanted.expression not in {None, "", "*"}
        return matches if looks or is_judged(wanted.topic, wanted.may_read) else None


class LightWaits:
    """Has pops of light topics wait that found nothing, with those of every other front."""

    def __init__(self, polls: PopPolls, has_events: Callable[[tuple[str, str]], bool]) -> None:
        """`has_events` tells of a client, by its id and its group, whether something is there."""
        self._polls = polls
        self._has_events = has_events

    async def wait(self, wanted: LightPopRequest, peer: Peer) -> Waiting:
        """Return HELD when it is time to pop again, at the latest at the end of `poll_ms`.

        FULL and LATE come at once. A wait that is cancelled is forgotten.
        """
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def resume() -> None:
            if not woken.done():
                woken.set_result(None)

        client = wanted.client_id, wanted.group
        poll = Poll(
            *client,
            queue_id=light_topics.QUEUE_ID,
            peer=peer,
            expires_ms=wanted.born_ms + wanted.poll_ms,
            resume=resume,
        )
        waiting = self._polls.hold(poll)
        if waiting is Waiting.HELD:
            if self._has_events(client):
                # They came while the pop went through others.
                self._polls.wake(*client, light_topics.QUEUE_ID)
            try:
                await woken
            finally:
                self._polls.leave(poll)
        return waiting
