"""This member's share of each topic, or what keeps it from having one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable
from roquet.client._cluster.trouble import FIRST_ANSWER
from roquet.protocol import names
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.client._cluster.trouble import Troubles
    from roquet.client._queues.balancer import Balancer
    from roquet.model.queue import MessageQueue

_UNLISTED_MAX = 3
"""How often brokers may not list us as a member before that counts as trouble."""
_MEMBERSHIP = "the membership"


class Shares:
    """Asks the balancer and tells the troubles."""

    def __init__(self, balancer: Balancer, troubles: Troubles, group: str) -> None:
        """Ask nothing yet."""
        self._balancer = balancer
        self._troubles = troubles
        self._group = group
        self._unlisted = 0

    async def of(self, topic: str, topics: Sequence[str]) -> tuple[MessageQueue, ...] | None:
        """Return the queues of `topic` that are ours, None when that is not known now.

        `topics` are all that the consumer subscribes to.
        """
        try:
            share = await self._balancer.share(topic)
        except (Refused, Unreachable, OutcomeUnknown) as error:
            # Brokers make the retry topic at the group's first heartbeat or pull.
            made_later = names.is_retry(topic) and (
                not isinstance(error, Refused) or error.code == ResponseCode.TOPIC_NOT_EXIST
            )
            if not made_later:
                await self._troubles.met(f"topic {topic}", error, topic=topic)
            return None
        if share is None:
            if topic == topics[0]:
                self._unlisted += 1
                if self._unlisted >= _UNLISTED_MAX:
                    await self._not_listed(topic)
            return None
        self._unlisted = 0
        for subject in (f"topic {topic}", _MEMBERSHIP, FIRST_ANSWER):
            self._troubles.over(subject)
        return share

    async def _not_listed(self, topic: str) -> None:
        reason: RoquetError = Unreachable(
            f"brokers do not list this client as a member of {self._group}"
        )
        try:
            await self._balancer.try_pull(topic)
        except (Refused, Unreachable, OutcomeUnknown) as error:
            reason = error
        await self._troubles.met(_MEMBERSHIP, reason, topic=topic, is_sure=True)
