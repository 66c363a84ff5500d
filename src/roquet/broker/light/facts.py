"""What the tables of topics and groups say about light topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.model import attributes as attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.topic import TopicConfig
    from roquet.store.tables.groups import GroupTable
    from roquet.store.tables.topics import TopicTable

EVENTS_LIMIT = 10_000
"""No group has more noted for a client."""
QUOTA_DEFAULT = 2_000
QUOTA_TOLERANCE = 300
"""Light topics that a client may have beyond its quota: clients count for themselves, and count
what they are about to give up as gone (Java: the proxy's tolerance)."""


class LightFacts:
    """Answers from the tables of the moment."""

    def __init__(self, topics: TopicTable, groups: GroupTable) -> None:
        self._topics = topics
        self._groups = groups

    def topic(self, name: str) -> TopicConfig | None:
        """Return a topic, whatever its type."""
        return self._topics.get(name)

    def is_parent(self, name: str) -> bool:
        """Tell whether a topic has light topics."""
        topic = self._topics.get(name)
        return topic is not None and is_parent(topic)

    def parents(self) -> dict[str, int]:
        """Return the topics that have light topics, and the minutes that an idle one stays."""
        return {
            name: attrs.light_expiration_minutes(topic.attributes)
            for name, topic in self._topics.all().items()
            if is_parent(topic)
        }

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        """Return a group without making it."""
        return self._groups.get(name)

    def bound_groups(self) -> dict[str, list[str]]:
        """Return the groups that are bound to each topic."""
        found: dict[str, list[str]] = {}
        for name, group in self._groups.all().items():
            topic = group.attributes.get(attrs.LIGHT_BIND_TOPIC)
            if topic is not None:
                found.setdefault(topic, []).append(name)
        return found

    def bound_topic(self, group: str) -> str | None:
        """Return the topic that a group is bound to; None for a group of no light topics."""
        return bound_topic(self._attributes(group))

    def is_exclusive(self, group: str) -> bool:
        """Tell whether a light topic has one subscriber of the group at a time."""
        return self._attributes(group).get(attrs.LIGHT_MODEL) == "Exclusive"

    def resets_exclusive(self, group: str) -> bool:
        """Tell whether a subscriber that takes over begins at the first message."""
        return self._is_true(group, attrs.LIGHT_RESET_EXCLUSIVE)

    def resets_unsubscribed(self, group: str) -> bool:
        """Tell whether the group begins at the first message after a subscriber has left."""
        return self._is_true(group, attrs.LIGHT_RESET_UNSUBSCRIBE)

    def is_wildcard(self, group: str) -> bool:
        """Tell whether a group has all light topics of its parent."""
        return attrs.LIGHT_WILDCARD in self._attributes(group)

    def quota(self, group: str) -> int | None:
        """Return how many light topics a client of a group may have; None: any number."""
        return quota_of(self._attributes(group))

    def events_max(self, group: str, default: int) -> int:
        """Return how many light topics with messages are noted for a client."""
        count = attrs.number_of(self._attributes(group), attrs.LIGHT_EVENTS_MAX, 0)
        return min(count if count > 0 else default, EVENTS_LIMIT)

    def _attributes(self, group: str) -> Mapping[str, str]:
        config = self._groups.get(group)
        return {} if config is None else config.attributes

    def _is_true(self, group: str, key: str) -> bool:
        return self._attributes(group).get(key, "").lower() == "true"


def bound_topic(attributes: Mapping[str, str]) -> str | None:
    """Return the topic that a group with these attributes is bound to, None without one."""
    return attributes.get(attrs.LIGHT_BIND_TOPIC)


def quota_of(attributes: Mapping[str, str]) -> int | None:
    """Return how many light topics a client of such a group may have; None: any number."""
    quota = attrs.number_of(attributes, attrs.LIGHT_CLIENT_QUOTA, QUOTA_DEFAULT)
    return None if quota < 0 else quota + QUOTA_TOLERANCE


def is_parent(topic: TopicConfig) -> bool:
    """Tell whether a topic has light topics."""
    return topic.attributes.get(attrs.MESSAGE_TYPE) == attrs.LIGHT
