"""Users and policies: the words of access control 2.0. Pure.

Names of members are those of RocketMQ; their values are the words that tools and JSON have, which
are read in any case. Nothing here can be changed: a change makes new objects.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, NamedTuple

from roquet.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from roquet.auth.sources import Source


class UserType(enum.Enum):
    """Whether policies count for a user."""

    SUPER = "Super"
    """Everything is allowed."""
    NORMAL = "Normal"


class UserStatus(enum.Enum):
    """Whether a user is let in."""

    ENABLE = "enable"
    DISABLE = "disable"


class PolicyType(enum.Enum):
    """Which of two policies an entry is in: CUSTOM is looked at first."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Decision(enum.Enum):
    """What an entry says."""

    ALLOW = "Allow"
    DENY = "Deny"


class Action(enum.Enum):
    """What is done with a resource."""

    ALL = "All"
    """In an entry: every action."""
    ANY = "Any"
    """In a need: whatever the entry names."""
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class ResourceType(enum.Enum):
    """What kind of thing a resource is."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Match(enum.Enum):
    """How a resource's name is compared, the strongest first."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


class Resource(NamedTuple):
    """What an entry or a need is about."""

    kind: ResourceType
    name: str = ""
    """Empty where the match is ANY; the prefix where it is PREFIXED."""
    match: Match = Match.LITERAL

    def covers(self, other: Resource) -> bool:
        """Tell whether an entry about this one is about what a need names."""
        if self.kind is ResourceType.ANY:
            return True
        if self.kind is not other.kind:
            return False
        if self.match is Match.LITERAL:
            return self.name == other.name
        return self.match is Match.ANY or other.name.startswith(self.name)

    @property
    def key(self) -> str:
        """The resource as tools write it: `*`, `Topic:*`, `Topic:orders`, `Topic:ord*`."""
        if self.kind is ResourceType.ANY:
            return "*"
        star = "" if self.match is Match.LITERAL else "*"
        return f"{self.kind.value}:{self.name}{star}"


EVERYTHING = Resource(ResourceType.ANY, "", Match.ANY)


def topic(name: str) -> Resource:
    """Return a topic; a retry topic is its group's."""
    if name.startswith(RETRY_PREFIX):
        return group(name)
    return Resource(ResourceType.TOPIC, name)


def group(name: str) -> Resource:
    """Return a consumer group, given by its own name or by that of its retry topic."""
    return Resource(ResourceType.GROUP, name.removeprefix(RETRY_PREFIX))


def cluster(name: str) -> Resource:
    """Return a cluster."""
    return Resource(ResourceType.CLUSTER, name)


class Entry(NamedTuple):
    """What a policy says about one resource."""

    resource: Resource
    actions: tuple[Action, ...]
    sources: tuple[Source, ...]
    """Peers for which the entry counts; empty: all."""
    decision: Decision

    def is_about(self, actions: frozenset[Action]) -> bool:
        """Tell whether the entry counts for any of the actions of a need."""
        if Action.ANY in actions or Action.ALL in self.actions:
            return True
        return not actions.isdisjoint(self.actions)

    def is_for(self, address: str) -> bool:
        """Tell whether the entry counts for a peer, given as `ip:port`."""
        return not self.sources or any(source.has(address) for source in self.sources)


class Policy(NamedTuple):
    """Entries of one type, each resource at most once."""

    kind: PolicyType
    entries: tuple[Entry, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user. The password is in no text that is made of it."""

    name: str
    password: str = dataclasses.field(repr=False)
    kind: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        """Whether everything is allowed."""
        return self.kind is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        """Whether the user is let in."""
        return self.status is UserStatus.ENABLE


class Need(NamedTuple):
    """A right that a request takes: any one of the actions on the resource."""

    resource: Resource
    actions: frozenset[Action]


def need(resource: Resource, *actions: Action) -> Need:
    """Return a need of any of the actions."""
    return Need(resource, frozenset(actions))
