"""Telling the members of a consumer group that they have to share the queues anew (code 40)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.protocol.codes import RequestCode
from roquet.protocol.command import FLAG_ONE_WAY, Command
from roquet.protocol.headers.client import NotifyConsumerIdsChangedRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.broker.clients.registry import Registry
    from roquet.store.tables.groups import GroupTable


class GroupNotices:
    """Sends NOTIFY_CONSUMER_IDS_CHANGED, at once or gathered (spec: broker (b) Client manage)."""

    def __init__(
        self, registry: Registry, groups: GroupTable, *, enabled: bool, at_once: bool
    ) -> None:
        """`at_once` False gathers changes until `flush` (Java: realTimeNotifyConsumerChange)."""
        self._registry = registry
        self._groups = groups
        self._enabled = enabled
        self._at_once = at_once
        self._waiting: dict[str, None] = {}

    def follow(self, *, enabled: bool, at_once: bool) -> None:
        """Tell members by other settings from now on; what was gathered is told with a flush."""
        self._enabled = enabled
        self._at_once = at_once

    def changed(self, groups: Iterable[str]) -> None:
        """Tell the members of these groups, now or with the next flush."""
        if not self._enabled:
            return
        if self._at_once:
            for group in groups:
                self._tell(group)
        else:
            self._waiting.update(dict.fromkeys(groups))

    async def flush(self) -> None:
        """Tell the members of the groups gathered since the last flush, once each."""
        waiting, self._waiting = self._waiting, {}
        for group in waiting:
            self._tell(group)

    def _tell(self, group: str) -> None:
        known = self._registry.consumer(group)
        if known is None or known.is_broadcasting:
            return
        config = self._groups.get(group)
        if config is not None and not config.notify_consumer_ids_changed_enable:
            return
        notice = Command(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            ext=NotifyConsumerIdsChangedRequest(consumer_group=group).encode(),
            flag=FLAG_ONE_WAY,
            language="JAVA",
        )
        # A connection that fails meanwhile leaves its groups at once.
        for peer in [*known.balancing.values()]:
            # A copy each: the connection numbers what it sends.
            peer.send_one_way(dataclasses.replace(notice))
