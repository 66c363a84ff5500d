"""Who may do what: rows of the guard's rules, and bodies that need much at once."""

from __future__ import annotations

import hashlib
import itertools
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.acl.accounts import Perm, build
from roquet.acl.guard import JAVA, Guard
from roquet.acl.needs import (
    TOPICS_AT_ONCE,
    Need,
    broker_needs,
    group,
    heartbeat_needs,
    lock_needs,
    topic,
)
from roquet.acl.rights import EVERYBODY, Caller
from roquet.acl.signature import sign
from roquet.base.errors import Refused
from roquet.model.queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.bodies.locks import LockRequest
from roquet.protocol.command import Command
from roquet.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

INSIDE, OUTSIDE = "10.0.0.7:5", "9.9.9.9:5"


def guard() -> Guard:
    """Return the guard of an account, an administrator, and one who may come without a key."""
    entries: list[dict[str, Any]] = [
        {"accessKey": "account", "topicPerms": ["sub=SUB"], "groupPerms": ["mine=SUB"]},
        {"accessKey": "administrator", "admin": "true"},
        {"accessKey": "at-home", "whiteRemoteAddress": "10.0.0.7"},
    ]
    document = {
        "accounts": [{"secretKey": f"secret-of-{it['accessKey']}", **it} for it in entries],
        "globalWhiteRemoteAddresses": ["127.0.0.1", "127.0.0.2"],
    }
    return Guard(cast("Any", SimpleNamespace(table=build({"a": document}))), broker_needs)


def outcome(action: Callable[[], object]) -> str:
    """Return why an action was refused, in Java's words; nothing when it was not."""
    try:
        action()
    except Refused as error:
        return f"{error.code} {error.remark}".removeprefix(f"1 {JAVA}")
    return ""


@pytest.mark.parametrize(
    ("key", "address", "said"),
    [
        ("administrator", OUTSIDE, ""),
        ("account", OUTSIDE, "Need admin permission for a change, but accessKey=account is not"),
        ("at-home", INSIDE, ""),
        ("at-home", OUTSIDE, "Need admin permission for a change, but accessKey=at-home is not"),
        ("account", "127.0.0.1:5", ""),
        ("", "127.0.0.2:5", ""),
        ("", OUTSIDE, "No accessKey is configured"),
        ("gone", INSIDE, "No accessKey is configured"),
    ],
)
def test_change_needs_an_administrator_or_a_white_address(
    key: str, address: str, said: str
) -> None:
    assert outcome(lambda: guard().require_admin(Caller(key, address), "a change")) == said


@pytest.mark.parametrize(
    ("need", "is_allowed"),
    [
        (topic(TRACE_TOPIC, Perm.PUB), True),
        (topic(TRACE_TOPIC, Perm.SUB), False),
        (topic("other", Perm.PUB), False),
        (topic("sub", Perm.SUB), True),
        (topic("sub", Perm.PUB), False),
        (topic("sub", Perm.BOTH), True),
        (group("mine"), True),
        (group("others"), False),
    ],
)
def test_account_may_trace_and_what_it_was_given(need: Need, *, is_allowed: bool) -> None:
    caller = Caller("account", OUTSIDE)
    assert guard().has(caller, [need]) is is_allowed
    assert guard().has(caller, [need, topic("other", Perm.SUB)]) is False
    assert guard().has(Caller("administrator", OUTSIDE), [need])


def test_request_signed_by_what_stands_for_unknown_secrets_is_refused() -> None:
    """An unknown key is judged by a digest of it, which anybody can work out."""
    key = "nobody00"
    secret = hashlib.sha256(key.encode()).digest()
    request = sign(Command(310, {"b": "sub"}, b"body"), key, secret)
    said = outcome(lambda: guard().check(request, OUTSIDE))
    assert said == f"Check signature failed for accessKey={key}"


@pytest.mark.parametrize(
    ("key", "signed_by", "address", "said"),
    [
        ("account", "secret-of-account", OUTSIDE, ""),
        ("account", "another", OUTSIDE, "Check signature failed for accessKey=account"),
        ("", "", OUTSIDE, "No accessKey is configured"),
        ("", "", "127.0.0.1:5", ""),
        ("account", "another", "127.0.0.1:5", ""),
        ("at-home", "another", INSIDE, ""),
        ("at-home", "another", OUTSIDE, "Check signature failed for accessKey=at-home"),
        ("nobody00", "another", OUTSIDE, "Check signature failed for accessKey=nobody00"),
    ],
)
def test_request_of_another_front_is_judged_by_secret_and_address(
    key: str, signed_by: str, address: str, said: str
) -> None:
    checked = guard()
    secret = signed_by.encode()
    assert outcome(lambda: checked.verify(key, lambda it: it == secret, address)) == said


def test_unknown_key_is_refused_in_another_front_whatever_signed() -> None:
    said = outcome(lambda: guard().verify("nobody00", lambda _: True, OUTSIDE))
    assert said == "Check signature failed for accessKey=nobody00"


def test_refusal_shows_the_beginning_of_a_long_name() -> None:
    long_key = sign(Command(310, {"b": "sub"}), "k" * 70, b"secret")
    said = outcome(lambda: guard().check(long_key, OUTSIDE))
    assert said == f"Check signature failed for accessKey={'k' * 64}"
    caller = Caller("account", OUTSIDE)
    for need, kind in ((topic("n" * 300, Perm.SUB), "topic"), (group("n" * 300), "group")):
        said = outcome(partial(guard().require, caller, [need]))
        assert said == f"No default permission for {kind}:{'n' * 255}"


def test_caller_is_the_account_and_the_address() -> None:
    it = guard()
    assert it.caller(Command(34, {"AccessKey": "account"}), OUTSIDE) == Caller("account", OUTSIDE)
    assert it.caller(Command(34), OUTSIDE) == Caller("", OUTSIDE)
    assert it.caller(Command(34, {}), OUTSIDE) == Caller("", OUTSIDE)


def test_without_accounts_nobody_is_asked_who_it_is() -> None:
    caller = EVERYBODY.caller(Command(34, {"AccessKey": "claimed"}), OUTSIDE)
    assert caller == Caller("", OUTSIDE)
    assert EVERYBODY.has(caller, [topic("any", Perm.PUB)]) is True


@pytest.mark.parametrize("count", [0, 1, TOPICS_AT_ONCE, TOPICS_AT_ONCE + 1, 3 * TOPICS_AT_ONCE])
def test_bodies_are_asked_about_in_parts_that_leave_nothing_out(count: int) -> None:
    names = [f"topic{number:04}" for number in range(count)]
    locks = LockRequest(
        client_id="c",
        group="g",
        queues=frozenset(MessageQueue(name, "b", queue) for name in names for queue in range(2)),
    )
    beat = HeartbeatData(
        client_id="c",
        producers=(),
        consumers=(
            ConsumerData(
                group="g",
                subscriptions=tuple(
                    SubscriptionData(topic=name, expression="*", version=1) for name in names
                ),
            ),
        ),
    )
    wanted = [group("g"), *(topic(name, Perm.SUB) for name in names)]
    for parts in (list(lock_needs(locks)), list(heartbeat_needs(beat))):
        assert list(itertools.chain(*parts)) == wanted
        assert max(map(len, parts)) <= TOPICS_AT_ONCE
