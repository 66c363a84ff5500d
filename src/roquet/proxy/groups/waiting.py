"""Notices that wait until other proxies are told: the last one of each member and connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquet.proxy.groups.notices import Notice

NOTICES_MAX = 100_000
CHARACTERS_MAX = 64 << 20
"""Of what clients said of themselves: subscriptions or settings, which are most of a notice."""

_Key = tuple[str, str]


class WaitingNotices:
    """Takes notices and gives them back in their order; the oldest makes room for one too many."""

    def __init__(self) -> None:
        self._notices: dict[_Key, Notice] = {}
        self._characters = 0

    def __len__(self) -> int:
        return len(self._notices)

    @property
    def characters(self) -> int:
        """How much those that wait have to say."""
        return self._characters

    def put(self, notice: Notice) -> None:
        """Have a notice wait, in the place of an earlier one of its member if there is one."""
        channel = notice.channel
        key = notice.consumer.group, f"{channel.protocol} {channel.client} {notice.client_id}"
        earlier = self._notices.get(key)
        if earlier is not None:
            self._characters -= _characters(earlier)
        self._notices[key] = notice
        self._characters += _characters(notice)
        while len(self) > NOTICES_MAX or (self._characters > CHARACTERS_MAX and len(self) > 1):
            self._pop()

    def take(self, most: int) -> list[Notice]:
        """Return the oldest ones, which wait no more."""
        return [self._pop() for _ in range(min(most, len(self)))]

    def _pop(self) -> Notice:
        found = self._notices.pop(next(iter(self._notices)))
        self._characters -= _characters(found)
        return found


def _characters(notice: Notice) -> int:
    return len(notice.channel.extra or "") + len(notice.client_id) + len(notice.consumer.group)
