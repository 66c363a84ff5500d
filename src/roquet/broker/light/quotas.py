"""Whether the clients of a request may have all light topics that it asks for.

The entries of a request are judged in their order, each by what those before it leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.pop import Action
from roquet.broker.api.refusal import Reason, Refusal

if TYPE_CHECKING:
    from roquet.broker.api.pop import LightSubscribe
    from roquet.broker.light.subscriptions import Client, LightSubscriptions

_QUOTA = "org.apache.rocketmq.broker.lite.LiteQuotaException: "


class Quotas:
    """What clients would have behind each entry of one request; nothing is changed by it."""

    def __init__(self, subscriptions: LightSubscriptions, most: int) -> None:
        """`most` bounds the light topics of all clients together, and the clients."""
        self._subscriptions = subscriptions
        self._most = most
        self._had: dict[Client, set[str] | None] = {}
        self._references = subscriptions.references
        self._clients = len(subscriptions)

    def take(self, entry: LightSubscribe, queues: set[str], quota: int | None) -> None:
        """Judge an entry about these queues. Raises Refusal.

        `quota` is the most that a client of the group may have, None for any number.
        """
        client = entry.client_id, entry.group
        before = self._of(client)
        had = 0 if before is None else len(before)
        after = before
        if entry.action is Action.COMPLETE_ADD:
            after = queues
        elif entry.action is Action.PARTIAL_ADD:
            after = queues if before is None else before
            after |= queues
        elif entry.action is Action.COMPLETE_REMOVE:
            after = None
        elif after is not None:
            after -= queues
        self._had[client] = after
        has = 0 if after is None else len(after)
        self._references += has - had
        self._clients += (after is not None) - (before is not None)
        if entry.action not in (Action.PARTIAL_ADD, Action.COMPLETE_ADD):
            return
        if max(self._references, self._clients) > self._most:
            raise too_many(self._most)
        if quota is not None and has > quota:
            raise too_many(quota, " of a client")

    def _of(self, client: Client) -> set[str] | None:
        if client in self._had:
            return self._had[client]
        held = self._subscriptions.get(client)
        return None if held is None else set(held.queues)


def check_room(
    subscriptions: LightSubscriptions, client: Client, most: int, quota: int | None
) -> None:
    """Raise Refusal when a client may not have one light topic more than it has now.

    Requests that came at the same time were each judged without the others.
    """
    held = subscriptions.get(client)
    if subscriptions.references >= most:
        raise too_many(most)
    if quota is not None and held is not None and len(held.queues) >= quota:
        raise too_many(quota, " of a client")


def too_many(most: int, whose: str = "") -> Refusal:
    """Return the refusal of more light topics than there may be, in Java's words."""
    text = f"{_QUOTA}lite subscription quota exceeded {most}{whose}"
    return Refusal(Reason.LIGHT_SUBSCRIPTIONS_FULL, text)
