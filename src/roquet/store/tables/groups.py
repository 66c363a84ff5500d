"""The broker's consumer groups: those of `subscriptionGroup.json`, predefined and auto-created.

A group's forbidden table says which topics it may not read, as bits per topic (spec: store §8).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from roquet.base.config import setting
from roquet.base.overriding import override
from roquet.model.data_version import DataVersion
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol import names
from roquet.protocol.bodies.groups import GroupTableBody
from roquet.store.tables.files import FILE_SIZE_MAX
from roquet.store.tables.key_values import TwoRows, TwoTablesCodec
from roquet.store.tables.named import NamedTable
from roquet.store.tables.room import Room, text_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.base.clock import Clock
    from roquet.store.tables.key_values import TableForm

log = logging.getLogger(__name__)

GROUPS_MAX = 200_000
_GROUP_SIZE = 900
"""Bytes of a group in the file beside its texts, and some more."""
_SUBSCRIPTION_SIZE = 120

FORBIDDEN_SUBSCRIPTION = 1
"""The bit of the forbidden table that pulls look at."""

PREDEFINED_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupTableConfig:
    """When a group that nobody created comes to be."""

    auto_create: bool = setting(
        "autoCreateSubscriptionGroup",
        True,
        "Whether the first use of a group creates it.",
        live=True,
    )
    create_system: bool = setting(
        "enableCreateSysGroup",
        True,
        "Whether that holds for system groups in any case.",
        live=True,
    )
    auto_create_max: int = setting(
        "autoCreateGroupMax",
        100_000,
        "No use creates a group beyond so many groups.",
        low=0,
        live=True,
    )


class GroupTable(NamedTable[SubscriptionGroupConfig]):
    """Group name -> configuration, with its data version, kept in some form."""

    def __init__(
        self, form: TableForm, rules: GroupTableConfig, clock: Clock, *, light_queues: bool = False
    ) -> None:
        """Begin with the predefined groups; `load` adds those that were kept.

        With `light_queues` every name of a light queue is that of a group, too.
        """
        rows, self._forbidden = form.two_tables(_CODEC)
        super().__init__(rows, Room("consumer groups", GROUPS_MAX), clock)
        self._light_queues = light_queues
        self._rules = rules
        self._rows.replace({name: SubscriptionGroupConfig(name=name) for name in PREDEFINED_GROUPS})
        self._count_all()

    def load(self) -> bool:
        """Take over the durable groups, if any. Raises Corrupt when no copy is whole."""
        predefined = self._rows.rows()
        is_there = self._rows.load()
        loaded = self._rows.rows()
        groups = {**predefined, **loaded}
        if groups != loaded:
            self._rows.replace(groups)
        self._version = self._rows.version or self._version
        self._count_all()
        return is_there

    async def persist(self) -> None:
        """Make the table durable; returns at once when nothing changed since the last time."""
        await self._rows.flush(self._version)

    # --- looking ---------------------------------------------------------------------------

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """Return a group's configuration, None when there is no such group; create nothing."""
        if self._light_queues and self.is_light(name):
            return SubscriptionGroupConfig(name=name)
        return self._rows.get(name)

    @override
    def is_light(self, name: str) -> bool:
        """Whether a name is that of a light group: there always, and never in the table."""
        return self._light_queues and names.is_lmq(name)

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """Return a group's configuration, creating the group first where the rules allow it."""
        config = self.get(name)
        if config is not None or not self._may_create(name):
            return config
        config = SubscriptionGroupConfig(name=name)
        self.put(config)
        log.info("consumer group %s was created by its first use", name)
        return config

    def has_own(self) -> bool:
        """Whether there is a group that no broker has from its beginning."""
        return len(self._rows) > len(PREDEFINED_GROUPS)

    def forbidden(self, group: str, topic: str) -> int:
        """Return the forbidden bits of a group for a topic."""
        topics = self._forbidden.get(group)
        return 0 if topics is None else topics.get(topic, 0)

    def all_forbidden(self) -> Mapping[str, Mapping[str, int]]:
        """Return the whole forbidden table; it is never changed afterwards."""
        return self._forbidden.rows()

    # --- changing --------------------------------------------------------------------------

    def replace(self, table: GroupTableBody) -> None:
        """Take over another broker's table as it is."""
        old = self._rows.key_list()
        self._rows.replace(table.groups)
        self._forbidden.replace({group: dict(topics) for group, topics in table.forbidden.items()})
        self._version = table.version
        self._count_all()
        for listener in self._listeners:
            listener({*old, *table.groups})

    def follow(self, rules: GroupTableConfig) -> None:
        """Let first uses create groups by other rules from now on."""
        self._rules = rules

    def remove(self, name: str) -> SubscriptionGroupConfig | None:
        """Forget a group and its forbidden bits; return what it was."""
        old = self._rows.delete(name)
        if old is not None:
            topics = self._forbidden.delete(name) or {}
            forbidden = sum(_forbidden_size(name, topic) for topic in topics)
            self._room.add(-1, -self._size((old,)) - forbidden)
            self._changed((name,))
        return old

    def set_forbidden(self, group: str, topic: str, bits: int) -> None:
        """Replace the forbidden bits of a group for a topic; 0 clears them.

        Raises TableFull when there is no room for more.
        """
        known = self.forbidden(group, topic)
        if bits == known:
            return
        if not known:
            self._room.take(0, _forbidden_size(group, topic))
        elif not bits:
            self._room.add(0, -_forbidden_size(group, topic))
        topics = {**(self._forbidden.get(group) or {}), topic: bits}
        if not bits:
            del topics[topic]
        if topics:
            self._forbidden.put(group, topics)
        else:
            self._forbidden.delete(group)
        self._changed((group,))

    def _count_all(self) -> None:
        forbidden = (
            (group, topic) for group, topics in self._forbidden.rows().items() for topic in topics
        )
        used = self._size(self._rows.rows().values()) + sum(
            _forbidden_size(*pair) for pair in forbidden
        )
        self._room.begin(len(self._rows), used)

    def _may_create(self, name: str) -> bool:
        if names.check_group(name) is not None or len(self._rows) >= self._rules.auto_create_max:
            return False
        if self._rules.auto_create:
            return True
        return self._rules.create_system and names.is_system_group(name)

    @staticmethod
    @override
    def _size(configs: Iterable[SubscriptionGroupConfig]) -> int:
        """Return how many bytes groups take in the file, rounded up."""
        size = 0
        for config in configs:
            size += _GROUP_SIZE + 2 * text_size(config.name)
            size += 16 * len(config.retry_policy.next_ms or ())
            for key, value in config.attributes.items():
                size += text_size(key) + text_size(value) + 8
            for each in config.subscriptions or ():
                size += _SUBSCRIPTION_SIZE + text_size(each.topic)
                size += text_size(each.expression_type) + text_size(each.expression)
        return size


def _forbidden_size(group: str, topic: str) -> int:
    return text_size(group) + text_size(topic) + 32


_Kept: TypeAlias = TwoRows[str, SubscriptionGroupConfig, str, Mapping[str, int]]


def _decode(data: bytes) -> _Kept:
    body = GroupTableBody.decode(data, tolerant_size_max=FILE_SIZE_MAX)
    return TwoRows(body.groups, body.forbidden, body.version)


def _encode(tables: _Kept) -> bytes:
    version = tables.version or DataVersion()
    body = GroupTableBody(groups=tables.first, version=version, forbidden=tables.second)
    return body.encode_file()


_CODEC: TwoTablesCodec[str, SubscriptionGroupConfig, str, Mapping[str, int]] = TwoTablesCodec(
    _decode, _encode
)
