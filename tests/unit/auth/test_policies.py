"""Which entry decides, against a second reading of the rule that sorts instead of indexing."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.auth.bodies import read_resource
from roquet.auth.model import (
    Action,
    Decision,
    Entry,
    Match,
    Need,
    Policy,
    PolicyType,
    Resource,
    ResourceType,
    need,
    topic,
)
from roquet.auth.policies import Acl, always, deciding
from roquet.auth.sources import Source
from roquet.base.errors import UsageError

NAMES = ("a", "ab", "abc", "abd", "b", "")
SOURCES = ("10.0.0.1", "10.0.0.0/24", "0.0.0.0/0", "::1", "fd00::/8")
PEERS = ("10.0.0.1:5", "10.0.0.9:5", "10.9.9.9:5", "[::1]:5", "[::ffff:10.0.0.1]:5")
ASKED = (Action.PUB, Action.SUB, Action.GET, Action.CREATE)

resources = st.one_of(
    st.just(Resource(ResourceType.ANY, "", Match.ANY)),
    st.builds(
        Resource,
        st.sampled_from((ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)),
        st.sampled_from(NAMES[:-1]),
        st.sampled_from((Match.LITERAL, Match.PREFIXED)),
    ),
    st.builds(
        Resource,
        st.sampled_from((ResourceType.TOPIC, ResourceType.GROUP)),
        st.just(""),
        st.just(Match.ANY),
    ),
)
entries = st.builds(
    Entry,
    resources,
    st.lists(st.sampled_from((*ASKED, Action.ALL)), min_size=1, unique=True).map(tuple),
    st.lists(st.sampled_from(SOURCES).map(Source), max_size=2).map(tuple),
    st.sampled_from(Decision),
)
acls = st.builds(
    lambda custom, default: Acl(
        (Policy(PolicyType.DEFAULT, tuple(default)), Policy(PolicyType.CUSTOM, tuple(custom)))
    ),
    st.lists(entries, max_size=6),
    st.lists(entries, max_size=6),
)
needs = st.builds(
    lambda kind, name, actions: Need(Resource(kind, name), frozenset(actions)),
    st.sampled_from((ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(ASKED), min_size=1, max_size=3),
)


def is_in(peer: str, source: str) -> bool:
    host = ipaddress.ip_address(peer.rpartition(":")[0].strip("[]"))
    host = getattr(host, "ipv4_mapped", None) or host
    return host in ipaddress.ip_network(source, strict=False)


def oracle(acl: Acl, asked: Need, peer: str) -> Decision | None:
    """Collect all entries that match, sort them by rank, take the first."""
    for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        found = [
            entry
            for policy in acl.policies
            if policy.kind is kind
            for entry in policy.entries
            if entry.resource.covers(asked.resource)
            and (Action.ALL in entry.actions or set(entry.actions) & asked.actions)
            and (not entry.sources or any(is_in(peer, it.text) for it in entry.sources))
        ]
        if found:
            best = min(
                found,
                key=lambda it: (
                    it.resource.kind is ResourceType.ANY,
                    it.resource.match.value,
                    -len(it.resource.name) if it.resource.match is Match.PREFIXED else 0,
                    it.decision is Decision.ALLOW,
                ),
            )
            return best.decision
    return None


@given(acls, needs, st.sampled_from(PEERS))
def test_deciding_entry_is_the_first_of_all_that_match(acl: Acl, asked: Need, peer: str) -> None:
    entry = deciding(acl, asked, peer)
    assert (None if entry is None else entry.decision) is oracle(acl, asked, peer)


@given(acls, st.sampled_from(NAMES), st.sampled_from(ASKED))
def test_right_from_every_address_is_there_from_each_address(
    acl: Acl, name: str, action: Action
) -> None:
    if always(acl, ResourceType.TOPIC, name, action, literal=True):
        for peer in (*PEERS, "203.0.113.5:1", "nonsense"):
            entry = deciding(acl, need(topic(name), action), peer)
            assert entry is not None
            assert entry.decision is Decision.ALLOW


@given(acls, st.sampled_from(NAMES), st.sampled_from(ASKED))
def test_right_of_a_prefix_is_that_of_every_other_name_with_it(
    acl: Acl, prefix: str, action: Action
) -> None:
    """No entry names `<prefix>~…`, and no prefix in one is longer than `prefix` and fits it."""
    given = always(acl, ResourceType.TOPIC, prefix, action, literal=False)
    assert always(acl, ResourceType.TOPIC, f"{prefix}~x", action, literal=True) is given


def test_deciding_without_policies_is_nothing() -> None:
    assert deciding(None, need(topic("a"), Action.PUB), PEERS[0]) is None
    assert deciding(Acl(()), need(topic("a"), Action.PUB), PEERS[0]) is None
    assert always(None, ResourceType.TOPIC, "a", Action.PUB, literal=True) is False


def test_deny_wins_where_entries_are_equal() -> None:
    both = tuple(
        Entry(topic("a"), (action,), (), decision)
        for action, decision in ((Action.PUB, Decision.ALLOW), (Action.ALL, Decision.DENY))
    )
    for order in (both, both[::-1]):
        found = deciding(Acl((Policy(PolicyType.CUSTOM, order),)), need(topic("a"), Action.PUB), "")
        assert found is not None
        assert found.decision is Decision.DENY


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "10.0.0", "10.0.0.256", "10.0.0.1/33", "::1/129", "10.0.0.1/", "10.0.0.1/x"),
        *("/8", "10.0.0.1/-1", "10.0.0.1/8/8", "::1%eth0", "host.example", "1" * 70, "10.0.0.1-9"),
    ],
)
def test_source_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^The source ip is invalid\.$"):
        Source(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("*", "*"),
        ("Topic:*", "Topic:*"),
        ("topic:orders", "Topic:orders"),
        ("GROUP:g*", "Group:g*"),
        ("Cluster:c", "Cluster:c"),
        ("Any:x", "*"),
        ("Topic:%RETRY%g", "Topic:%RETRY%g"),
    ],
)
def test_resource_is_shown_as_it_is_read(text: str, key: str) -> None:
    found = read_resource(text)
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize("text", ["", "orders", "Queue:x", None])
def test_resource_of_no_kind_is_none(text: str | None) -> None:
    assert read_resource(text) is None


WORDS = st.text("ab\U0001f600", max_size=6)


@given(st.lists(WORDS, unique=True, max_size=60), WORDS)
def test_entries_about_prefixes_come_longest_first_and_none_is_missed(
    prefixes: list[str], name: str
) -> None:
    made = [
        Entry(Resource(ResourceType.TOPIC, it, Match.PREFIXED), (Action.PUB,), (), Decision.ALLOW)
        for it in prefixes
    ]
    (ranked,) = Acl((Policy(PolicyType.CUSTOM, tuple(made)),)).ranked
    found = [it.resource.name for it in ranked.entries(ResourceType.TOPIC, name)]
    wanted = sorted((it for it in prefixes if name.startswith(it)), key=len, reverse=True)
    assert found == wanted
    assert not list(ranked.entries(ResourceType.GROUP, name))
