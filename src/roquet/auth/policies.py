"""The policies of a user, and which of their entries decides about a need. Pure.

Of the entries that are about the resource, one of the actions and the peer, the best one decides:
one about a named kind of resource before one about everything, a literal name before a prefix, the
longer prefix before the shorter, a prefix before all names, and of those that are still equal one
that denies. The CUSTOM policy is asked first; the DEFAULT one only where no CUSTOM entry matched.
Where nothing matches nothing is allowed.

Invariant: `Ranked.entries` yields the entries about a name in this order, so that the first one
that is also about the action and the peer is the one that decides.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from typing import TYPE_CHECKING, TypeVar

from roquet.auth.model import Decision, Match, Policy, PolicyType, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from roquet.auth.model import Action, Entry, Need

K = TypeVar("K")


@dataclasses.dataclass(frozen=True)
class Acl:
    """The policies of a user, in the order in which they were made; each type at most once."""

    policies: tuple[Policy, ...]

    def of(self, kind: PolicyType) -> Policy | None:
        """Return the policy of a type; None where there is none."""
        return next((policy for policy in self.policies if policy.kind is kind), None)

    @functools.cached_property
    def ranked(self) -> tuple[Ranked, ...]:
        """The policies in the order in which they are asked, ready to be asked often."""
        policies = (self.of(kind) for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT))
        return tuple(Ranked(policy) for policy in policies if policy is not None)


def deciding(acl: Acl | None, need: Need, address: str) -> Entry | None:
    """Return the entry that decides; None where none matches. `address` is the peer's `ip:port`."""
    if acl is None:
        return None
    kind, name = need.resource.kind, need.resource.name
    for policy in acl.ranked:
        for entry in policy.entries(kind, name):
            if entry.is_about(need.actions) and entry.is_for(address):
                return entry
    return None


def always(
    acl: Acl | None, kind: ResourceType, name: str, action: Action, *, literal: bool
) -> bool:
    """Tell whether an action is allowed whatever the peer's address is.

    Without `literal` this is about every name that begins with `name`, is in no literal entry and
    has no longer prefix in one. Conservative: an entry for some addresses that denies counts for
    all of them, and one that allows for none.
    """
    if acl is None:
        return False
    actions = frozenset((action,))
    for policy in acl.ranked:
        for entry in policy.entries(kind, name, literal=literal):
            if not entry.is_about(actions):
                continue
            if entry.decision is Decision.DENY:
                return False
            if not entry.sources:
                return True
    return False


class Ranked:
    """A policy's entries by what they are about."""

    def __init__(self, policy: Policy) -> None:
        """Sort the entries once."""
        named = [it for it in policy.entries if it.resource.kind is not ResourceType.ANY]
        whole = [it for it in policy.entries if it.resource.kind is ResourceType.ANY]
        every = [it for it in named if it.resource.match is Match.ANY]
        literal = [it for it in named if it.resource.match is Match.LITERAL]
        prefixed = [it for it in named if it.resource.match is Match.PREFIXED]
        self._literal = _by((it.resource[:2], it) for it in literal)
        self._prefixed = _by((it.resource[:2], it) for it in prefixed)
        self._every = _by((it.resource.kind, it) for it in every)
        self._whole = _by((ResourceType.ANY, it) for it in whole).get(ResourceType.ANY, [])
        self._trees = {
            kind: _Prefixes(name for of, name in self._prefixed if of is kind)
            for kind in {kind for kind, _ in self._prefixed}
        }

    def entries(self, kind: ResourceType, name: str, *, literal: bool = True) -> Iterator[Entry]:
        """Yield the entries about a resource, the best first; without literal ones if wanted."""
        if literal:
            yield from self._literal.get((kind, name), ())
        tree = self._trees.get(kind)
        if tree is not None:
            for prefix in tree.of(name):
                yield from self._prefixed[kind, prefix]
        yield from self._every.get(kind, ())
        yield from self._whole

    def names(self, kind: ResourceType) -> tuple[list[str], list[str]]:
        """Return the names of literal entries about a kind of resource, and the prefixes."""
        literal = [name for of, name in self._literal if of is kind]
        return literal, [name for of, name in self._prefixed if of is kind]


class _Prefixes:
    """Finds those of many prefixes that a name begins with, however many there are.

    Invariant: `_outer[i]` is the longest other prefix that prefix `i` begins with. In sorted order
    everything from the longest prefix of a name up to the name itself begins with that prefix, so
    it is the last one at or before the name, or one that this begins with.
    """

    def __init__(self, prefixes: Iterable[str]) -> None:
        """Sort them once."""
        self._sorted = sorted(prefixes)
        self._outer: list[int] = []
        around: list[int] = []
        for number, prefix in enumerate(self._sorted):
            while around and not prefix.startswith(self._sorted[around[-1]]):
                around.pop()
            self._outer.append(around[-1] if around else -1)
            around.append(number)

    def of(self, name: str) -> Iterator[str]:
        """Yield the prefixes of a name, the longest first."""
        number = bisect.bisect_right(self._sorted, name) - 1
        while number >= 0:
            if name.startswith(self._sorted[number]):
                yield self._sorted[number]
            number = self._outer[number]


def _by(items: Iterable[tuple[K, Entry]]) -> dict[K, list[Entry]]:
    """Group entries, those that deny first; else their order stays."""
    found: dict[K, list[Entry]] = {}
    for key, entry in items:
        found.setdefault(key, []).append(entry)
    for group in found.values():
        group.sort(key=lambda it: it.decision is not Decision.DENY)
    return found
