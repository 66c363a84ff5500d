"""Who may end a half message, and who is asked about one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roquet.acl.accounts import Table, build
from roquet.acl.guard import Guard
from roquet.acl.needs import broker_needs
from roquet.acl.rights import EVERYBODY
from roquet.broker.api.refusal import Refusal
from roquet.broker.clients.registry import Client, Registry
from roquet.broker.remoting.callers import Callers
from roquet.broker.services.access import Access
from roquet.broker.transactions.members import ProducerMembers
from roquet.protocol.command import Command
from roquet.protocol.hosts import host_bytes
from roquet.remoting.router import Request
from roquet.store.records import Record
from roquet.testing.peer import FakePeer

if TYPE_CHECKING:
    from roquet.acl.rights import Rights

SENDER = "10.0.0.1:4000"


class Accounts:
    """Accounts that never change."""

    def __init__(self) -> None:
        entries = [
            {"accessKey": "maker-one", "secretKey": "secret-1", "topicPerms": ["orders=PUB"]},
            {"accessKey": "maker-two", "secretKey": "secret-2", "topicPerms": ["orders=PUB"]},
            {"accessKey": "stranger", "secretKey": "secret-3", "topicPerms": ["other=PUB"]},
        ]
        entries[0]["groupPerms"] = ["closed=PUB"]
        self.table: Table = build({"file": {"accounts": entries}})


def half() -> Record:
    fields = dict.fromkeys(Record._fields, 0) | {"born_host": host_bytes(SENDER)}
    return Record(**fields)  # type: ignore[arg-type]


class Desk:
    def __init__(self, rights: Rights = EVERYBODY) -> None:
        self.registry = Registry()
        self.members = ProducerMembers(self.registry, rights)
        self.access = Access(rights)
        self.callers = Callers(rights)

    def join(self, address: str, key: str = "", group: str = "g") -> FakePeer:
        peer = FakePeer(address)
        self.registry.register_producer(group, Client(peer, "c", "JAVA", 1, key), 0)
        return peer

    def may_end(self, peer: FakePeer, key: str = "", topic: str = "orders") -> bool:
        ext = {"AccessKey": key} if key else {}
        request = Request(Command(37, ext), peer, 0, lambda _: None)
        caller = self.callers.of(request)
        try:
            self.access.require_write(caller, topic)
            self.members.check_end(caller, "g", half())
        except Refusal:
            return False
        return True


def test_end_without_accounts_is_taken_from_the_sender_and_from_members() -> None:
    desk = Desk()
    # Nobody has sent a heartbeat yet: the host that sent the message speaks for it.
    assert desk.may_end(FakePeer(SENDER))
    assert desk.may_end(FakePeer("10.0.0.1:5000"))
    assert not desk.may_end(FakePeer("10.0.0.2:4000"))
    member = desk.join("10.0.0.3:1")
    assert desk.may_end(member)
    assert desk.may_end(FakePeer("10.0.0.3:2"))
    assert desk.may_end(FakePeer(SENDER))
    assert not desk.may_end(FakePeer("10.0.0.1:5000"))
    assert not desk.may_end(FakePeer("10.0.0.2:4000"))


def test_end_is_taken_from_any_of_many_members() -> None:
    desk = Desk()
    members = [desk.join(f"10.0.0.{number}:1") for number in (3, 4, 5)]
    assert all(desk.may_end(member) for member in members)
    assert desk.may_end(FakePeer("10.0.0.4:9"))
    assert not desk.may_end(FakePeer("10.0.0.6:1"))


def test_end_with_accounts_is_taken_from_the_accounts_of_members() -> None:
    desk = Desk(Guard(Accounts(), broker_needs))
    desk.join("10.0.0.3:1", "maker-one")
    assert desk.may_end(FakePeer("10.0.0.9:9"), "maker-one")
    assert not desk.may_end(FakePeer("10.0.0.3:2"), "maker-two")
    assert not desk.may_end(FakePeer("10.0.0.3:1"), "stranger")
    # The sender's own connection is not enough without the permission on the topic.
    assert desk.may_end(FakePeer(SENDER), "maker-two")
    assert not desk.may_end(FakePeer(SENDER), "stranger")
    assert not desk.may_end(FakePeer(SENDER))


@pytest.mark.parametrize(
    ("key", "asked"), [("maker-one", True), ("maker-two", True), ("stranger", False), ("", False)]
)
def test_member_is_asked_only_about_topics_that_it_may_publish_to(key: str, asked: bool) -> None:
    desk = Desk(Guard(Accounts(), broker_needs))
    client = Client(FakePeer(), "c", "JAVA", 1, key)
    assert desk.members.may_be_asked(client, "orders") is asked
    assert Desk().members.may_be_asked(client, "orders")


def test_member_of_a_former_password_is_asked_nothing() -> None:
    guard = Guard(Accounts(), broker_needs)
    desk = Desk(guard)
    now = guard.secrets["maker-one"]
    for secret, is_asked in ((now, True), (None, True), (b"the former one", False)):
        client = Client(FakePeer(), "c", "JAVA", 1, "maker-one", secret=secret)
        assert desk.members.may_be_asked(client, "orders") is is_asked
