"""The members of consumer groups that this proxy knows.

Nothing here sends, waits or reads a clock. Its own members are here until they leave, and are told
of when they come, change, leave, and again before others would forget them. A member of another
proxy is here until a notice says that it has left, or for as long as no notice comes at all.

Invariant: `_own` and `_others` have what `_by_group` has; a connection is in a group once.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roquet.proxy.groups.notices import Channel, Notice

EXPIRES_MS = 120_000
"""As RocketMQ forgets a connection that is silent."""
AGAIN_MS = 30_000
"""How often others are told of a member that has not changed."""
OTHERS_MAX = 100_000
BYTES_MAX = 64 << 20
"""Of the notices of all members of other proxies together."""

OwnKey = tuple[int, str]
_OtherKey = tuple[str, str, str]


@dataclasses.dataclass(slots=True)
class _Known:
    notice: Notice
    at_ms: int
    """Steady time: when others were told of it last, or when it was heard of last."""
    size: int = 0
    """Bytes of the notice, if it came from another proxy."""


class GroupMembers:
    """Who is in which group, as far as proxies tell one another."""

    def __init__(self, proxy_id: str, tell: Callable[[Notice], None]) -> None:
        """`tell` is given what others should hear of, in order; `proxy_id` is this proxy's."""
        self.proxy_id = proxy_id
        self._tell = tell
        self._own: dict[OwnKey, _Known] = {}
        self._groups_of: dict[int, set[str]] = {}
        """Groups of a connection of this proxy."""
        self._others: dict[_OtherKey, _Known] = {}
        """The one heard of longest ago is first."""
        self._bytes = 0
        """Of the notices of others."""
        self._by_group: dict[str, dict[OwnKey | _OtherKey, Notice]] = {}

    def __len__(self) -> int:
        return len(self._own) + len(self._others)

    @property
    def others(self) -> int:
        """How many members of other proxies are known."""
        return len(self._others)

    def of(self, group: str) -> Iterable[Notice]:
        """Return what is known of a group's members."""
        return self._by_group.get(group, {}).values()

    # --- this proxy's own ------------------------------------------------------------------------

    def channel(self, connection: int, group: str) -> Channel | None:
        """Return how a member was said to be connected: others know it by that."""
        known = self._own.get((connection, group))
        return None if known is None else known.notice.channel

    def put(self, connection: int, notice: Notice, now_ms: int) -> None:
        """Know a member by its connection here; others hear of what is new."""
        assert notice.is_member, "who leaves is not put"
        key = connection, notice.consumer.group
        known = self._own.get(key)
        if known is not None and known.notice == notice and now_ms - known.at_ms < AGAIN_MS:
            return
        self._own[key] = _Known(notice, now_ms)
        self._groups_of.setdefault(connection, set()).add(notice.consumer.group)
        self._by_group.setdefault(notice.consumer.group, {})[key] = notice
        self._tell(notice)

    def leave(self, connection: int, group: str | None = None) -> None:
        """Forget a connection in a group, or in all; others hear of it."""
        groups = self._groups_of.get(connection, set())
        for name in sorted(groups) if group is None else [group]:
            known = self._own.pop((connection, name), None)
            if known is not None:
                groups.discard(name)
                self._drop((connection, name), name)
                self._tell(dataclasses.replace(known.notice, is_member=False))
        if not groups:
            self._groups_of.pop(connection, None)

    def leave_all(self) -> None:
        """Forget all members of this proxy; others hear of it."""
        for connection in list(self._groups_of):
            self.leave(connection)

    def leave_others(self, connection: int, group: str | None) -> None:
        """Forget a connection in all groups but this one."""
        for name in sorted(self._groups_of.get(connection, set()) - {group}):
            self.leave(connection, name)

    def tell_again(self, now_ms: int) -> None:
        """Tell others of members that they would forget."""
        for known in self._own.values():
            if now_ms - known.at_ms >= AGAIN_MS:
                known.at_ms = now_ms
                self._tell(known.notice)

    # --- those of others -------------------------------------------------------------------------

    def hear(self, notice: Notice, size: int, now_ms: int) -> bool:
        """Take a notice of so many bytes; false when there is no room for its member."""
        if notice.proxy_id == self.proxy_id:
            return True
        group, channel = notice.consumer.group, notice.channel
        key = group, f"{channel.proxy_host} {channel.protocol} {channel.proxy}", channel.client
        self._forget(key)
        if not notice.is_member:
            return True
        if len(self._others) >= OTHERS_MAX or self._bytes + size > BYTES_MAX:
            return False
        self._others[key] = _Known(notice, now_ms, size)
        self._bytes += size
        self._by_group.setdefault(group, {})[key] = notice
        return True

    def expire(self, now_ms: int) -> None:
        """Forget members of other proxies that nothing was heard of for long."""
        while self._others:
            key, known = next(iter(self._others.items()))
            if now_ms - known.at_ms < EXPIRES_MS:
                return
            self._forget(key)

    def _forget(self, key: _OtherKey) -> None:
        known = self._others.pop(key, None)
        if known is not None:
            self._bytes -= known.size
            self._drop(key, key[0])

    def _drop(self, key: OwnKey | _OtherKey, group: str) -> None:
        members = self._by_group[group]
        del members[key]
        if not members:
            del self._by_group[group]
