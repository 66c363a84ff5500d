"""Copies of the users of brokers: what counts, for how long, and from brokers of RocketMQ."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from remoting_harness import on_loop
from roquet.auth.directory import Directory, UserChange
from roquet.auth.keeping.snapshots import Snapshots
from roquet.auth.model import UserStatus, UserType
from roquet.base.errors import Refused, Unreachable
from roquet.broker.api.caller import Caller
from roquet.broker.api.pop import PopRequest
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.send import SendBackRequest
from roquet.broker.operations.table import SEND_BACK
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.proxy.brokers.api import Found
from roquet.proxy.cluster.guard import ClusterGuard, Gate
from roquet.proxy.cluster.receiving import TopicSource
from roquet.proxy.cluster.users import APART_S, LISTS_EVERY_S, ClusterUsers
from roquet.proxy.rules.plain import consumers
from roquet.store.records import Record
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.acl.rights import RequestGuard

EXPIRE_S = 30
ANN = Caller(address="10.0.0.1:1", access_key="ann")
ASKED = SendBackRequest(group="g", physical_offset=0, delay_level=0, attempts_max=1)
_UNKNOWN = Command(int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), remark="not supported")


class Held:
    """The users of a broker."""

    def __init__(self, *changes: UserChange) -> None:
        self.now = Directory()
        for change in changes:
            self.now = self.now.with_user(change)


def ours(*changes: UserChange) -> Callable[[Command], Any]:
    """Return what answers as a broker of ours with these users."""
    snapshots = Snapshots(Held(*changes))

    async def answer(command: Command) -> Command:
        assert command.code == RequestCode.GET_USERS
        ext, body = await snapshots.answer(command.ext or {})
        return Command(0, ext, body)

    return answer


def of_java(users: Any, acls: Any) -> Callable[[Command], Any]:
    """Return what answers as a broker of RocketMQ."""
    bodies = {RequestCode.AUTH_LIST_USER: users, RequestCode.AUTH_LIST_ACL: acls}

    async def answer(command: Command) -> Command:
        if command.code == RequestCode.GET_USERS:
            return _UNKNOWN
        found = bodies[RequestCode(command.code)]
        return Command(0, {}, b"" if found is None else json.dumps(found).encode())

    return answer


async def without_users(_: Command) -> Command:
    return _UNKNOWN


async def away(_: Command) -> Command:
    raise Unreachable("nobody is there")


class Brokers:
    """Broker name -> what answers there."""

    def __init__(self, **brokers: Callable[[Command], Any]) -> None:
        self.brokers = dict(brokers)
        self.asked: list[tuple[str, int]] = []

    async def masters(self) -> Mapping[str, str]:
        return dict.fromkeys(self.brokers, "a:1")

    async def call(self, broker: str, command: Command, timeout_s: float) -> Command:
        assert timeout_s > 0
        self.asked.append((broker, command.code))
        answer: Command = await self.brokers[broker](command)
        return answer


class World:
    def __init__(self, **brokers: Callable[[Command], Any]) -> None:
        self.clock = FakeClock()
        self.brokers = Brokers(**brokers)
        self.users = ClusterUsers(self.brokers, self.clock, EXPIRE_S)
        self.gate = Gate(self.users)

    @property
    def guard(self) -> RequestGuard:
        assert self.gate.guard is not None
        return self.gate.guard

    async def tick(self, after_s: float = 0.5) -> None:
        await self.clock.advance(after_s)
        await self.users.tick()
        async with asyncio.timeout(10):
            while self.users._asking:  # noqa: ASYNC110
                await asyncio.sleep(0)

    def lets_in(self, name: str = "ann") -> bool:
        """Tell whether a user is let in, by all ways that say so."""
        try:
            self.guard.verify(name, lambda _: True, "10.0.0.1:1")
        except Refused:
            assert name not in self.guard.secrets
            return False
        assert name in self.guard.secrets
        return True

    def refusal(self, broker: str) -> str:
        """Return why a super user may do nothing at a broker; empty if that is not so."""
        try:
            self.gate.require(SEND_BACK, ASKED, Caller(address="a:1", access_key="root"), broker)
        except Refusal as refusal:
            return str(refusal) if refusal.reason is Reason.ACCOUNT_REFUSED else "another reason"
        return ""


def user(name: str = "ann", password: str = "secret-of-ann", **more: Any) -> UserChange:
    return UserChange(name, password, **more)


def root() -> UserChange:
    return UserChange("root", "secret-of-root", UserType.SUPER)


@on_loop
async def test_nobody_is_let_in_before_a_broker_has_said_who_is() -> None:
    world = World(a=away)
    await world.users.start()
    assert not world.lets_in()
    with pytest.raises(Refused, match="no broker has said lately"):
        world.guard.check(Command(RequestCode.GET_MAX_OFFSET, {}), "a:1")
    assert not world.guard.has(ANN, ())
    world.brokers.brokers["a"] = ours(user())
    await world.tick()
    assert world.lets_in()
    assert world.guard.has(ANN, ())


@on_loop
async def test_copy_counts_for_its_time_after_its_broker_was_heard_last() -> None:
    world = World(a=ours(user(), root()))
    await world.tick()
    assert world.lets_in()
    world.brokers.brokers["a"] = away
    await world.tick(EXPIRE_S - 1)
    assert world.lets_in()
    assert not world.refusal("a")
    # Nothing happens but that time goes by.
    await world.clock.advance(2)
    assert not world.lets_in()
    world.brokers.brokers["a"] = ours(user(), root())
    await world.tick()
    assert world.lets_in()
    assert not world.refusal("a")


@on_loop
async def test_nothing_is_asked_of_a_broker_whose_users_are_not_known() -> None:
    world = World(a=ours(user(), root()), b=away)
    await world.tick()
    assert world.lets_in()
    assert not world.refusal("a")
    assert (
        world.refusal("b")
        == "account refused: broker b has not said lately which users and policies it has"
    )
    world.brokers.brokers["b"] = ours(user(), root())
    await world.tick()
    assert not world.refusal("b")


@on_loop
async def test_user_is_let_in_where_every_broker_has_the_same_one() -> None:
    for other in (
        ours(root()),
        ours(root(), user(password="another")),
        ours(root(), user(status=UserStatus.DISABLE)),
    ):
        world = World(a=ours(root(), user()), b=other)
        await world.tick()
        known = dict(world.guard.secrets)
        assert known == {"root": b"secret-of-root"}
    # In another order, with other numbers of changes, they are the same.
    world = World(a=ours(root(), user()), b=ours(user(), root()))
    await world.tick()
    assert world.lets_in()
    assert len(world.users.now) == 1


@on_loop
async def test_brokers_that_disagree_for_long_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    world = World(a=ours(root(), user()), b=ours(root()), c=ours(root()))
    for _ in range(4):
        await world.tick()
    # While all of them are told of a change they may.
    assert not caplog.text
    await world.tick(APART_S)
    assert caplog.messages == [
        "brokers a, b have different users or policies: only what all of them allow is allowed here"
    ]
    caplog.clear()
    world.brokers.brokers["a"] = ours(root())
    await world.tick()
    await world.tick(APART_S)
    await world.tick(APART_S)
    assert not caplog.text


@on_loop
async def test_broker_without_users_is_named_and_others_judge(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    world = World(a=ours(user(), root()), b=without_users)
    await world.tick()
    await world.tick()
    assert caplog.text.count("broker b keeps no users") == 1
    assert world.lets_in()
    assert not world.refusal("b")
    alone = World(b=without_users)
    await alone.tick()
    assert not alone.lets_in()


@on_loop
async def test_lists_of_a_broker_of_rocketmq_are_read_every_few_seconds() -> None:
    users = [
        {"username": "ann", "password": "p", "userType": "Normal", "userStatus": "enable"},
        {"username": "bob", "password": "p", "userType": "Normal", "userStatus": "disable"},
    ]
    entry = {"resource": "Topic:t", "actions": ["Pub"], "sourceIps": None, "decision": "Allow"}
    acls = [{"subject": "User:ann", "policies": [{"policyType": "Custom", "entries": [entry]}]}]
    world = World(a=of_java(users, acls))
    await world.tick()
    assert world.lets_in()
    assert not world.lets_in("bob")
    assert world.gate.may_publish("ann", "10.0.0.1:1", "t")
    assert not world.gate.may_publish("ann", "10.0.0.1:1", "u")
    asked = len(world.brokers.asked)
    await world.tick()
    assert len(world.brokers.asked) == asked
    world.brokers.brokers["a"] = of_java(users, None)
    await world.tick(LISTS_EVERY_S)
    assert world.lets_in()
    assert not world.gate.may_publish("ann", "10.0.0.1:1", "t")


@pytest.mark.parametrize(
    "answer",
    [
        of_java([], None),
        of_java({"username": "ann"}, None),
        of_java([{"username": "ann"}], None),
        of_java([{"username": "ann", "password": ""}], None),
        of_java([{"username": "ann", "password": "p"}], [{"subject": "User:bob"}]),
        of_java([{"username": "ann", "password": "p"}], [7]),
        of_java([{"username": "ann", "password": "canary"}], "canary"),
    ],
)
@on_loop
async def test_lists_that_cannot_be_read_let_nobody_in(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    world = World(a=answer)
    await world.tick()
    assert not world.lets_in()
    assert "users and policies of broker a are not heard, none counts" in caplog.text
    assert "canary" not in caplog.text


@on_loop
async def test_users_of_a_broker_that_has_left_count_no_more() -> None:
    world = World(a=ours(root(), user()), b=ours(root()))
    await world.tick()
    assert not world.lets_in()
    del world.brokers.brokers["b"]
    await world.tick(EXPIRE_S / 2)
    await world.tick(EXPIRE_S / 2 + 1)
    assert world.lets_in()
    assert isinstance(world.guard, ClusterGuard)


@on_loop
async def test_messages_of_a_foreign_topic_in_a_retry_topic_stay_unseen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker lets the account of the proxy see all that lies there."""
    entry = {"resource": "Topic:mine", "actions": ["Sub"], "decision": "Allow"}
    owner = {"resource": "Group:g", "actions": ["Sub"], "decision": "Allow"}
    policies = [{"policyType": "Custom", "entries": [entry, owner]}]
    users = [{"username": "ann", "password": "p"}]
    world = World(a=of_java(users, [{"subject": "User:ann", "policies": policies}]))
    await world.tick()
    wanted = PopRequest(
        topic="%RETRY%g",
        group="g",
        queue_id=-1,
        max_messages=32,
        invisible_ms=30_000,
        poll_ms=0,
        born_ms=0,
    )
    source = TopicSource(None, world.gate, "a", wanted, consumers())  # type: ignore[arg-type]

    async def pop(_: int) -> list[Found]:
        return [Found(_copy_of(topic), topic) for topic in ("secret", "mine", "secret")]

    monkeypatch.setattr(source, "_pop", pop)
    seen = await source.take(ANN, 0)
    assert isinstance(seen, list)
    assert [found.handle for found in seen] == ["mine"]


def _copy_of(topic: str) -> Record:
    """Return a copy for a retry of a message of light queues."""
    found = {props.INNER_MULTI_DISPATCH: "%LMQ%q", props.LMQ_ORIGIN_TOPIC: topic}
    numbers = dict.fromkeys(Record._fields, 0)
    texts = {"topic": "%RETRY%g", "properties": props.write(found).encode()}
    return Record(**{**numbers, **texts})  # type: ignore[arg-type]
