"""Slaves have the users and policies of their master: over real sockets, in real files."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import zlib
from typing import TYPE_CHECKING

import pytest

from auth_harness import ANN, INNER, ROOT, SWITCHES, acl_command, entry, user_command
from pair_harness import pair_world, until
from remoting_harness import on_loop
from roquet.auth.directory import Directory, UserChange
from roquet.auth.keeping import snapshots
from roquet.auth.keeping.fetching import RESTARTS_MAX
from roquet.auth.keeping.snapshots import Snapshots, unpacked
from roquet.auth.keeping.store import AuthFile
from roquet.auth.model import UserType
from roquet.base.errors import RoquetError
from roquet.broker.replication.duties import Role
from roquet.broker.replication.user_copies import UserCopies
from roquet.broker.state import BrokerState
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import send_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from pair_harness import PairWorld
    from roquet.acl.credentials import Credentials
    from roquet.broker.app import Broker

OFF = dict.fromkeys(("authenticationEnabled", "authorizationEnabled"), "false")


async def said(
    world: PairWorld, to: Broker, command: Command, who: Credentials = ROOT
) -> tuple[int, str]:
    answer = await world.client.call(to.identity.address, who.sign(command), 20.0)
    return answer.code, answer.remark or ""


def users_of(broker: Broker) -> Directory:
    tools = next(row for row in broker.routes if RequestCode.GET_USERS in row.codes)
    return tools.handler.__self__._tools._users.now  # type: ignore[attr-defined,no-any-return]


def same(one: Broker, other: Broker) -> Callable[[], bool]:
    return lambda: users_of(one) == users_of(other)


@contextlib.asynccontextmanager
async def running_pair(
    folder: Path, **changes: str
) -> AsyncGenerator[tuple[PairWorld, Broker, Broker]]:
    async with (
        pair_world(folder) as world,
        world.master(**SWITCHES) as master,
        world.slave(None, **{**SWITCHES, **changes}) as slave,
    ):
        yield world, master, slave


@on_loop
async def test_slave_has_each_change_of_its_master_and_a_new_master_keeps_it(
    tmp_path: Path,
) -> None:
    async with running_pair(tmp_path) as (world, master, slave):
        body = {"password": ANN.secret_key, "userType": "Normal"}
        changes = (
            user_command(3001, "ann", body),
            acl_command(3006, "ann", [entry("Topic:orders", "Pub")]),
            user_command(3001, "bob", body),
            user_command(3002, "bob", {"userStatus": "disable"}),
            acl_command(3007, "ann", [entry("Topic:orders", "Sub"), entry("Group:g", "Sub")]),
            Command(3008, {"subject": "User:ann", "resource": "Group:g"}),
            user_command(3003, "bob", {}),
        )
        for change in changes:
            assert await said(world, master, change) == (0, "")
            await until(same(master, slave), "the slave has the change")
        # What is in force at the slave judges there.
        refusal = "User:ann has no permission to access Topic:orders from 127.0.0.1"
        assert (await said(world, slave, send_command("orders", b"x"), ANN))[1].startswith(refusal)
        users = users_of(slave)
    assert AuthFile(tmp_path / "slave" / "config" / "users.auth").load() == users
    async with pair_world(tmp_path) as world, world.slave(None, **SWITCHES) as slave:
        # Alone: no master is there that could give it anything.
        assert users_of(slave).has_same(users)
        await slave.duties.become(Role("ASYNC_MASTER", 0))
        assert users_of(slave).has_same(users)
        change = acl_command(3006, "ann", [entry("Topic:orders", "Pub")])
        assert await said(world, slave, change) == (0, "")
        assert await said(world, slave, send_command("orders", b"x"), ANN) == (0, "")


@on_loop
async def test_slave_takes_no_change_that_its_master_has_not(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as (world, master, slave):
        body = {"password": ANN.secret_key}
        policies = acl_command(3006, "ann", [entry("Topic:orders", "Pub")])
        at = (
            f"users and policies of this slave are those of its master at {master.identity.address}"
        )
        told = (
            user_command(3001, "ann", body),
            policies,
            user_command(3002, "ann", {"password": "another-password"}),
            Command(3008, {"subject": "User:ann", "resource": "Topic:orders"}),
            Command(3008, {"subject": "User:ann"}),
            user_command(3003, "ann", {}),
        )
        await until(lambda: slave.pair.slave.address, "the slave knows its master")
        await until(same(master, slave), "the slave has the users")
        # A deletion of what nobody has is done everywhere.
        for change in told[:3]:
            assert await said(world, slave, change) == (1, f"{at}: change them there")
            # All brokers of a cluster are told one after the other, masters first.
            assert await said(world, master, change) == (0, "")
            assert await said(world, slave, change) == (0, "")
            assert users_of(slave) == users_of(master)
        assert (await said(world, slave, told[5]))[0] == 1
        assert await said(world, master, told[3]) == (0, "")
        assert await said(world, slave, told[3]) == (0, "")
        assert await said(world, master, policies) == (0, "")
        for change in told[4:]:
            assert (await said(world, slave, change))[0] == 1
            assert await said(world, master, change) == (0, "")
            assert await said(world, slave, change) == (0, "")
            assert users_of(slave) == users_of(master)


@on_loop
async def test_slave_of_a_master_without_users_keeps_its_own_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A Java master answers as this one does: it does not know the request."""
    caplog.set_level(logging.WARNING)
    async with (
        pair_world(tmp_path) as world,
        world.master(**{**SWITCHES, **OFF}),
        world.slave(None, **SWITCHES) as slave,
    ):
        words = "gives no users and policies (it is RocketMQ's, or runs without"
        await until(lambda: words in caplog.text, "the slave says so")
        body = {"password": ANN.secret_key}
        assert await said(world, slave, user_command(3001, "ann", body)) == (0, "")
        assert await said(world, slave, user_command(3003, "ann", {})) == (0, "")
        assert caplog.text.count(words) == 1
        assert {"root", "inner"} == set(users_of(slave).users)


