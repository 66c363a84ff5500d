"""The broker's consumer groups: those of `subscriptionGroup.json`, predefined and auto-created.

A group's forbidden table says which topics it may not read, as bits per topic (spec: store §8).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from roquet.base.config import setting
from roquet.model.data_version import DataVersion
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol import names
from roquet.protocol.bodies.groups import GroupTableBody
from roquet.store.tables.files import FILE_SIZE_MAX
from roquet.store.tables.key_values import TwoRows, TwoTablesCodec
from roquet.store.tables.room import Room, in_reserved_slices, text_size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

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


class GroupTable:
    """Group name -> configuration, with its data version, kept in some form."""

    def __init__(
        self, form: TableForm, rules: GroupTableConfig, clock: Clock, *, light_queues: bool = False
    ) -> None:
        """Begin with the predefined groups; `load` adds those that were kept.

        With `light_queues` every name of a light queue is that of a group, too.
        """
        self._groups, self._forbidden = form.two_tables(_CODEC)
        self._light_queues = light_queues
        self._rules = rules
        self._clock = clock
        self._version = DataVersion(timestamp=clock.now_ms())
        self._groups.replace(
            {name: SubscriptionGroupConfig(name=name) for name in PREDEFINED_GROUPS}
        )
        self._room = Room("consumer groups", GROUPS_MAX)
        self._count_all()
        self._listeners: list[Callable[[Collection[str]], None]] = []

    @property
    def version(self) -> DataVersion:
        """Changes whenever the table does."""
        return self._version

    def load(self) -> bool:
        """Take over the durable groups, if any. Raises Corrupt when no copy is whole."""
        predefined = self._groups.rows()
        is_there = self._groups.load()
        loaded = self._groups.rows()
        groups = {**predefined, **loaded}
        if groups != loaded:
            self._groups.replace(groups)
        self._version = self._groups.version or self._version
        self._count_all()
        return is_there

    async def persist(self) -> None:
        """Make the table durable; returns at once when nothing changed since the last time."""
        await self._groups.flush(self._version)

    def listen(self, listener: Callable[[Collection[str]], None]) -> None:
        """Have `listener(names)` called after every change of these groups."""
        self._listeners.append(listener)

    # --- looking ---------------------------------------------------------------------------

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """Return a group's configuration, None when there is no such group; create nothing."""
        if self._light_queues and self.is_light(name):
            return SubscriptionGroupConfig(name=name)
        return self._groups.get(name)

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

    def all(self) -> Mapping[str, SubscriptionGroupConfig]:
        """Return the whole table; it is never changed afterwards."""
        return self._groups.rows()

    def __len__(self) -> int:
        return len(self._groups)

    def has_own(self) -> bool:
        """Whether there is a group that no broker has from its beginning."""
        return len(self._groups) > len(PREDEFINED_GROUPS)

    def forbidden(self, group: str, topic: str) -> int:
        """Return the forbidden bits of a group for a topic."""
        topics = self._forbidden.get(group)
        return 0 if topics is None else topics.get(topic, 0)

    def all_forbidden(self) -> Mapping[str, Mapping[str, int]]:
        """Return the whole forbidden table; it is never changed afterwards."""
        return self._forbidden.rows()

    # --- changing --------------------------------------------------------------------------

    def put(self, *configs: SubscriptionGroupConfig) -> bool:
        """Create or replace groups; returns whether anything changed.

        Raises TableFull when they do not fit; then nothing has changed.
        """
        changed = {
            config.name: config
            for config in configs
            if not self.is_light(config.name) and self.get(config.name) != config
        }
        if changed:
            self._room.take(*self._growth(changed.values()))
            for name, config in changed.items():
                self._groups.put(name, config)
            self._changed(changed)
        return bool(changed)

    async def put_in_slices(self, configs: Sequence[SubscriptionGroupConfig]) -> None:
        """Create or replace many groups, others having their turn between.

        Raises TableFull when they do not fit; then nothing has changed.
        """
        await in_reserved_slices(self._room, configs, self._growth, self.put)

    def _growth(self, configs: Iterable[SubscriptionGroupConfig]) -> tuple[int, int]:
        """Return how many entries and bytes the table grows by them."""
        changed = {config.name: config for config in configs}
        old = [known for name in changed if (known := self._groups.get(name)) is not None]
        return len(changed) - len(old), _size(changed.values()) - _size(old)

    def replace(self, table: GroupTableBody) -> None:
        """Take over another broker's table as it is."""
        old = self._groups.key_list()
        self._groups.replace(table.groups)
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
        old = self._groups.delete(name)
        if old is not None:
            topics = self._forbidden.delete(name) or {}
            forbidden = sum(_forbidden_size(name, topic) for topic in topics)
            self._room.add(-1, -_size((old,)) - forbidden)
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
        used = _size(self._groups.rows().values()) + sum(
            _forbidden_size(*pair) for pair in forbidden
        )
        self._room.begin(len(self._groups), used)

    def _may_create(self, name: str) -> bool:
        if names.check_group(name) is not None or len(self._groups) >= self._rules.auto_create_max:
            return False
        if self._rules.auto_create:
            return True
        return self._rules.create_system and names.is_system_group(name)

    def _changed(self, groups: Collection[str]) -> None:
        self._version = self._version.next(self._clock.now_ms())
        for listener in self._listeners:
            listener(groups)


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
