"""Rows of users permit what the guard permits, or less; and rules of the guard beyond entries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.acl import needs as by_account
from roquet.acl.accounts import Perm, read_account
from roquet.acl.rights import Caller
from roquet.acl.signature import sign
from roquet.auth.bodies import policies_of
from roquet.auth.directory import Directory, UserChange
from roquet.auth.guard import PolicyGuard
from roquet.auth.keeping.migration import of_account
from roquet.auth.model import UserStatus, UserType
from roquet.auth.needs import broker_needs
from roquet.base.errors import Refused
from roquet.broker.fastpath.user_rows import UserRows
from roquet.protocol import names
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from roquet.broker.fastpath.account_rows import Names

PEER = "10.0.0.7:1"
ROOM = names.SCHEDULE_TOPIC
TOPICS = ("a", "ab", "abc", "b", ROOM, "rmq_sys_REVIVE_LOG_C", "SCHED")

entries = st.builds(
    lambda resource, actions, decision, sources: {
        "resource": resource,
        "actions": actions,
        "decision": decision,
        "sourceIps": sources,
    },
    st.sampled_from(
        ("*", "Topic:*", *(f"Topic:{name}" for name in TOPICS), "Topic:a*", "Topic:ab*", "Topic:S*")
    ),
    st.lists(st.sampled_from(("Pub", "Sub", "Get", "All")), min_size=1, max_size=2),
    st.sampled_from(("Allow", "Deny")),
    st.sampled_from(([], [], ["10.0.0.0/8"], ["9.9.9.9"])),
)


def directory_of(*given: dict[str, Any], kind: str = "Custom") -> Directory:
    made = Directory().with_user(UserChange("ann", "p")).with_user(UserChange("bob", "p"))
    if not given:
        return made
    body = {"policies": [{"policyType": kind, "entries": list(given)}]}
    return made.with_policies("ann", policies_of(body))


def entry(resource: str, *actions: str, decision: str = "Allow") -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": decision}


def guard_of(directory: Directory) -> PolicyGuard:
    return PolicyGuard(cast("Any", SimpleNamespace(now=directory)), broker_needs("C"))


def rows_of(directory: Directory) -> dict[str, tuple[bool, Names, Names]]:
    found: dict[str, tuple[bool, Names, Names]] = {}

    def set_accounts(_: object, rows: list[Any]) -> None:
        found.update({name: (unlimited, *rights) for name, _, _, unlimited, *rights in rows})

    source = cast("Any", SimpleNamespace(now=directory))
    rows = UserRows(source, "rmq_sys_REVIVE_LOG_C")
    stale = [rows.is_stale]
    rows.write(cast("Any", SimpleNamespace(set_accounts=set_accounts)))
    stale.append(rows.is_stale)
    assert stale == [True, False]
    return found


def bits(names_of: Names, name: str) -> int:
    """Return what the core makes of a row."""
    exact, prefixes, others = names_of
    if name in exact:
        return exact[name]
    fitting = [prefix for prefix in prefixes if name.startswith(prefix)]
    return prefixes[max(fitting, key=len)] if fitting else others


@given(st.lists(entries, max_size=6), st.sampled_from((*TOPICS, "abcd", "ba", "Sx")))
def test_rows_permit_what_the_guard_permits_or_less(
    given_entries: list[dict[str, Any]], name: str
) -> None:
    directory = directory_of(*given_entries)
    guard = guard_of(directory)
    _, topics, _ = rows_of(directory)["ann"]
    has_sources = any(it["sourceIps"] for it in given_entries)
    for bit, perm in ((4, Perm.PUB), (8, Perm.SUB)):
        by_row = bool(bits(topics, name) & bit)
        for peer in (PEER, "9.9.9.9:1", "8.8.8.8:1"):
            by_guard = guard.has(Caller("ann", peer), [by_account.topic(name, perm)])
            assert by_guard or not by_row
            if not has_sources and not names.is_waiting_room(name):
                assert by_guard == by_row


def test_rows_have_no_disabled_user_and_super_users_may_do_all() -> None:
    made = directory_of().with_user(UserChange("root", "p", UserType.SUPER))
    made = made.changed_user(UserChange("bob", status=UserStatus.DISABLE))
    rows = rows_of(made)
    assert {name: unlimited for name, (unlimited, *_) in rows.items()} == {
        "ann": False,
        "root": True,
    }


@pytest.mark.parametrize(
    ("resource", "may"),
    [("Topic:*", False), ("*", False), ("Topic:S*", False), (f"Topic:{ROOM}", True)],
)
def test_topic_where_messages_of_others_wait_is_meant_by_its_name_alone(
    resource: str, *, may: bool
) -> None:
    directory = directory_of(entry(resource, "Sub", "Pub"))
    asked = [by_account.topic(ROOM, Perm.SUB)]
    assert guard_of(directory).has(Caller("ann", PEER), asked) is may


def test_producer_group_that_a_policy_names_is_for_those_who_are_named() -> None:
    asked = [by_account.producer("makers")]
    open_to_all = guard_of(directory_of(entry("Group:makers", "Sub"), entry("Group:*", "All")))
    assert open_to_all.has(Caller("bob", PEER), asked)
    kept = guard_of(directory_of(entry("Group:makers", "Pub"), entry("Topic:t", "Pub")))
    assert kept.has(Caller("ann", PEER), asked)
    assert not kept.has(Caller("bob", PEER), asked)
    end = Command(37, {"producerGroup": "makers", "topic": "t"})
    kept.check(sign(end, "ann", b"p"), PEER)
    other = Command(37, {"producerGroup": "makers"})
    with pytest.raises(Refused, match="User:bob has no permission to access Group:makers"):
        kept.check(sign(other, "bob", b"p"), PEER)


def test_rights_end_with_the_user() -> None:
    guard = guard_of(directory_of(entry("*", "All")).without_user("ann"))
    with pytest.raises(Refused, match="User:ann is not found"):
        guard.require(Caller("ann", PEER), [])
    with pytest.raises(Refused, match="username cannot be null"):
        guard.require(Caller("", PEER), [])


def test_account_becomes_a_user_with_the_same_rights() -> None:
    account = read_account(
        {
            "accessKey": "account",
            "secretKey": "secret-of-account",
            "defaultTopicPerm": "SUB",
            "topicPerms": ["orders=PUB|SUB", "secret=DENY", "%RETRY%x=PUB"],
            "groupPerms": ["mine=SUB"],
        }
    )
    made = Directory().with_users([of_account(account)])
    guard, caller = guard_of(made), Caller("account", PEER)
    assert made.users["account"].password == "secret-of-account"
    for need in (
        by_account.topic("orders", Perm.PUB),
        by_account.topic("orders", Perm.SUB),
        by_account.topic("any", Perm.SUB),
        by_account.group("mine"),
    ):
        assert guard.has(caller, [need]), need
    for need in (
        by_account.topic("secret", Perm.SUB),
        by_account.topic("any", Perm.PUB),
        by_account.group("other"),
    ):
        assert not guard.has(caller, [need]), need