@on_loop
async def test_slave_that_its_master_refuses_says_so_and_keeps_what_it_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    wrong = '{"accessKey":"inner","secretKey":"not-the-masters"}'
    async with running_pair(tmp_path, innerClientAuthenticationCredentials=wrong) as (
        world,
        master,
        slave,
    ):
        assert await said(world, master, user_command(3001, "ann", {"password": "p"})) == (0, "")
        words = "are not copied, those of before stay in force: code 16: check signature failed."
        await until(lambda: words in caplog.text, "the slave says so")
        assert set(users_of(slave).users) == {"root", "inner"}
        # An operator can still shut somebody out here.
        assert await said(world, slave, user_command(3001, "bob", {"password": "p"})) == (0, "")


@on_loop
async def test_users_with_passwords_are_given_to_super_users_alone(tmp_path: Path) -> None:
    async with pair_world(tmp_path) as world, world.master(**SWITCHES) as master:
        body = {"password": ANN.secret_key}
        assert await said(world, master, user_command(3001, "ann", body)) == (0, "")
        everything = acl_command(3006, "ann", [entry("*", "All")])
        assert await said(world, master, everything) == (0, "")
        ask = Command(RequestCode.GET_USERS, {})
        assert (await said(world, master, ask, ANN))[0] == 16
        assert (await said(world, master, ask, INNER)) == (0, "")
        bad = Command(RequestCode.GET_USERS, {"offset": "x"})
        assert await said(world, master, bad) == (29, "offset is no number")


def some_users(number: int) -> Directory:
    found = Directory()
    for at in range(number):
        found = found.with_user(UserChange(f"user-{at}", f"secret-{at * 7919}", UserType.SUPER))
    return found


class Users:
    """What is in force, without a file."""

    def __init__(self, now: Directory) -> None:
        self.now = now

    async def change(self, edit: Callable[[Directory], Directory]) -> None:
        self.now = edit(self.now)


