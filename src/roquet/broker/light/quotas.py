"""Whether the clients of a request may have all light topics that it asks for.

The entries of a request are judged in their order, each by what those before it leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.pop import Action
from roquet.broker.api.refusal import Reason, Refusal
from roquet.service.shares import may_hold

if TYPE_CHECKING:
    from collections.abc import Hashable

    from roquet.broker.api.pop import LightSubscribe
    from roquet.broker.light.subscriptions import Client, LightSubscriptions

_QUOTA = "org.apache.rocketmq.broker.lite.LiteQuotaException: "


class Quotas:
    """What clients would have behind each entry of one request; nothing is changed by it."""

    def __init__(self, subscriptions: LightSubscriptions, most: int, user: Hashable) -> None:
        """`most` bounds the light topics of all clients together, and the clients.

        `user` is who asks: an account, or a connection without one.
        """
        self._subscriptions = subscriptions
        self._most = most
        self._user = user
        self._had: dict[Client, set[str] | None] = {}
        self._taken: set[Client] = set()
        """Clients that count for the user from one of the entries on."""
        self._references = subscriptions.references.total
        self._clients = len(subscriptions)
        self._mine = subscriptions.references.of(user)
        self._my_clients = subscriptions.users.of(user)

    def take(self, entry: LightSubscribe, queues: set[str], quota: int | None) -> None:
        """Judge an entry about these queues. Raises Refusal.

        `quota` is the most that a client of the group may have, None for any number.
        """
        client = entry.client_id, entry.group
        is_mine = self._is_mine(client)
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
        adds = entry.action in (Action.PARTIAL_ADD, Action.COMPLETE_ADD)
        if is_mine or adds:
            # Who adds to a client's subscription, or renews it, has it from then on.
            self._taken.add(client)
            self._mine += has - (had if is_mine else 0)
            self._my_clients += (after is not None) - (is_mine and before is not None)
        if not adds:
            return
        if max(self._references, self._clients) > self._most:
            raise too_many(self._most)
        shares = (self._mine, self._references), (self._my_clients, self._clients)
        grows = has > had or before is None
        if grows and not all(may_hold(mine, of_all, self._most) for mine, of_all in shares):
            raise no_share()
        if quota is not None and has > quota:
            raise too_many(quota, " of a client")

    def _is_mine(self, client: Client) -> bool:
        if client in self._taken:
            return True
        held = self._subscriptions.get(client)
        return held is not None and held.user == self._user

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
    if subscriptions.references.total >= most:
        raise too_many(most)
    if held is not None:
        mine = subscriptions.references.of(held.user) + 1
        if not may_hold(mine, subscriptions.references.total + 1, most):
            raise no_share()
    if quota is not None and held is not None and len(held.queues) >= quota:
        raise too_many(quota, " of a client")


def too_many(most: int, whose: str = "") -> Refusal:
    """Return the refusal of more light topics than there may be, in Java's words."""
    text = f"{_QUOTA}lite subscription quota exceeded {most}{whose}"
    return Refusal(Reason.LIGHT_SUBSCRIPTIONS_FULL, text)


def no_share() -> Refusal:
    """Return the refusal of more light topics than one account, or connection, may have now."""
    text = f"{_QUOTA}lite subscription quota exceeded: the rest is for other accounts"
    return Refusal(Reason.LIGHT_SUBSCRIPTIONS_FULL, text)