class Master:
    """Gives what a test makes of the answers of snapshots."""

    def __init__(self, users: Users, spoil: Callable[[Command], Command]) -> None:
        self.snapshots = Snapshots(users)
        self.spoil = spoil
        self.asked = 0

    async def call(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
        assert (address, command.code, timeout_s > 0) == ("a:1", RequestCode.GET_USERS, True)
        self.asked += 1
        ext, body = await self.snapshots.answer(command.ext or {})
        return self.spoil(Command(0, ext, body))


def slave_of(master: Master, own: Users) -> UserCopies:
    state = BrokerState(is_slave=True)
    return UserCopies(own, master, state, lambda: "a:1", FakeClock())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda it: Command(0, it.ext, it.body[:-1]),
        lambda it: Command(0, it.ext, b""),
        lambda it: Command(0, it.ext, it.body + b"x"),
        lambda it: Command(0, it.ext, bytes(len(it.body))),
        lambda it: Command(0, {**it.ext, "size": "0"}, b""),
        lambda it: Command(0, {**it.ext, "size": str(1 << 40)}, it.body),
        lambda it: Command(0, {**it.ext, "digest": "0" * 64}, it.body),
        lambda it: Command(0, {**it.ext, "offset": "7"}, it.body),
        lambda _: Command(0, {}, b""),
        lambda _: Command(1, {}, b"", remark="no"),
    ],
)
@on_loop
async def test_snapshot_that_is_not_whole_changes_nothing(
    spoil: Callable[[Command], Command],
) -> None:
    own = Users(some_users(3))
    master = Master(Users(some_users(50)), spoil)
    copies = slave_of(master, own)
    assert await copies.refresh() is None
    assert own.now == some_users(3)
    master.spoil = lambda it: it
    assert await copies.refresh() == "a:1"
    assert own.now == some_users(50)


@on_loop
async def test_empty_table_never_replaces_a_full_one() -> None:
    own = Users(some_users(3))
    assert await slave_of(Master(Users(Directory()), lambda it: it), own).refresh() is None
    assert own.now == some_users(3)


@on_loop
async def test_copy_in_pieces_begins_anew_when_users_change_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "PIECE_SIZE", 100)
    own, theirs = Users(Directory()), Users(some_users(100))
    master = Master(theirs, lambda it: it)
    copies = slave_of(master, own)
    assert await copies.refresh() == "a:1"
    assert own.now == theirs.now
    pieces = master.asked
    assert pieces > 5
    assert await copies.refresh() == "a:1"
    assert master.asked == pieces + 1

    def changing(answer: Command) -> Command:
        if master.asked % 3 == 0:
            master.snapshots = Snapshots(theirs)
            theirs.now = theirs.now.with_user(UserChange(f"new-{master.asked}", "secret"))
        return answer

    before = own.now
    theirs.now = theirs.now.without_user("user-1")
    master.spoil = changing
    assert await copies.refresh() is None
    assert own.now == before
    assert master.asked < pieces + 4 * (RESTARTS_MAX + 2)
    master.spoil = lambda it: it
    assert await copies.refresh() == "a:1"
    assert own.now == theirs.now


@on_loop
async def test_master_of_before_changes_nothing_at_a_broker_that_leads() -> None:
    own, theirs = Users(some_users(3)), Users(some_users(9))
    state = BrokerState(is_slave=True)

    def promoted(answer: Command) -> Command:
        state.is_slave = False
        return answer

    master = Master(theirs, promoted)
    copies = UserCopies(own, master, state, lambda: "a:1", FakeClock())  # type: ignore[arg-type]
    await copies.refresh()
    assert own.now == some_users(3)
    assert await copies.refresh() is None
    assert master.asked == 1


@on_loop
async def test_age_of_the_copy_grows_while_the_master_cannot_be_asked() -> None:
    clock = FakeClock()
    master = Master(Users(some_users(2)), lambda it: it)
    state = BrokerState(is_slave=True)
    copies = UserCopies(Users(Directory()), master, state, lambda: "a:1", clock)  # type: ignore[arg-type]
    assert copies.age_s == 0
    await copies.start()
    await copies.tick()

    def away(_: Command) -> Command:
        raise RoquetError("nobody is there")

    master.spoil = away
    await clock.advance(90)
    await copies.tick()
    assert copies.age_s == 90
    await copies.stop()
    assert copies.age_s == 0


def test_snapshot_cannot_fill_the_memory() -> None:
    content = bytes(65 << 20)
    with pytest.raises(ValueError, match="not whole"):
        unpacked(hashlib.sha256(content).hexdigest(), zlib.compress(content))
